package mysqld

import (
	"fmt"
	"testing"
)

// TestInstruments: instruments that nobody reads are off. Those that the agent reads stay on, whatever the
// operator sets. An operator's own choice is followed.
func TestInstruments(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, set string // performance_schema_instrument; "" = it is not set
		on, off   []string
	}{
		{"quorate's", "", []string{"statement/sql/insert", "wait/io/table/sql/handler", "error"},
			[]string{"memory/innodb/memory", "wait/io/file/innodb/innodb_log_file", "idle"}},
		{"all off", "%=OFF", nil, []string{"statement/sql/insert", "memory/innodb/memory", "wait/io/table/sql/handler"}},
		{"MySQL's", "memory/%=ON", []string{"statement/sql/insert", "memory/innodb/memory", "wait/io/table/sql/handler", "idle"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newServer(t, func(c *Config) {
				if test.set != "" {
					c.Variables["performance-schema-instrument"] = test.set
				}
			})
			p := start(t, s)
			open(t, p)
			judge := func(table, name string, want bool) {
				t.Helper()
				var n int
				query := fmt.Sprintf("SELECT COUNT(*) FROM performance_schema.%s WHERE name LIKE ? AND enabled = IF(?, 'NO', 'YES')", table)
				if err := p.Admin().query1(ctx(t), name, query, []any{name, want}, &n); err != nil || n != 0 {
					t.Errorf("%s: %d are not as they should be (on: %t), %v", name, n, want, err)
				}
			}
			for _, name := range append(test.on, InstrumentsKept()...) {
				judge("setup_instruments", name, true)
			}
			judge("setup_threads", "thread/%", true)
			for _, name := range test.off {
				judge("setup_instruments", name, false)
			}
			seesXA(t, s, p)
		})
	}
}

// seesXA expects that the agent sees a client's XA transaction, and counts its statements.
func seesXA(t *testing.T, s *Server, p *Process) {
	t.Helper()
	client := dbaSession(t, s)
	// The server answers a statement before it counts it, and counts it before it runs the session's next one.
	mustExec(t, client, "XA START 'one'", "XA END 'one'", "XA PREPARE 'one'", "XA COMMIT 'one'", "XA START 'two'", "DO 0")
	x, err := p.Admin().xaStatements(ctx(t))
	if err != nil || x.starts != 2 || x.seenStarts != 2 || x.commits != 1 {
		t.Errorf("%+v, %v", x, err)
	}
	if n, err := p.Admin().EndXA(ctx(t)); err != nil || n != 1 {
		t.Errorf("EndXA ended %d sessions, %v", n, err)
	}
}

// TestUsedIndexes: sys.schema_unused_indexes names no index that is used, because people drop the
// indexes that it names.
func TestUsedIndexes(t *testing.T) {
	t.Parallel()
	p := start(t, newServer(t))
	open(t, p)
	for _, q := range []string{
		"SET GLOBAL rpl_semi_sync_source_enabled = OFF", "CREATE DATABASE d",
		"CREATE TABLE d.t (a INT PRIMARY KEY, b INT, c INT, KEY used (b), KEY unused (c))", "INSERT INTO d.t VALUES (1, 1, 1), (2, 2, 2)",
		"DO (SELECT a FROM d.t WHERE b = 1)",
	} {
		if err := p.Admin().exec(ctx(t), q, q); err != nil {
			t.Fatal(err)
		}
	}
	var names string
	if err := p.Admin().query1(ctx(t), "unused indexes", "SELECT GROUP_CONCAT(index_name) FROM sys.schema_unused_indexes WHERE object_schema = 'd'", nil, &names); err != nil || names != "unused" {
		t.Errorf("unused are %q, %v", names, err)
	}
}
