package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// TestLongTransaction kills the primary right after a transaction of a million and a half rows:
// its successor needs many promotion timeouts to apply it, and opens once it has, without
// ever having begun again.
func TestLongTransaction(t *testing.T) {
	beside(t)
	// Such a statement may hold up the log's fsync on the same disk for more than a second, after which the
	// primary would rightly hand over in the middle of it.
	f := newFixture(t, devcluster.Options{Nodes: 3, Loggers: 1, PromotionTimeout: 2 * time.Second, ElectionTimeout: calm})
	f.scenario(t, "Insert", func(t *testing.T, ctx context.Context) {
		f.longApply(t, ctx, "INSERT /*+ SET_VAR(cte_max_recursion_depth = 10000) */ INTO %s (b) WITH RECURSIVE "+
			"n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1300) SELECT x.i FROM n AS x, n AS y")
	})
	f.scenario(t, "Alter", func(t *testing.T, ctx context.Context) {
		f.longApply(t, ctx, "ALTER TABLE %s ENGINE = InnoDB, ADD KEY (b), ADD KEY (b, id)")
	})
}

// longApply lets the new primary apply a statement during its promotion. Afterwards the table must have
// the rows that it had on the old one.
func (f *fixture) longApply(t *testing.T, ctx context.Context, statement string) {
	primary := f.heal(t, ctx)
	successor := 1 - primary
	l := f.start(t, 2)
	l.awaitAcks(t, ctx, 50)
	db := f.local(t, primary)
	const table = "quorate_long.t"
	for _, q := range []string{"CREATE DATABASE IF NOT EXISTS quorate_long",
		"CREATE TABLE IF NOT EXISTS " + table + " (id INT PRIMARY KEY AUTO_INCREMENT, b INT)"} {
		if _, err := db.ExecContext(ctx, q); err != nil {
			t.Fatal(err)
		}
	}
	count := func(i int) (rows int64) {
		if err := f.local(t, i).QueryRowContext(ctx, "SELECT COUNT(*) FROM "+table).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		return rows
	}
	rows := count(primary)
	// A fast machine runs the statement more than once. Each ALTER leaves more keys behind, so the next one takes longer.
	for took := time.Duration(0); took < 5*time.Second; {
		began := time.Now()
		result, err := db.ExecContext(ctx, fmt.Sprintf(statement, table))
		if err != nil {
			t.Fatal(err)
		}
		took = time.Since(began)
		n, _ := result.RowsAffected()
		rows += n
		t.Logf("the statement took %v", took.Round(time.Millisecond))
	}
	before, err := os.ReadFile(f.Logs(successor))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := f.KillBoth(primary); err != nil {
		t.Fatal(err)
	}
	if err := f.WaitNode(ctx, successor, "catching up", func(n status.Node) bool {
		return n.Role == status.RolePrimary || strings.Contains(n.Reason, "catching up for")
	}); err != nil {
		t.Fatal(err)
	}
	now, err := f.WaitPrimary(ctx, primary)
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	l.awaitAcks(t, ctx, 50)
	l.stop(t)
	log, err := os.ReadFile(f.Logs(successor))
	if err != nil {
		t.Fatal(err)
	}
	for _, effect := range []string{`do="replicate`, `do="kill-mysqld`} {
		if n := strings.Count(string(log[len(before):]), effect); n > 0 {
			t.Errorf("%d times %s while it was promoted: what it had applied was thrown away", n, effect)
		}
	}
	if t.Logf("%s took over after %v", f.Name(now), took.Round(time.Millisecond)); took < 4*time.Second {
		t.Errorf("it took %v: the promotion timeout of 2 s was not put to the test", took)
	}
	if got := count(now); got != rows {
		t.Errorf("%d rows, want %d", got, rows)
	}
	f.heal(t, ctx)
	f.check(t, ctx)
}

