package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// TestRepair: what a cluster does by itself with a node whose data are useless, while
// writers write. Nobody gives a command.
func TestRepair(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3})
	f.scenario(t, "LostDisk", f.reseedLostDisk)
	f.scenario(t, "ErrantKept", f.errantKept)
	f.scenario(t, "Errant", f.rebuildErrant)
	f.scenario(t, "Away", f.rebuiltWhileAway)
	if long() {
		f.scenario(t, "RetainMax", f.retainMax)
		f.scenario(t, "RetainMaxFenced", f.retainMaxFenced)
	}
}

// awaitAudit waits for a line in a node's audit log.
func (f *fixture) awaitAudit(t *testing.T, ctx context.Context, i int, what string) {
	t.Helper()
	if err := devcluster.PollCommand(ctx, "the audit log has "+what, func(ctx context.Context) (bool, string, error) {
		out, err := f.quorate(t, ctx, i, "audit")
		return err == nil && strings.Contains(out, what), out, nil
	}); err != nil {
		t.Fatal(err)
	}
}

// awaitReason waits until the reason in a node's own status contains a text.
func (f *fixture) awaitReason(t *testing.T, ctx context.Context, i int, what string) {
	t.Helper()
	if err := f.WaitNode(ctx, i, "it says: "+what, func(n status.Node) bool {
		return strings.Contains(n.Reason, what)
	}); err != nil {
		t.Fatal(err)
	}
}

// reseedLostDisk: a node comes back with an empty disk. While maintenance is on it waits, and
// both its own status and the leader's say so. At the end OKs wait for it as before.
func (f *fixture) reseedLostDisk(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	i := (primary + 1) % 3
	f.must(t, ctx, primary, "node", "set", f.Name(i), "--weight", "7", "--require-ack", "--degrade", "drop-after=1s")
	uuid := f.status(t, ctx, i).ServerUUID
	f.must(t, ctx, primary, "maintenance", "on", "--reason", "new disks")
	load := f.start(t, 4, primary)
	if err := f.KillBoth(i); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(f.DataDir(i)); err != nil {
		t.Fatal(err)
	}
	if err := f.Start(ctx, i); err != nil {
		t.Fatal(err)
	}
	load.awaitAcks(t, ctx, 100)
	f.awaitReason(t, ctx, i, "empty data directory")
	// It says so once the node was silent for long enough to be rebuilt.
	f.awaitReason(t, ctx, primary, "node "+f.Name(i)+" is not rebuilt by itself: maintenance is on")
	if st, err := f.Status(ctx, primary); err != nil || st.Nodes[i].Kind != cluster.KindFull {
		t.Fatalf("in maintenance it is rebuilt: %v, %v", st.Nodes[i].Kind, err)
	}
	f.must(t, ctx, primary, "maintenance", "off")
	f.rebuilt(t, ctx, i, uuid)
	if n := f.status(t, ctx, i); n.RequireAck != "drop-after=1s" {
		t.Errorf("rebuilt, its require-ack is %q", n.RequireAck)
	}
	f.must(t, ctx, primary, "node", "set", f.Name(i), "--require-ack=false")
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	f.awaitAudit(t, ctx, primary, "rebuild node "+f.Name(i)+": it has come back with an empty data directory")
	f.heal(t, ctx)
	f.check(t, ctx)
}

// makeErrant gives a replica a transaction that the cluster never committed. Its agent is frozen
// meanwhile: it would end such a mysqld at once, and transactions that are not on disk by then (a replica
// syncs nothing) would be gone.
func (f *fixture) makeErrant(t *testing.T, ctx context.Context, i int) {
	t.Helper()
	db := f.admin(t, i)
	if err := f.PauseAgent(i); err != nil {
		t.Fatal(err)
	}
	for _, stmt := range []string{
		"SET GLOBAL rpl_semi_sync_source_enabled = OFF, GLOBAL super_read_only = OFF",
		"INSERT INTO quorate_demo.ledger (id, writer, seq, payload) VALUES ((1 << 60) + 1, 1 << 28, 1, 'through its own mysqld')",
		"FLUSH LOCAL ENGINE LOGS",
	} {
		if err := execute(ctx, db, stmt); err != nil {
			t.Fatalf("%s: %v", stmt, err)
		}
	}
	if err := f.ResumeAgent(i); err != nil {
		t.Fatal(err)
	}
}

