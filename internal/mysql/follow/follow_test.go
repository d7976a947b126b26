package follow

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
)

// query makes a QUERY event with status variables and a schema.
func query(w *binlogtest.Writer, vars []byte, schema, text string, errorCode uint16) []byte {
	body := binary.LittleEndian.AppendUint32(nil, 9) // thread
	body = append(body, 0, 0, 0, 0, byte(len(schema)))
	body = binary.LittleEndian.AppendUint16(body, errorCode)
	body = binary.LittleEndian.AppendUint16(body, uint16(len(vars)))
	body = append(append(body, vars...), schema...)
	return w.Event(binlog.TypeQuery, append(append(body, 0), text...))
}

func rows(w *binlogtest.Writer, kind binlog.Type, ends bool, bytes int) []byte {
	body := make([]byte, max(bytes, 10))
	if ends {
		body[6] = 1
	}
	return w.Event(kind, body)
}

// steps feeds events, and returns each step in a line.
func steps(t *testing.T, withheld func(binlog.Query) bool, events ...[]byte) (said []string, err error) {
	t.Helper()
	translator := Translator{Withheld: withheld}
	for _, e := range events {
		err := translator.Feed(e, func(s Step) error {
			text := [...]string{"", "begin", "open", "rows", "statement", "commit", "left out", "format"}[s.Kind]
			switch s.Kind {
			case Begin:
				text += fmt.Sprintf(" %d", s.Info.GTID.N)
			case Statement, LeftOut:
				text += " " + s.Query.Text
			case Rows:
				for inner, err := range binlog.Events(s.Events) {
					if err != nil || binlog.VerifyChecksum(inner) != nil {
						t.Errorf("an event of a step is damaged: %v", err)
					}
					text += fmt.Sprintf(" %d", inner.Type())
					if binlog.IsRowEvent(inner.Type()) && binlog.EndsStatement(inner) {
						text += "!"
					}
				}
			}
			if s.Ends {
				text += "."
			}
			said = append(said, text)
			return nil
		})
		if err != nil {
			return said, err
		}
	}
	return said, nil
}

// translation is the result of translating events.
type translation struct {
	events func(w *binlogtest.Writer) [][]byte
	want   []string
	err    string
}

func tx(w *binlogtest.Writer, rest func() [][]byte) [][]byte { return w.Transaction(rest) }

