package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// xaTable is where the XA transactions write, one row each.
const xaTable = "quorate_xa.t"

// TestXA kills nodes while XA transactions are prepared, and after they were
// ended. A replica that starts rolls prepared transactions back and has no GTID for
// them, nor for the XA PREPARE of those that were ended. Neither makes it errant, and
// the prepared transactions are prepared on it again.
func TestXA(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3, ElectionTimeout: calm})
	pending, ended := []int{2, 4, 5, 6}, []int{1, 2, 4, 5, 6, 9}
	f.scenario(t, "Prepare", f.prepareXA)
	f.scenario(t, "KillFollowersWhilePrepared", func(t *testing.T, ctx context.Context) {
		f.killEach(t, ctx, f.others(f.heal(t, ctx)), []string{"pending_1", "pending_9"}, pending)
	})
	f.scenario(t, "End", func(t *testing.T, ctx context.Context) {
		inSession(t, ctx, f.local(t, f.heal(t, ctx)), "XA COMMIT 'pending_1'", "XA ROLLBACK 'pending_9'",
			"INSERT INTO "+xaTable+" VALUES (9)") // the row that was locked
		f.awaitXA(t, ctx, nil, ended)
	})
	f.scenario(t, "MarkBesideXA", func(t *testing.T, ctx context.Context) {
		ended = []int{1, 2, 4, 5, 6, 7, 8, 9}
		f.markBesideXA(t, ctx, ended)
	})
	f.scenario(t, "KillAllAfterTheEnd", func(t *testing.T, ctx context.Context) {
		primary := f.heal(t, ctx)
		f.killEach(t, ctx, append(f.others(primary), primary), nil, ended)
	})
	f.scenario(t, "KillAllWhilePrepared", func(t *testing.T, ctx context.Context) {
		primary := f.heal(t, ctx)
		inSession(t, ctx, f.local(t, primary), xa(10, "pending_10", "XA PREPARE '%s'")...)
		f.killEach(t, ctx, append(f.others(primary), primary), []string{"pending_10"}, ended)
		f.mustHavePreparedAgain(t)
	})
	f.scenario(t, "EndOnAnotherPrimary", func(t *testing.T, ctx context.Context) {
		ended = f.endOnOtherPrimaries(t, ctx, ended)
	})
}

// TestXAOnReplica: a client ends transactions on replicas that were prepared on the primary, which read-only does
// not stop. A rollback has no effect in the end, whether the replica is promoted or
// not. A commit makes the node errant.
func TestXAOnReplica(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3, ElectionTimeout: calm})
	primary := f.heal(t, t.Context())
	inSession(t, t.Context(), f.local(t, primary), "CREATE DATABASE quorate_xa", "CREATE TABLE "+xaTable+" (id INT PRIMARY KEY)")
	f.scenario(t, "Promoted", func(t *testing.T, ctx context.Context) {
		primary := f.heal(t, ctx)
		inSession(t, ctx, f.local(t, primary), xa(1, "promoted", "XA PREPARE '%s'")...)
		f.awaitXA(t, ctx, []string{"promoted"}, nil)
		for _, replica := range f.others(primary) {
			inSession(t, ctx, f.local(t, replica), "XA ROLLBACK 'promoted'")
		}
		if err := f.KillBoth(primary); err != nil {
			t.Fatal(err)
		}
		next, err := f.WaitPrimary(ctx, primary)
		if err != nil {
			t.Fatal(err)
		}
		inSession(t, ctx, f.local(t, next), "XA COMMIT 'promoted'")
		f.awaitXA(t, ctx, nil, []int{1})
	})
	f.scenario(t, "Replica", func(t *testing.T, ctx context.Context) {
		primary := f.heal(t, ctx)
		inSession(t, ctx, f.local(t, primary), xa(2, "replica", "XA PREPARE '%s'")...)
		f.awaitXA(t, ctx, []string{"replica"}, []int{1})
		inSession(t, ctx, f.local(t, f.others(primary)[0]), "XA ROLLBACK 'replica'")
		inSession(t, ctx, f.local(t, primary), "XA COMMIT 'replica'")
		f.awaitXA(t, ctx, nil, []int{1, 2})
		f.check(t, ctx)
	})
	f.scenario(t, "Refused", f.foreignXARefused)
	f.scenario(t, "Committed", f.foreignXACommit)
}