// errantKept: with errant keep, the others do not keep the log for an errant node, because its mysqld
// will never apply anything again.
func (f *fixture) errantKept(t *testing.T, ctx context.Context) {
	f.segments(t, ctx)
	primary := f.heal(t, ctx)
	i, other := (primary+1)%3, (primary+2)%3
	f.must(t, ctx, primary, "node", "set", f.Name(i), "--weight", "6")
	f.must(t, ctx, primary, "node", "set", f.Name(i), "--weight", "7")
	uuid := f.status(t, ctx, i).ServerUUID
	f.makeErrant(t, ctx, i)
	if err := devcluster.Poll(ctx, "the others know that it is errant", func(ctx context.Context) (bool, string, error) {
		for _, n := range []int{primary, other} {
			st, err := f.Status(ctx, n)
			if err != nil {
				return false, fmt.Sprintf("%s does not answer: %v", f.Name(n), err), nil
			}
			if its := st.Nodes[i]; its.Role != status.RoleErrant {
				return false, fmt.Sprintf("%s says of it: %s, reachable %v, %s; mysqld %s has %s", f.Name(n), its.Role, its.Reachable, its.Reason, its.Mysqld, its.GTIDExecuted), nil
			}
		}
		return true, "", nil
	}); err != nil {
		t.Fatal(err)
	}
	had := f.status(t, ctx, primary).LogCommit
	load := f.start(t, 4, primary)
	for range 3 {
		load.awaitAcks(t, ctx, 50)
		if _, err := f.admin(t, primary).ExecContext(ctx, "FLUSH LOCAL BINARY LOGS"); err != nil {
			t.Fatal(err)
		}
	}
	f.awaitDurable(t, ctx, had+50, primary, other)
	f.awaitPurged(t, ctx, had, primary, other)
	f.must(t, ctx, primary, "node", "rebuild", f.Name(i), "--yes")
	f.rebuilt(t, ctx, i, uuid)
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	f.heal(t, ctx)
	f.check(t, ctx)
}