// TestStoppedApplier: of two full nodes and a logger the replica does not apply. Nobody
// is slowed down for it, nobody counts on it, and it goes on by itself once it can.
func TestStoppedApplier(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3, Loggers: 1, MaxApplyLag: time.Second, ElectionTimeout: calm})
	f.think = busy // rates are compared
	f.scenario(t, "Error", func(t *testing.T, ctx context.Context) {
		f.stopApplier(t, ctx, "replication has stopped", func(replica int) (mend func()) {
			return f.renameTable(t, ctx, replica)
		})
	})
	f.scenario(t, "DiskFull", func(t *testing.T, ctx context.Context) {
		disk := f.faultDisksOf(t, "mysql", 0)[0]
		if f.heal(t, ctx) == 0 {
			f.must(t, ctx, 0, "switchover", "--max-pause", "10s")
		}
		f.stopApplier(t, ctx, "No space left on device", func(int) (mend func()) {
			f.setFaults(t, disk, full())
			return func() { f.setFaults(t, disk) }
		})
	})
}

// renameTable takes the ledger's table away on one node, beside the log: its applier
// stops with an error at the next row, until it has the table back.
func (f *fixture) renameTable(t *testing.T, ctx context.Context, i int) (back func()) {
	t.Helper()
	rename := func(statement string) {
		t.Helper()
		conn, err := f.admin(t, i).Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for _, q := range []string{"SET sql_log_bin = 0", "SET GLOBAL super_read_only = OFF", statement, "SET GLOBAL super_read_only = ON"} {
			if _, err := conn.ExecContext(ctx, q); err != nil {
				t.Fatalf("%s: %v", q, err)
			}
		}
	}
	rename("RENAME TABLE quorate_demo.ledger TO quorate_demo.away")
	return func() { rename("RENAME TABLE quorate_demo.away TO quorate_demo.ledger") }
}

// stopApplier stops the replica's applier. The primary must say so, and go on.
func (f *fixture) stopApplier(t *testing.T, ctx context.Context, says string, spoil func(replica int) (mend func())) {
	primary := f.heal(t, ctx)
	replica, term := 1-primary, f.status(t, ctx, primary).Term
	l := f.start(t, 4)
	l.awaitAcks(t, ctx, 100)
	free := l.ackRate(t, ctx)
	mend := spoil(replica)
	if err := devcluster.Poll(ctx, "nobody could take over", func(ctx context.Context) (bool, string, error) {
		st, err := f.Status(ctx, primary)
		if err != nil || st.Failover == nil {
			return false, fmt.Sprint(err), nil
		}
		i := slices.IndexFunc(st.Nodes, func(n status.Node) bool { return n.Name == f.Name(replica) })
		n := st.Nodes[i]
		return st.Failover.To == "" && strings.Contains(st.Failover.Reason, "does not apply") && strings.Contains(n.ApplierStopped, says) &&
			strings.Contains(n.Reason, "it cannot take over") && !n.LagUnknown && n.LagSeconds > 4, fmt.Sprintf("%+v, %+v", st.Failover, n), nil
	}); err != nil {
		t.Fatal(err)
	}
	l.ResetGap()
	mean := 0.0
	for range 4 { // it is four bounds behind
		mean += l.ackRate(t, ctx) / 4
	}
	t.Logf("%.0f rows a second before, %.0f without a replica, longest time without an OK %v", free, mean, l.Gap())
	if n := f.status(t, ctx, primary); strings.Contains(n.Pace, "slowed down") || mean < free/4 {
		t.Errorf("%.0f rows a second before, then %.0f: %s", free, mean, n.Pace)
	}
	f.refused(t, ctx, primary, []int{1}, "does not apply", "switchover", "--to", f.Name(replica))
	mend()
	l.rest()
	if err := f.WaitNode(ctx, replica, "applying again", func(n status.Node) bool { return n.ApplierStopped == "" }); err != nil {
		t.Fatal(err)
	}
	l.stop(t)
	if st := f.status(t, ctx, primary); st.Role != status.RolePrimary || st.Term != term {
		t.Errorf("%s is %s in term %d, it was the primary of term %d", f.Name(primary), st.Role, st.Term, term)
	}
	if err := f.WaitCaughtUp(ctx, replica, f.status(t, ctx, primary).LogCommit); err != nil {
		t.Fatal(err)
	}
	f.check(t, ctx)
}