func TestTranslate(t *testing.T) {
	for name, c := range map[string]translation{
		"rows of two statements": {func(w *binlogtest.Writer) [][]byte {
			return tx(w, func() [][]byte {
				return [][]byte{w.Query("BEGIN"), w.Event(binlog.TypeRowsQuery, make([]byte, 4)), w.Event(binlog.TypeTableMap, make([]byte, 20)), rows(w, binlog.TypeWriteRows, false, 0),
					rows(w, binlog.TypeWriteRows, true, 0), w.Event(binlog.TypeTableMap, make([]byte, 20)), rows(w, binlog.TypeDeleteRows, true, 0), w.Event(binlog.TypeXID, make([]byte, 8))}
			})
		}, []string{"begin 1", "open", "rows 19 30 30!", "rows 19 32!", "commit."}, ""},
		"rows of a long statement": {func(w *binlogtest.Writer) [][]byte {
			return tx(w, func() [][]byte {
				return [][]byte{w.Query("BEGIN"), w.Event(binlog.TypeTableMap, make([]byte, 20)), w.Event(binlog.TypeTableMap, make([]byte, 20)), rows(w, binlog.TypeUpdateRows, false, chunkBytesMin),
					rows(w, binlog.TypeUpdateRows, false, 0), rows(w, binlog.TypeUpdateRows, true, 0), w.Query("COMMIT")}
			})
		}, []string{"begin 1", "open", "rows 19 19 31!", "rows 19 19 31 31!", "commit."}, ""},
		"DDL":                            {func(w *binlogtest.Writer) [][]byte { return w.Statement("DROP TABLE t") }, []string{"begin 1", "statement DROP TABLE t."}, ""},
		"what is granted":                {func(w *binlogtest.Writer) [][]byte { return w.Statement("GRANT it") }, []string{"begin 1", "left out GRANT it."}, ""},
		"what is revoked":                {func(w *binlogtest.Writer) [][]byte { return w.Statement("/* x */ Revoke it") }, []string{"begin 1", "statement /* x */ Revoke IF EXISTS it."}, ""},
		"what is revoked if it is there": {func(w *binlogtest.Writer) [][]byte { return w.Statement("REVOKE if exists it") }, []string{"begin 1", "statement REVOKE if exists it."}, ""},
		"savepoints": {func(w *binlogtest.Writer) [][]byte {
			return tx(w, func() [][]byte {
				return [][]byte{w.Query("BEGIN"), w.Query("SAVEPOINT `a`"), w.Query("ROLLBACK TO `a`"), w.Query("COMMIT")}
			})
		}, []string{"begin 1", "open", "statement SAVEPOINT `a`", "statement ROLLBACK TO `a`", "commit."}, ""},
		"CREATE SELECT": {func(w *binlogtest.Writer) [][]byte {
			return tx(w, func() [][]byte {
				return [][]byte{w.Query("BEGIN"), w.Query("CREATE TABLE `t` (a int) START TRANSACTION"), w.Event(binlog.TypeXID, make([]byte, 8))}
			})
		}, []string{"begin 1", "open", "statement CREATE TABLE `t` (a int) START TRANSACTION", "commit."}, ""},
	} {
		t.Run(name, c.check)
	}
}

// TestRefused: a transaction that cannot be carried over is refused, with a line that says what
// to do.
func TestRefused(t *testing.T) {
	for name, c := range map[string]translation{
		"a statement for rows": {func(w *binlogtest.Writer) [][]byte {
			return tx(w, func() [][]byte {
				return [][]byte{w.Query("BEGIN"), w.Query("insert into t values (1)"), w.Query("COMMIT")}
			})
		}, []string{"begin 1", "open"}, "was binlogged as a statement"},
		"a user variable": {func(w *binlogtest.Writer) [][]byte {
			return tx(w, func() [][]byte {
				return [][]byte{w.Query("BEGIN"), w.Event(binlog.TypeUserVar, make([]byte, 9)), w.Query("COMMIT")}
			})
		}, []string{"begin 1", "open"}, "was binlogged as a statement"},
		"XA": {func(w *binlogtest.Writer) [][]byte { return w.Statement("XA COMMIT 'x'") }, []string{"begin 1"}, "is an XA transaction"},
		"half done": {func(w *binlogtest.Writer) [][]byte {
			return tx(w, func() [][]byte { return [][]byte{query(w, nil, "", "DROP TABLE a, b", 1051)} })
		}, []string{"begin 1"}, "error 1051, half done"},
		"a new variable": {func(w *binlogtest.Writer) [][]byte {
			return tx(w, func() [][]byte { return [][]byte{query(w, []byte{99, 1}, "", "DROP TABLE a", 0)} })
		}, []string{"begin 1"}, "a session variable (99) that this quorate does not know"},
		"a new variable of a BEGIN": {func(w *binlogtest.Writer) [][]byte {
			return tx(w, func() [][]byte { return [][]byte{query(w, []byte{99, 1}, "", "BEGIN", 0), w.Query("COMMIT")} })
		}, []string{"begin 1"}, "a session variable (99) that this quorate does not know"},
		"a new variable of a CREATE SELECT": {func(w *binlogtest.Writer) [][]byte {
			return tx(w, func() [][]byte {
				return [][]byte{w.Query("BEGIN"), query(w, []byte{99, 1}, "", "CREATE TABLE `t` (a int) START TRANSACTION", 0), w.Query("COMMIT")}
			})
		}, []string{"begin 1", "open"}, "a session variable (99) that this quorate does not know"},
		"rolled back": {func(w *binlogtest.Writer) [][]byte {
			return tx(w, func() [][]byte { return [][]byte{w.Query("BEGIN"), w.Query("ROLLBACK")} })
		}, []string{"begin 1", "open"}, "tables that are not InnoDB's"},
		"anonymous": {func(w *binlogtest.Writer) [][]byte {
			return [][]byte{w.Event(binlog.TypeAnonymousGTID, make([]byte, 42))}
		}, nil, "has no GTID: set gtid_mode = ON"},
		"no checksums": {func(w *binlogtest.Writer) [][]byte { return [][]byte{w.FormatDescription(0)} }, nil, "SET GLOBAL binlog_checksum = CRC32"},
		"a new file":   {func(w *binlogtest.Writer) [][]byte { return append(w.Start(), w.Statement("A")...) }, []string{"format", "begin 1", "statement A."}, ""},
		"damage": {func(w *binlogtest.Writer) [][]byte {
			all := w.Statement("DROP TABLE t")
			all[1][len(all[1])-6]++
			return all
		}, []string{"begin 1"}, "wrong checksum"},
	} {
		t.Run(name, c.check)
	}
}