// awaitPurged purges the logs of nodes until none begins at an index or before.
func (f *fixture) awaitPurged(t *testing.T, ctx context.Context, index uint64, nodes ...int) {
	t.Helper()
	for _, n := range nodes {
		if err := devcluster.PollCommand(ctx, fmt.Sprintf("the log up to %d is purged on %s", index, f.Name(n)), func(ctx context.Context) (bool, string, error) {
			out, err := f.quorate(t, ctx, n, "log", "purge", "--yes", "--keep", "0")
			if err != nil {
				return false, out, nil
			}
			return f.status(t, ctx, n).LogFirst > index, out, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// rebuildErrant: the transactions that the node had beyond the log are saved, then the node is made again.
func (f *fixture) rebuildErrant(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	i := (primary + 2) % 3
	f.must(t, ctx, primary, "cluster", "set", "--errant", "rebuild")
	f.must(t, ctx, primary, "node", "set", f.Name(i), "--weight", "7")
	uuid := f.status(t, ctx, i).ServerUUID
	load := f.start(t, 4, primary)
	load.awaitAcks(t, ctx, 50)
	f.makeErrant(t, ctx, i)
	f.rebuilt(t, ctx, i, uuid)
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	f.awaitAudit(t, ctx, primary, "rebuild node "+f.Name(i)+": it is errant")
	if saves, err := filepath.Glob(filepath.Join(f.DataDir(i), "errant", "*", "saved.json")); err != nil || len(saves) != 1 {
		t.Errorf("saves: %v, %v", saves, err)
	}
	if s := f.status(t, ctx, i); s.Errant != "" {
		t.Errorf("after it was rebuilt it is errant: %s", s.Errant)
	}
	f.heal(t, ctx)
	f.check(t, ctx)
}

// rebuiltWhileAway: the others do not wait any more for a node that is away. They purge
// entries that it lacks. It comes back, with its old data, as a node that joins. (In retainMax
// the cluster does that by itself.)
func (f *fixture) rebuiltWhileAway(t *testing.T, ctx context.Context) {
	f.segments(t, ctx)
	primary := f.heal(t, ctx)
	i := (primary + 1) % 3
	f.must(t, ctx, primary, "node", "set", f.Name(i), "--weight", "6")
	f.must(t, ctx, primary, "node", "set", f.Name(i), "--weight", "7")
	uuid := f.status(t, ctx, i).ServerUUID
	if err := f.KillBoth(i); err != nil {
		t.Fatal(err)
	}
	had := f.status(t, ctx, primary).LogCommit
	load := f.start(t, 4, primary)
	for range 3 {
		load.awaitAcks(t, ctx, 50)
		if _, err := f.admin(t, primary).ExecContext(ctx, "FLUSH LOCAL BINARY LOGS"); err != nil {
			t.Fatal(err)
		}
	}
	f.awaitDurable(t, ctx, had+50, primary, (primary+2)%3)
	if out := f.must(t, ctx, primary, "log", "purge", "--yes", "--keep", "0"); f.status(t, ctx, primary).LogFirst > had {
		t.Fatalf("what a member lacks is purged: %s", out)
	}
	f.must(t, ctx, primary, "node", "rebuild", f.Name(i), "--yes")
	f.awaitPurged(t, ctx, had, primary, (primary+2)%3)
	if err := f.Start(ctx, i); err != nil {
		t.Fatal(err)
	}
	f.rebuilt(t, ctx, i, uuid)
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	f.heal(t, ctx)
	f.check(t, ctx)
	f.verifyLogs(t, ctx)
}

// retainMax: the log is longer than the bound because of a node that is away. The others stop waiting
// for it, and it is made again when it is back. The agents of the others were all
// started while it was away.
func (f *fixture) retainMax(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	i := (primary + 1) % 3
	for _, n := range f.others(i) { // they note once a minute what it needs
		if err := devcluster.Poll(ctx, "what it needs is noted", func(context.Context) (bool, string, error) {
			b, err := os.ReadFile(filepath.Join(f.DataDir(n), "heard.json"))
			return err == nil && strings.Contains(string(b), fmt.Sprintf("%q", fmt.Sprint(f.status(t, ctx, i).ID))), string(b), nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	uuid := f.retained(t, ctx, primary, i)
	if err := f.KillBoth(i); err != nil {
		t.Fatal(err)
	}
	f.restartOthers(t, ctx, i)
	f.givenUp(t, ctx, i, "it is away")
	if err := f.Start(ctx, i); err != nil {
		t.Fatal(err)
	}
	f.rebuilt(t, ctx, i, uuid)
	f.heal(t, ctx)
	f.check(t, ctx)
}

// retainMaxFenced: the same with a node that runs and was fenced by an operator. It keeps its
// data until it is unfenced.
func (f *fixture) retainMaxFenced(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	i := (primary + 1) % 3
	uuid := f.retained(t, ctx, primary, i)
	f.must(t, ctx, i, "fence", f.Name(i), "--reason", "somebody looks at its data")
	f.restartOthers(t, ctx, i) // a leader that had just rebuilt the node would wait ten minutes
	f.givenUp(t, ctx, i, "it is fenced")
	if saved, err := filepath.Glob(filepath.Join(f.DataDir(i), "mysql", "data", "ibdata1")); err != nil || len(saved) != 1 {
		t.Errorf("while it is fenced, its data are gone: %v, %v", saved, err)
	}
	f.must(t, ctx, i, "unfence", f.Name(i))
	f.rebuilt(t, ctx, i, uuid)
	f.heal(t, ctx)
	f.check(t, ctx)
}

// restartOthers starts the other nodes' agents again, one by one.
func (f *fixture) restartOthers(t *testing.T, ctx context.Context, i int) {
	t.Helper()
	for _, n := range f.others(i) {
		if err := f.KillBoth(n); err != nil {
			t.Fatal(err)
		}
		if err := f.Start(ctx, n); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WaitPrimary(ctx, i); err != nil {
			t.Fatal(err)
		}
	}
}

// retained bounds the log for a node, and returns its mysqld's UUID.
func (f *fixture) retained(t *testing.T, ctx context.Context, primary, i int) (uuid string) {
	t.Helper()
	f.must(t, ctx, primary, "cluster", "set", "--retain-max", "64MiB")
	f.must(t, ctx, primary, "node", "set", f.Name(i), "--weight", "6")
	f.must(t, ctx, primary, "node", "set", f.Name(i), "--weight", "7")
	return f.status(t, ctx, i).ServerUUID
}

// givenUp makes the log longer than the bound, and waits until a node has lost its vote
// for that and what it lacks is purged.
func (f *fixture) givenUp(t *testing.T, ctx context.Context, i int, why string) {
	t.Helper()
	primary, err := f.WaitPrimary(ctx, i)
	if err != nil {
		t.Fatal(err)
	}
	had := f.status(t, ctx, primary).LogCommit
	db := f.local(t, primary)
	for _, stmt := range []string{"CREATE DATABASE IF NOT EXISTS quorate_wide", "CREATE TABLE IF NOT EXISTS quorate_wide.t (id INT AUTO_INCREMENT PRIMARY KEY, b LONGBLOB)"} {
		if err := execute(ctx, db, stmt); err != nil {
			t.Fatal(err)
		}
	}
	for range 7 { // staged: each is a segment of its own
		if err := execute(ctx, db, "INSERT INTO quorate_wide.t (b) VALUES (REPEAT('x', 12 << 20))"); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	if err := devcluster.Poll(ctx, "it has no vote any more", func(ctx context.Context) (bool, string, error) {
		st, err := f.Status(ctx, primary)
		return err == nil && st.Nodes[i].Kind == cluster.KindLearner, "it has", nil
	}); err != nil {
		t.Fatal(err)
	}
	t.Logf("not waited for any more %.0f s after the log had grown", time.Since(began).Seconds())
	f.awaitAudit(t, ctx, primary, "rebuild node "+f.Name(i)+": "+why)
	f.awaitPurged(t, ctx, had, primary)
}
