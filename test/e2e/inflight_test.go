package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// inFlight kills the primary while long statements run. A statement that
// was not acknowledged is whole on all nodes, or on none. LOAD DATA LOCAL needs
// the server variable local_infile.
func (f *fixture) inFlight(t *testing.T) {
	f.scenario(t, "AlterRuns", func(t *testing.T, ctx context.Context) { f.alter(t, ctx, "altered_running", false) })
	f.scenario(t, "AlterWaitsForAck", func(t *testing.T, ctx context.Context) { f.alter(t, ctx, "altered_waiting", true) })
	f.scenario(t, "CreateAndDrop", f.createAndDrop)
	f.scenario(t, "LoadData", f.loadData)
}

// table makes a table with a few megabytes in it, of the form that rows sums up.
func (f *fixture) table(t *testing.T, ctx context.Context, primary int, name string) string {
	t.Helper()
	table := "quorate_inflight." + name
	inSession(t, ctx, f.local(t, primary), "CREATE DATABASE IF NOT EXISTS quorate_inflight",
		"CREATE TABLE "+table+" (id INT PRIMARY KEY, b LONGBLOB)",
		fmt.Sprintf(largeRows(4<<20), table))
	return table
}

// alter kills the primary while it rebuilds a table, or afterwards while it waits
// for the ACK. Then nobody got OK. If the ALTER is not there, it is done
// again.
func (f *fixture) alter(t *testing.T, ctx context.Context, name string, waits bool) {
	primary := f.heal(t, ctx)
	table := f.table(t, ctx, primary, name)
	f.sameEverywhere(t, ctx, table)
	db := f.local(t, primary)
	statement := "ALTER TABLE " + table + " ADD COLUMN more INT NOT NULL DEFAULT 7, ALGORITHM=COPY"
	if waits {
		f.pause(t, ctx, f.others(primary)...)
	}
	told := make(chan error, 1)
	run := func() {
		_, err := db.ExecContext(ctx, statement)
		told <- err
	}
	go run()
	if waits {
		f.awaitWaiting(t, ctx, primary)
	} else {
		f.awaitCopying(t, ctx, primary, func() error {
			select {
			case err := <-told: // it has ended, and was not seen
				if err == nil {
					mustDo(t, ctx, db, "ALTER TABLE "+table+" DROP COLUMN more")
					go run()
				}
				return err
			default:
				return nil
			}
		})
	}
	if err := f.KillBoth(primary); err != nil {
		t.Fatal(err)
	}
	if err := <-told; err == nil && waits {
		t.Error("an ALTER that no majority had was acknowledged")
	} else if err == nil {
		t.Log("the ALTER was done before the kill")
	}
	if waits {
		f.resume(t, f.others(primary)...)
	}
	f.heal(t, ctx)
	f.sameEverywhere(t, ctx, table)
	if columns := f.sameDefinition(t, ctx, table); !strings.Contains(columns, "`more`") {
		inSession(t, ctx, f.local(t, f.heal(t, ctx)), statement)
	}
	f.sameEverywhere(t, ctx, table)
	if columns := f.sameDefinition(t, ctx, table); !strings.Contains(columns, "`more`") {
		t.Errorf("after the ALTER the table is %s", columns)
	}
	f.writeAndCheck(t, ctx)
}

// awaitCopying waits until a session of node i copies a table. Before each look it calls again,
// which has the statement run once more if it has ended.
func (f *fixture) awaitCopying(t *testing.T, ctx context.Context, i int, again func() error) {
	t.Helper()
	db := f.admin(t, i)
	if err := devcluster.Poll(ctx, "a session copies a table", func(ctx context.Context) (bool, string, error) {
		if err := again(); err != nil {
			return false, "", err
		}
		var n int
		err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM performance_schema.processlist WHERE STATE = 'copy to tmp table'").Scan(&n)
		return n > 0, "none does", err
	}); err != nil {
		t.Fatal(err)
	}
}

// sameDefinition fails the test unless all nodes have the same definition of a table. They must already have
// the same transactions (sameEverywhere).
func (f *fixture) sameDefinition(t *testing.T, ctx context.Context, table string) (want string) {
	t.Helper()
	for i := range f.Len() {
		var name, definition string
		if err := f.local(t, i).QueryRowContext(ctx, "SHOW CREATE TABLE "+table).Scan(&name, &definition); err != nil {
			t.Fatalf("node %s: %v", f.Name(i), err)
		}
		if i == 0 {
			want = definition
		}
		if definition != want {
			t.Errorf("on node %s the table is\n%s\non node %s\n%s", f.Name(i), definition, f.Name(0), want)
		}
	}
	return want
}