// foreignXARefused: a switchover does not go to a replica whose mysqld would have to start
// again, with writes closed.
func (f *fixture) foreignXARefused(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	target := f.others(primary)[0]
	inSession(t, ctx, f.local(t, primary), xa(3, "seen", "XA PREPARE '%s'", "XA ROLLBACK '%s'")...)
	f.awaitXA(t, ctx, nil, []int{1, 2})
	inSession(t, ctx, f.local(t, target), "XA START 'own'", "XA END 'own'", "XA ROLLBACK 'own'")
	awaitApplies := func() {
		t.Helper()
		if err := devcluster.Poll(ctx, "the target applies", func(ctx context.Context) (bool, string, error) {
			out, err := f.quorate(t, ctx, primary, "switchover", "--to", f.Name(target), "--dry-run")
			return err == nil, out, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	awaitApplies()
	f.refused(t, ctx, primary, []int{1}, "a client ended an XA transaction on this server", "switchover", "--to", f.Name(target), "--max-pause", "10s")
	f.must(t, ctx, target, "restart-mysqld", f.Name(target))
	f.heal(t, ctx)
	awaitApplies()
	f.must(t, ctx, primary, "switchover", "--to", f.Name(target), "--max-pause", "10s")
}

// foreignXACommit: XA COMMIT of a client's own transaction does no harm. XA COMMIT of a transaction that the applier had
// prepared makes the node errant until it is rebuilt.
func (f *fixture) foreignXACommit(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	replica := f.others(primary)[0]
	inSession(t, ctx, f.local(t, primary), "ALTER TABLE "+xaTable+" ADD b INT DEFAULT 10")
	f.awaitXA(t, ctx, nil, []int{1, 2})
	inSession(t, ctx, f.local(t, replica), "XA START 'own'", "SELECT * FROM "+xaTable, "XA END 'own'", "XA PREPARE 'own'", "XA COMMIT 'own'")
	inSession(t, ctx, f.local(t, primary), "XA START 'committed'", "UPDATE "+xaTable+" SET b = 20 WHERE id = 1", "XA END 'committed'", "XA PREPARE 'committed'")
	f.awaitXA(t, ctx, []string{"committed"}, []int{1, 2})
	for _, i := range f.others(primary) {
		if n := f.status(t, ctx, i); n.Role != status.RoleReplica {
			t.Fatalf("node %s is %s (%s) after a client's own XA COMMIT", n.Name, n.Role, n.Reason)
		}
	}
	uuid := f.status(t, ctx, replica).ServerUUID
	inSession(t, ctx, f.local(t, replica), "XA COMMIT 'committed'") // nothing of the log stops its applier
	errant := func(n status.Node) bool {
		return n.Role == status.RoleErrant && strings.Contains(n.Reason, "a client committed XA transactions on this replica")
	}
	if err := f.WaitNode(ctx, replica, "it is errant", errant); err != nil {
		t.Fatal(err)
	}
	if err := f.KillBoth(replica); err != nil {
		t.Fatal(err)
	}
	if err := f.Start(ctx, replica); err != nil {
		t.Fatal(err)
	}
	if err := f.WaitNode(ctx, replica, "it is errant still", errant); err != nil {
		t.Fatal(err)
	}
	inSession(t, ctx, f.local(t, primary), "XA ROLLBACK 'committed'")
	f.must(t, ctx, primary, "node", "rebuild", f.Name(replica), "--yes")
	if err := f.WaitNode(ctx, replica, "it is rebuilt", func(n status.Node) bool {
		return n.Role == status.RoleReplica && n.ServerUUID != uuid && n.Kind == cluster.KindFull
	}); err != nil {
		t.Fatal(err)
	}
	f.awaitXA(t, ctx, nil, []int{1, 2})
	f.check(t, ctx)
}

// xa returns the statements of an XA transaction that inserts row id.
func xa(id int, name string, ends ...string) (statements []string) {
	statements = []string{"XA START '" + name + "'", fmt.Sprintf("INSERT INTO %s VALUES (%d)", xaTable, id), "XA END '" + name + "'"}
	for _, end := range ends {
		statements = append(statements, fmt.Sprintf(end, name))
	}
	return statements
}

// prepareXA leaves a prepared transaction in the middle of the log and one at
// its end. What is between them comes to the applier a second time.
func (f *fixture) prepareXA(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	inSession(t, ctx, f.local(t, primary), "CREATE DATABASE quorate_xa", "CREATE TABLE "+xaTable+" (id INT PRIMARY KEY)")
	inSession(t, ctx, f.local(t, primary), xa(1, "pending_1", "XA PREPARE '%s'")...)
	inSession(t, ctx, f.local(t, primary), xa(2, "again", "XA PREPARE '%s'", "XA COMMIT '%s'")...)
	inSession(t, ctx, f.local(t, primary), xa(3, "again", "XA PREPARE '%s'", "XA ROLLBACK '%s'")...)
	inSession(t, ctx, f.local(t, primary), xa(4, "one_phase", "XA COMMIT '%s' ONE PHASE")...)
	inSession(t, ctx, f.local(t, primary), "DROP TABLE IF EXISTS quorate_xa.made_later", "CREATE TABLE quorate_xa.made_later (id INT PRIMARY KEY)",
		"INSERT INTO quorate_xa.made_later VALUES (1)")
	inSession(t, ctx, f.admin(t, primary), append([]string{"SET SESSION binlog_transaction_compression = ON"}, // dba may not
		xa(5, "again", "XA PREPARE '%s'", "XA COMMIT '%s'")...)...)
	l := f.start(t, 4)
	l.awaitAcks(t, ctx, 100)
	l.stop(t)
	inSession(t, ctx, f.local(t, primary), "INSERT INTO "+xaTable+" VALUES (6)")
	inSession(t, ctx, f.local(t, primary), xa(9, "pending_9", "XA PREPARE '%s'")...)
}

// markBesideXA keeps an XA transaction prepared at all times. The durable marks still follow, up to the oldest
// prepared one.
func (f *fixture) markBesideXA(t *testing.T, ctx context.Context, ended []int) {
	t.Helper()
	primary := f.heal(t, ctx)
	inSession(t, ctx, f.local(t, primary), xa(7, "mark_7", "XA PREPARE '%s'")...)
	l := f.start(t, 4)
	l.awaitAcks(t, ctx, 100)
	l.stop(t)
	inSession(t, ctx, f.local(t, primary), append(xa(8, "mark_8", "XA PREPARE '%s'"), "XA COMMIT 'mark_7'")...)
	prepared := f.status(t, ctx, primary).LogCommit
	f.awaitDurable(t, ctx, prepared-20, 0, 1, 2) // behind mark_7, which is 100 transactions before
	l = f.start(t, 4)
	l.awaitAcks(t, ctx, 100)
	l.stop(t)
	f.awaitDurable(t, ctx, f.status(t, ctx, primary).DurableMark, 0, 1, 2)
	if mark := f.status(t, ctx, primary).DurableMark; mark >= prepared {
		t.Errorf("the durable mark is at %d, behind what is prepared at %d or before", mark, prepared)
	}
	inSession(t, ctx, f.local(t, primary), "XA COMMIT 'mark_8'")
	f.awaitXA(t, ctx, nil, ended)
}

// TestXATooOld: the status names an XA transaction that nobody ends, and then the
// primary rolls it back, for all nodes, also if another primary had
// prepared it.
func TestXATooOld(t *testing.T) {
	beside(t)
	if !long() {
		t.Skip("waits for more than a minute: set QUORATE_E2E_LONG=1")
	}
	f := newFixture(t, devcluster.Options{Nodes: 3, XAPreparedMaxAge: time.Minute})
	f.scenario(t, "RolledBack", func(t *testing.T, ctx context.Context) {
		primary := f.heal(t, ctx)
		inSession(t, ctx, f.local(t, primary), "CREATE DATABASE quorate_xa", "CREATE TABLE "+xaTable+" (id INT PRIMARY KEY)")
		inSession(t, ctx, f.local(t, primary), xa(1, "forgotten", "XA PREPARE '%s'")...)
		if err := f.KillBoth(primary); err != nil {
			t.Fatal(err)
		}
		next, err := f.WaitPrimary(ctx, primary)
		if err != nil {
			t.Fatal(err)
		}
		f.awaitXA(t, ctx, []string{"forgotten"}, nil)
		if err := f.WaitNode(ctx, next, "the status names what is prepared", func(n status.Node) bool {
			return strings.Contains(n.PurgeBlocked, "XA transaction 'forgotten' is prepared since")
		}); err != nil {
			t.Fatal(err)
		}
		f.awaitAudit(t, ctx, next, "XA ROLLBACK 'forgotten'")
		f.awaitXA(t, ctx, nil, nil)
		f.mustHaveSameGTIDs(t, ctx)
		inSession(t, ctx, f.local(t, next), "INSERT INTO "+xaTable+" VALUES (1)") // the row that was locked
		f.awaitXA(t, ctx, nil, []int{1})
	})
}

// endOnOtherPrimaries kills the primary three times. Each time the next primary
// ends some transactions that others prepared, before the victim is back: all nodes get
// the end only if the primary has binlogged it. It returns the rows.
func (f *fixture) endOnOtherPrimaries(t *testing.T, ctx context.Context, ended []int) []int {
	t.Helper()
	primary := f.heal(t, ctx)
	before := f.dataIdentity(t, ctx)
	names := []string{"pending_10"}
	for id := 11; id <= 15; id++ {
		names = append(names, fmt.Sprintf("pending_%d", id))
		inSession(t, ctx, f.local(t, primary), xa(id, names[len(names)-1], "XA PREPARE '%s'")...)
	}
	f.awaitXA(t, ctx, names, ended)
	for n, kill := range []func(int) error{f.KillBoth, f.KillMysqld, f.KillAgent} {
		if err := kill(primary); err != nil {
			t.Fatal(err)
		}
		next, err := f.WaitPrimary(ctx, primary)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s was killed, %s ends two", f.Name(primary), f.Name(next))
		commit, rollback := 10+2*n, 11+2*n
		db := openDSN(t, f.DSN(next), nil) // the router
		inSession(t, ctx, db, fmt.Sprintf("XA COMMIT 'pending_%d'", commit), fmt.Sprintf("XA ROLLBACK 'pending_%d'", rollback))
		names, ended = names[2:], append(ended, commit)
		if len(names) == 0 {
			names = nil
		}
		f.awaitXA(t, ctx, names, ended)
		f.mustHaveSameGTIDs(t, ctx)
		primary = f.heal(t, ctx)
	}
	f.check(t, ctx)
	f.mustNotBeRebuilt(t, ctx, before)
	return ended
}

// mustHaveSameGTIDs waits until gtid_executed is the same on all nodes.
func (f *fixture) mustHaveSameGTIDs(t *testing.T, ctx context.Context) {
	t.Helper()
	if err := devcluster.Poll(ctx, "gtid_executed is the same on all nodes", func(ctx context.Context) (bool, string, error) {
		var sets []string
		for i := range f.Len() {
			db := f.local(t, i)
			var set string
			err := db.QueryRowContext(ctx, "SELECT @@GLOBAL.gtid_executed").Scan(&set)
			_ = db.Close()
			if err != nil {
				return false, "", err
			}
			sets = append(sets, set)
		}
		return len(slices.Compact(slices.Clone(sets))) == 1, fmt.Sprint(sets), nil
	}); err != nil {
		t.Fatal(err)
	}
}

// killEach kills each of the victims twice, and sees that all nodes have the
// prepared transactions and the rows afterwards.
func (f *fixture) killEach(t *testing.T, ctx context.Context, victims []int, prepared []string, rows []int) {
	t.Helper()
	before := f.dataIdentity(t, ctx)
	for _, victim := range victims {
		for _, kill := range []func(int) error{f.KillMysqld, f.KillBoth} {
			f.awaitXA(t, ctx, prepared, rows)
			if err := kill(victim); err != nil {
				t.Fatal(err)
			}
			f.heal(t, ctx)
		}
	}
	f.awaitXA(t, ctx, prepared, rows)
	f.check(t, ctx)
	f.mustNotBeRebuilt(t, ctx, before)
}

// mustHavePreparedAgain looks in the agents' logs for what a restarted node had
// to prepare again: without any, the kills have tested nothing.
func (f *fixture) mustHavePreparedAgain(t *testing.T) {
	t.Helper()
	n := 0
	for i := range f.Len() {
		text, err := os.ReadFile(f.Logs(i))
		if err != nil {
			t.Fatal(err)
		}
		n += len(regexp.MustCompile(`xa_again="?[0-9a-f]{8}-`).FindAll(text, -1))
	}
	if n == 0 {
		t.Error("no restarted node had lost a prepared transaction: the test has tested nothing")
	}
}

// inSession executes statements in one session and ends it: then the transactions that they prepared
// belong to no session.
func inSession(t *testing.T, ctx context.Context, db *sql.DB, statements ...string) {
	t.Helper()
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, stmt := range statements {
		if _, err := db.ExecContext(ctx, stmt); err != nil {
			t.Fatalf("%s: %v", stmt, err)
		}
	}
}

// awaitXA brings all nodes back and waits until each has the prepared
// transactions (by name, in order) and the rows.
func (f *fixture) awaitXA(t *testing.T, ctx context.Context, prepared []string, rows []int) {
	t.Helper()
	f.heal(t, ctx)
	for i := range f.Len() {
		db := f.local(t, i)
		if err := devcluster.Poll(ctx, "node "+f.Name(i)+" has what was prepared and what was committed", func(ctx context.Context) (bool, string, error) {
			gotPrepared, err := xaPrepared(ctx, db)
			if err != nil {
				return false, err.Error(), nil // its agent may not have noticed yet that it was killed
			}
			gotRows, err := xaRows(ctx, db)
			if err != nil {
				return false, err.Error(), nil // a replica may not have the database yet
			}
			diff := cmp.Diff(prepared, gotPrepared) + cmp.Diff(rows, gotRows)
			return diff == "", diff, nil
		}); err != nil {
			t.Fatal(err)
		}
		_ = db.Close()
	}
}

// xaPrepared returns the names of the prepared transactions.
func xaPrepared(ctx context.Context, db *sql.DB) (names []string, err error) {
	rows, err := db.QueryContext(ctx, "XA RECOVER")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var format, gtrid, bqual int
		var name string
		if err := rows.Scan(&format, &gtrid, &bqual, &name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names, rows.Err()
}

func xaRows(ctx context.Context, db *sql.DB) (ids []int, err error) {
	rows, err := db.QueryContext(ctx, "SELECT id FROM "+xaTable+" ORDER BY id")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id int
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}