func (c translation) check(t *testing.T) {
	t.Helper()
	got, err := steps(t, func(q binlog.Query) bool { return binlog.IsACLStatement(q.Text) }, c.events(binlogtest.New("b"))...)
	if diff := cmp.Diff(c.want, got); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
		t.Errorf("%v, want %q", err, c.err)
	}
	if unsupported, ok := errors.AsType[*UnsupportedError](err); ok && (unsupported.Do == "" || strings.Contains(err.Error(), "\n")) {
		t.Errorf("it does not say in a line what to do: %v", err)
	}
}

func TestSession(t *testing.T) {
	w := binlogtest.New("b")
	var s Session
	do := func(step Step) string { return strings.Join(s.SQL(step), "; ") }
	parse := func(vars []byte, schema, text string) binlog.SessionQuery {
		q, err := binlog.ParseSessionQuery(query(w, vars, schema, text, 0))
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	utf8 := []byte{4, 255, 0, 255, 0, 8, 0}
	foreign := append([]byte{0, 0, 0, 0, 4}, utf8...) // no foreign key checks
	info := binlog.GTIDInfo{GTID: binlogtest.GTID(7), OriginalCommit: 5}
	const defaults = "@@SESSION.unique_checks=1,@@SESSION.sql_auto_is_null=0,@@SESSION.sql_mode=0,@@SESSION.auto_increment_increment=1,@@SESSION.auto_increment_offset=1," +
		"@@SESSION.lc_time_names=0,@@SESSION.collation_database=DEFAULT,@@SESSION.character_set_client=255,@@SESSION.collation_connection=255,@@SESSION.collation_server=8,@@SESSION.timestamp=239.000000"
	for _, c := range []struct {
		step Step
		want string
	}{
		{Step{Kind: Format, Events: []byte("abc")}, "SET @@SESSION.gtid_next='AUTOMATIC'; BINLOG 'YWJj'"},
		{Step{Kind: Format, Events: []byte("abc")}, ""},
		{Step{Kind: Begin, Info: info}, "SET @@SESSION.gtid_next='" + info.GTID.String() + "',@@SESSION.original_commit_timestamp=5"},
		{Step{Kind: Open, Query: parse(foreign, "", "BEGIN")}, "SET @@SESSION.foreign_key_checks=0," + defaults + "; BEGIN"},
		{Step{Kind: Rows, Events: []byte("def")}, "BINLOG 'ZGVm'"},
		{Step{Kind: Rows, Events: []byte("ghi")}, "BINLOG 'Z2hp'"},
		{Step{Kind: Commit}, "COMMIT"},
		{Step{Kind: Open, Query: parse(foreign, "", "BEGIN")}, "SET @@SESSION.timestamp=239.000000; BEGIN"}, // rows have changed it
		{Step{Kind: Open, Query: parse(foreign, "", "BEGIN")}, "BEGIN"},
		{Step{Kind: Format, Events: []byte("xyz")}, "SET @@SESSION.gtid_next='AUTOMATIC'; BINLOG 'eHl6'"},
		{Step{Kind: Rows, Events: []byte("defg")}, "BINLOG 'ZGVmZw=='"},
		{Step{Kind: Statement, Query: parse(utf8, "a`b", "DROP TABLE t")}, "SET @@SESSION.character_set_client=utf8mb4; USE `a``b`; " +
			"SET @@SESSION.foreign_key_checks=1,@@SESSION.collation_database=DEFAULT,@@SESSION.character_set_client=255,@@SESSION.timestamp=239.000000; DROP TABLE t"},
		{Step{Kind: Statement, Query: parse(utf8, "a`b", "DROP DATABASE x")}, "DROP DATABASE x"},
		{Step{Kind: Statement, Query: parse(append([]byte{5, 3, 'U', 'T', 'C', 13, 1, 0, 0}, utf8...), "a`b", "DROP TABLE t")},
			"SET @@SESSION.character_set_client=utf8mb4; USE `a``b`; " +
				"SET @@SESSION.collation_database=DEFAULT,@@SESSION.character_set_client=255,@@SESSION.time_zone='UTC',@@SESSION.timestamp=239.000001; DROP TABLE t"},
		{Step{Kind: Statement, Query: parse([]byte{4, 8, 0, 8, 0, 8, 0}, "bücher", "DROP TABLE t")}, "SET @@SESSION.character_set_client=utf8mb4; USE `bücher`; " +
			"SET @@SESSION.collation_database=DEFAULT,@@SESSION.character_set_client=8,@@SESSION.collation_connection=8,@@SESSION.timestamp=239.000000; DROP TABLE t"},
		{Step{Kind: Begin, Info: binlog.GTIDInfo{GTID: binlogtest.GTID(8)}}, "SET @@SESSION.gtid_next='" + binlogtest.GTID(8).String() + "',@@SESSION.original_commit_timestamp=36028797018963968"},
		{Step{Kind: LeftOut}, "BEGIN; COMMIT"},
	} {
		if got := do(c.step); got != c.want {
			t.Errorf("step %d:\n%q, want\n%q", c.step.Kind, got, c.want)
		}
	}
}

// TestClock: a transaction begins beside others only where the source says that it may.
func TestClock(t *testing.T) {
	at := func(last, n int64) binlog.GTIDInfo {
		return binlog.GTIDInfo{LastCommitted: last, SequenceNumber: n}
	}
	var c Clock
	if !c.Idle() || !c.May(at(7, 8)) {
		t.Error("where nothing runs, one may not begin")
	}
	c.Begin(at(7, 8))
	c.Begin(at(7, 9))
	for _, w := range []struct {
		info binlog.GTIDInfo
		may  bool
	}{
		{at(7, 10), true},  // as these
		{at(8, 10), false}, // 8 runs
		{at(9, 10), false}, // both do
		{at(0, 10), true},  // of none
		{at(7, 9), false},  // no number of this file
		{at(7, 3), false},
		{at(10, 10), false},
		{at(-1, 0), false}, // no clock
	} {
		if got := c.May(w.info); got != w.may {
			t.Errorf("%+v may begin: %t", w.info, got)
		}
	}
	c.End(at(7, 8))
	if !c.May(at(8, 10)) || c.May(at(9, 10)) || c.Idle() {
		t.Error("8 has ended, 9 runs")
	}
	c.End(at(7, 9))
	if !c.Idle() {
		t.Error("all have ended")
	}
}