// createAndDrop kills a primary that makes and drops tables all the time. The
// table that was acknowledged last is there, and all nodes have the same tables.
func (f *fixture) createAndDrop(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	inSession(t, ctx, f.local(t, primary), "CREATE DATABASE IF NOT EXISTS quorate_inflight", "CREATE DATABASE quorate_ddl")
	db := f.local(t, primary)
	kept := make(chan string, 1) // the table that was acknowledged and not dropped since
	go func() {
		for n := 1; ; n++ {
			if _, err := db.ExecContext(ctx, fmt.Sprintf("CREATE TABLE quorate_ddl.t%d (id INT PRIMARY KEY) AS SELECT %d AS id", n, n)); err != nil {
				kept <- fmt.Sprintf("t%d", n-1)
				return
			}
			if _, err := db.ExecContext(ctx, fmt.Sprintf("DROP TABLE IF EXISTS quorate_ddl.t%d, quorate_ddl.none%d", n-1, n)); err != nil {
				kept <- fmt.Sprintf("t%d", n)
				return
			}
		}
	}()
	if err := devcluster.Poll(ctx, "tables come and go", func(ctx context.Context) (bool, string, error) {
		tables, err := f.tables(ctx, primary)
		return tables != "" && tables != "t1", tables, err
	}); err != nil {
		t.Fatal(err)
	}
	if err := f.KillBoth(primary); err != nil {
		t.Fatal(err)
	}
	name := <-kept
	next := f.heal(t, ctx)
	for i := range f.Len() {
		if err := f.WaitCaughtUp(ctx, i, f.status(t, ctx, next).LogCommit); err != nil {
			t.Fatal(err)
		}
	}
	want, err := f.tables(ctx, next)
	if err != nil {
		t.Fatal(err)
	}
	for i := range f.Len() {
		if got, err := f.tables(ctx, i); err != nil || got != want {
			t.Errorf("node %s has the tables %q, %s has %q (%v)", f.Name(i), got, f.Name(next), want, err)
		}
	}
	if !slices.Contains(strings.Split(want, ","), name) {
		t.Errorf("there are %q, without %s, which was acknowledged", want, name)
	}
	t.Logf("%s was acknowledged, there are %s", name, want)
	f.writeAndCheck(t, ctx)
}

// tables lists the tables that createAndDrop made.
func (f *fixture) tables(ctx context.Context, i int) (names string, err error) {
	dsn, err := f.LocalDSN(i)
	if err != nil {
		return "", err
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return "", err
	}
	defer db.Close()
	err = db.QueryRowContext(ctx, `SELECT IFNULL(GROUP_CONCAT(TABLE_NAME ORDER BY TABLE_NAME), '')
		FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'quorate_ddl'`).Scan(&names)
	return names, err
}

// errPrimaryKilled ends the rows of a LOAD DATA whose primary is gone.
var errPrimaryKilled = errors.New("the primary was killed")

// loadData kills the primary in the middle of a LOAD DATA: no node has any of its rows.
// The rows of the next LOAD DATA, with the new primary, are on all nodes.
func (f *fixture) loadData(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	table := f.table(t, ctx, primary, "loaded")
	before := f.rows(t, ctx, primary, table)
	half, killed := make(chan struct{}), make(chan struct{})
	mysql.RegisterReaderHandler("half", func() io.Reader {
		return io.MultiReader(strings.NewReader(csv(1000, 20000)), &blocked{reached: half, until: killed})
	})
	defer mysql.DeregisterReaderHandler("half")
	mysql.RegisterReaderHandler("whole", func() io.Reader { return strings.NewReader(csv(1000, 20000)) })
	defer mysql.DeregisterReaderHandler("whole")
	told := make(chan error, 1)
	go func() {
		_, err := f.local(t, primary).ExecContext(ctx, loadStatement("half", table))
		told <- err
	}()
	select {
	case <-half:
	case err := <-told:
		t.Fatalf("LOAD DATA ended early: %v", err)
	}
	err := f.KillBoth(primary)
	close(killed)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-told; err == nil {
		t.Error("half of a LOAD DATA was acknowledged")
	}
	next := f.heal(t, ctx)
	f.sameEverywhere(t, ctx, table)
	if after := f.rows(t, ctx, next, table); after != before {
		t.Errorf("half of a LOAD DATA left %s, before it were %s", after, before)
	}
	if _, err := f.local(t, next).ExecContext(ctx, loadStatement("whole", table)); err != nil {
		t.Fatal(err)
	}
	f.sameEverywhere(t, ctx, table)
	f.writeAndCheck(t, ctx)
}

// loadStatement loads a registered reader.
func loadStatement(reader, table string) string {
	return "LOAD DATA LOCAL INFILE 'Reader::" + reader + "' INTO TABLE " + table + " FIELDS TERMINATED BY ','"
}

// csv returns n lines from id first on.
func csv(first, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d,%s\n", first+i, strings.Repeat("x", 100))
	}
	return b.String()
}

// blocked is a reader that says when it was reached, and fails later.
type blocked struct{ reached, until chan struct{} }

func (b *blocked) Read([]byte) (int, error) {
	close(b.reached)
	<-b.until
	return 0, errPrimaryKilled
}
