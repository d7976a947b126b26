package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// TestMembersGrow: a cluster of three becomes one of five and of three again, while
// writers write and nodes die.
func TestMembersGrow(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3})
	f.scenario(t, "Add", f.addNodes)
	f.scenario(t, "Remove", f.removeNodes)
}

// TestMembersWrongAddress: a node is added under an address that is not its own. Both
// sides say so, and it is corrected by a command.
func TestMembersWrongAddress(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3})
	f.scenario(t, "Corrected", f.addWronglyAddressed)
	f.scenario(t, "Moved", f.voterMoves)
}

func (f *fixture) addWronglyAddressed(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	const wrong = "127.0.0.1:1"
	d := f.waiting(t, ctx, cluster.KindFull)
	f.must(t, ctx, primary, "node", "add", f.Name(d), "--peer", wrong, "--key", string(f.Key(d)))
	set := "node set " + f.Name(d) + " --peer " + f.PeerAddr(d)
	for i, want := range map[int]string{
		primary: f.Name(d) + ": " + f.Name(primary) + " cannot reach it at " + wrong + " (connection refused); it says that it listens on " + f.PeerAddr(d) + ": \"quorate " + set,
		d:       "the other nodes look for this node at " + wrong + ", and it listens on " + f.PeerAddr(d),
	} {
		if err := devcluster.Poll(ctx, f.Name(i)+" says that the address is wrong", func(ctx context.Context) (bool, string, error) {
			out, _ := f.quorate(t, ctx, i, "status") // it knows of no primary
			return strings.Contains(out, want) && strings.Contains(out, set), out, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if out := f.must(t, ctx, primary, "node", "list"); !strings.Contains(out, wrong) || strings.Contains(out, f.PeerAddr(d)) {
		t.Errorf("node list: %s", out)
	}
	f.refused(t, ctx, primary, []int{2}, "is not the host:port", "node", "set", f.Name(d), "--peer", "7400")
	f.must(t, ctx, primary, strings.Fields(set)...)
	f.awaitMember(t, ctx, f.Name(d), cluster.KindFull)
	f.check(t, ctx)
}

// waiting makes a node and starts its agent, which waits to be added.
func (f *fixture) waiting(t *testing.T, ctx context.Context, kind cluster.Kind) int {
	t.Helper()
	i, err := f.Grow(kind)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Start(ctx, i); err != nil {
		t.Fatal(err)
	}
	if err := f.WaitNode(ctx, i, "waiting to be added", func(n status.Node) bool {
		return n.Role == status.RoleJoining && strings.Contains(n.Reason, "quorate node add "+f.Name(i))
	}); err != nil {
		t.Fatal(err)
	}
	return i
}

// grow makes a node and starts its agent, and then adds it.
func (f *fixture) grow(t *testing.T, ctx context.Context, kind cluster.Kind) int {
	t.Helper()
	i := f.waiting(t, ctx, kind)
	f.must(t, ctx, f.runningBut(t, i), "node", "add", f.Name(i), "--peer", f.PeerAddr(i), "--key", string(f.Key(i)), "--kind", string(kind))
	began := time.Now()
	f.joining = func() {
		t.Logf("%s has joined as a %s: %.1f s after it was added", f.Name(i), kind, time.Since(began).Seconds())
	}
	return i
}

// runningBut is a node other than node i whose agent runs. Which agents run depends
// on which node happened to lead when a scenario stopped one.
func (f *fixture) runningBut(t *testing.T, i int) int {
	t.Helper()
	for n := range f.Len() {
		if n != i && f.AgentPID(n) != 0 {
			return n
		}
	}
	t.Fatalf("no agent runs beside the one of %s", f.Name(i))
	return 0
}

// awaitMember waits until every running node shows a node as a member of a kind.
func (f *fixture) awaitMember(t *testing.T, ctx context.Context, name string, kind cluster.Kind) {
	t.Helper()
	for i := range f.Len() {
		if f.AgentPID(i) == 0 {
			continue
		}
		if err := devcluster.Poll(ctx, fmt.Sprintf("%s shows %s as %q", f.Name(i), name, kind), func(ctx context.Context) (bool, string, error) {
			st, err := f.Status(ctx, i)
			if err != nil {
				return false, err.Error(), nil
			}
			for _, n := range st.Nodes {
				if n.Name == name {
					return n.Kind == kind, fmt.Sprintf("%s %s: %s", n.Kind, n.Role, n.Reason), nil
				}
			}
			return false, "it shows none", nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if f.joining != nil {
		f.joining()
		f.joining = nil
	}
}

func (f *fixture) addNodes(t *testing.T, ctx context.Context) {
	load := f.start(t, 2)
	load.awaitAcks(t, ctx, 100)
	f.refused(t, ctx, 0, []int{2}, "node b has a vote", "node", "promote", "b")
	f.writeLarge(t, ctx)
	d := f.grow(t, ctx, cluster.KindFull)
	f.awaitMember(t, ctx, f.Name(d), cluster.KindFull)
	load.awaitAcks(t, ctx, 100)
	db := f.local(t, d)
	if err := devcluster.Poll(ctx, "the large row is there", func(ctx context.Context) (bool, string, error) {
		var length int
		err := db.QueryRowContext(ctx, "SELECT LENGTH(b) FROM quorate_wide.t").Scan(&length)
		return length == 12<<20, fmt.Sprintf("%d bytes, %v", length, err), nil
	}); err != nil {
		t.Fatal(err)
	}
	e := f.grow(t, ctx, cluster.KindLogger)
	f.awaitMember(t, ctx, f.Name(e), cluster.KindLogger)
	load.awaitAcks(t, ctx, 100)
	// Of five nodes two may die, and two of the old ones are no majority of all.
	primary := f.heal(t, ctx)
	doomed := []int{primary, (primary + 1) % 3}
	for _, i := range doomed {
		if err := f.KillBoth(i); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.WaitPrimary(ctx, doomed...); err != nil {
		t.Fatal(err)
	}
	load.awaitAcks(t, ctx, 100)
	f.heal(t, ctx)
	load.stop(t)
	f.check(t, ctx)
}

// writeLarge commits a transaction that is beside the log's entries: a node that copies the
// log must copy it, too.
func (f *fixture) writeLarge(t *testing.T, ctx context.Context) {
	t.Helper()
	primary, err := f.WaitPrimary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	db := f.local(t, primary)
	for _, q := range []string{"CREATE DATABASE quorate_wide", "CREATE TABLE quorate_wide.t (id INT PRIMARY KEY, b LONGBLOB)",
		"INSERT INTO quorate_wide.t VALUES (1, REPEAT('x', 12 << 20))"} {
		if _, err := db.ExecContext(ctx, q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
}

func (f *fixture) removeNodes(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	load := f.start(t, 4, primary)
	load.awaitAcks(t, ctx, 50)
	f.refused(t, ctx, 0, []int{1}, "leads: move the primary", "node", "remove", f.Name(primary), "--yes")
	follower := (primary + 1) % 3
	if out := f.must(t, ctx, primary, "node", "remove", f.Name(follower), "--dry-run"); !strings.Contains(out, "it could be done now") {
		t.Errorf("dry run: %s", out)
	}
	if out := f.must(t, ctx, follower, "node", "remove", f.Name(follower), "--yes"); !strings.Contains(out, "\nnote: after that the voters are ") {
		t.Errorf("remove: %s", out)
	}
	if err := f.WaitNode(ctx, follower, "removed", func(n status.Node) bool { return n.Role == status.RoleRemoved }); err != nil {
		t.Fatal(err)
	}
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	// The host of the primary is gone, and is removed while it is down.
	if err := f.KillBoth(primary); err != nil {
		t.Fatal(err)
	}
	next, err := f.WaitPrimary(ctx, primary, follower)
	if err != nil {
		t.Fatal(err)
	}
	f.must(t, ctx, next, "node", "remove", f.Name(primary), "--yes")
	load = f.start(t, 4, next)
	load.awaitAcks(t, ctx, 50)
	if err := f.Start(ctx, primary); err != nil {
		t.Fatal(err)
	}
	if err := f.WaitNode(ctx, primary, "removed", func(n status.Node) bool { return n.Role == status.RoleRemoved }); err != nil {
		t.Fatal(err)
	}
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	if out := f.must(t, ctx, next, "node", "list"); strings.Contains(out, "\n"+f.Name(primary)+" ") || strings.Contains(out, "\n"+f.Name(follower)+" ") {
		t.Errorf("node list: %s", out)
	}
	var left []int
	for _, i := range f.Full() {
		if i != primary && i != follower {
			left = append(left, i)
		}
	}
	f.checkNodes(t, ctx, left...)
	f.learner(t, ctx, next, left)
}

// learner adds a node without a vote. It gets no vote, has everything, and nothing waits when
// it dies.
func (f *fixture) learner(t *testing.T, ctx context.Context, primary int, left []int) {
	t.Helper()
	i, err := f.Grow(cluster.KindLearner)
	if err != nil {
		t.Fatal(err)
	}
	f.must(t, ctx, primary, "node", "add", f.Name(i), "--peer", f.PeerAddr(i), "--key", string(f.Key(i)), "--kind", "learner")
	if err := f.Start(ctx, i); err != nil { // added first, this time
		t.Fatal(err)
	}
	if err := f.WaitReady(ctx, i); err != nil {
		t.Fatal(err)
	}
	load := f.start(t, 4, primary)
	load.awaitAcks(t, ctx, 100)
	if s := f.status(t, ctx, i); s.Kind != cluster.KindLearner {
		t.Errorf("it is a %s", s.Kind)
	}
	if err := f.KillBoth(i); err != nil {
		t.Fatal(err)
	}
	load.awaitAcks(t, ctx, 50)
	if err := f.Start(ctx, i); err != nil {
		t.Fatal(err)
	}
	if err := f.WaitReady(ctx, i); err != nil {
		t.Fatal(err)
	}
	load.stop(t)
	f.checkNodes(t, ctx, append(left, i)...)
}

// TestMembersClone: nodes join, under load, whose logs cannot go back to the beginning,
// and are killed on their way; once the leader dies in between. Their agents run as root, but their mysqlds
// do not.
func TestMembersClone(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3, MySQLUser: otherAccount()})
	f.scenario(t, "Purge", f.purgeForClone)
	f.scenario(t, "Clone", f.cloneNode)
	f.scenario(t, "Killed", f.cloneKilled)
}

// purgeForClone purges the beginning of every log.
func (f *fixture) purgeForClone(t *testing.T, ctx context.Context) {
	f.segments(t, ctx)
	primary := f.heal(t, ctx)
	f.awaitDurable(t, ctx, f.status(t, ctx, primary).LogCommit/2, 0, 1, 2)
	for i := range f.Len() {
		f.must(t, ctx, i, "log", "purge", "--yes", "--keep", "0")
		if s := f.status(t, ctx, i); s.LogFirst < 2 {
			t.Fatalf("the log of %s begins at %d", f.Name(i), s.LogFirst)
		}
	}
}

func (f *fixture) cloneNode(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	load := f.start(t, 2)
	load.awaitAcks(t, ctx, 50)
	d := f.grow(t, ctx, cluster.KindFull)
	if err := f.WaitNode(ctx, d, "copying data", func(n status.Node) bool {
		if n.Seed != nil && n.Seed.Phase == status.SeedData && n.Seed.From == f.Name(primary) {
			t.Errorf("it copies from the primary")
		}
		return n.Seed != nil && n.Seed.Phase == status.SeedData || n.Role == status.RoleReplica // a look may come too late
	}); err != nil {
		t.Fatal(err)
	}
	f.awaitMember(t, ctx, f.Name(d), cluster.KindFull)
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	if s := f.status(t, ctx, d); s.LogFirst < 2 {
		t.Errorf("the log of %s begins at %d", f.Name(d), s.LogFirst)
	}
	f.heal(t, ctx)
	f.check(t, ctx)
	f.verifyLogs(t, ctx)
}

// cloneKilled kills the joiner in each phase, and the leader in one.
func (f *fixture) cloneKilled(t *testing.T, ctx context.Context) {
	load := f.start(t, 2)
	e := f.grow(t, ctx, cluster.KindFull)
	began := time.Now()
	again := func() {
		t.Helper()
		t.Logf("%.1f s: killed", time.Since(began).Seconds())
		if err := f.KillAgent(e); err != nil {
			t.Fatal(err)
		}
		if err := f.Start(ctx, e); err != nil {
			t.Fatal(err)
		}
	}
	for _, phase := range []status.SeedPhase{status.SeedData, status.SeedLog} {
		if err := f.WaitNode(ctx, e, "in phase "+string(phase), func(n status.Node) bool {
			return n.Seed != nil && n.Seed.Phase == phase || n.Role != status.RoleJoining && n.LogCommit > 0
		}); err != nil {
			t.Fatal(err)
		}
		again()
	}
	if err := f.WaitNode(ctx, e, "copying data", func(n status.Node) bool { return n.Seed == nil || n.Seed.Phase == status.SeedData }); err != nil {
		t.Fatal(err)
	}
	primary, err := f.WaitPrimary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.KillBoth(primary); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WaitPrimary(ctx, primary); err != nil {
		t.Fatal(err)
	}
	f.heal(t, ctx)
	f.awaitMember(t, ctx, f.Name(e), cluster.KindFull)
	again()
	f.heal(t, ctx)
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	f.check(t, ctx)
	f.verifyLogs(t, ctx)
}

// TestMembersRebuild: a node's data are made again, on command, while writers write.
func TestMembersRebuild(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3})
	f.scenario(t, "Running", f.rebuildRunning)
	f.scenario(t, "LostDisk", f.rebuildLostDisk)
	f.scenario(t, "LostLog", f.rebuildLostLog)
	f.scenario(t, "LeaderDies", f.changeWhileLeaderDies)
}

// rebuilt waits until a node is what it was, with another server UUID than before.
func (f *fixture) rebuilt(t *testing.T, ctx context.Context, i int, uuid string) {
	t.Helper()
	if err := f.WaitNode(ctx, i, "rebuilt", func(n status.Node) bool {
		return n.Role == status.RoleReplica && n.ServerUUID != uuid && n.Kind == cluster.KindFull && n.Weight == 7
	}); err != nil {
		t.Fatal(err)
	}
	f.awaitMember(t, ctx, f.Name(i), cluster.KindFull)
}

func (f *fixture) rebuildRunning(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	load := f.start(t, 2)
	load.awaitAcks(t, ctx, 100)
	i := (primary + 1) % 3
	f.must(t, ctx, i, "node", "set", f.Name(i), "--weight", "7")
	f.refused(t, ctx, i, []int{1}, "leads: move the primary", "node", "rebuild", f.Name(primary), "--yes")
	uuid := f.status(t, ctx, i).ServerUUID
	f.must(t, ctx, primary, "node", "rebuild", f.Name(i), "--yes")
	f.rebuilt(t, ctx, i, uuid)
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	f.check(t, ctx)
	f.keptOld(t, ctx, i)
}

// keptOld: a node's data from before its rebuild are still there, and its status says
// where. Their log is sound.
func (f *fixture) keptOld(t *testing.T, ctx context.Context, i int) {
	t.Helper()
	old := f.status(t, ctx, i).Old
	if len(old) != 1 || old[0].Bytes == 0 || filepath.Dir(filepath.Dir(old[0].Dir)) != f.DataDir(i) {
		t.Fatalf("the status says %+v", old)
	}
	for _, name := range []string{"identity.json", "cluster.json", "peers.json", "mysql/data/ibdata1"} {
		if _, err := os.Stat(filepath.Join(old[0].Dir, name)); err != nil {
			t.Error(err)
		}
	}
	verify := exec.CommandContext(ctx, os.Getenv(binaryVariable), "log", "verify", "--dir", filepath.Join(old[0].Dir, "log"))
	if out, err := verify.CombinedOutput(); err != nil {
		t.Errorf("log verify: %v: %s", err, out)
	}
	if out := f.must(t, ctx, i, "status"); !strings.Contains(out, "its data from before the rebuild: ") || !strings.Contains(out, old[0].Dir) {
		t.Errorf("status: %s", out)
	}
}

// rebuildLostDisk: the cluster refuses a node that comes back with nothing, until it
// is told to rebuild it.
func (f *fixture) rebuildLostDisk(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	i := (primary + 1) % 3
	f.must(t, ctx, primary, "cluster", "set", "--reseed", "manual")
	f.must(t, ctx, primary, "node", "set", f.Name(i), "--weight", "6")
	f.must(t, ctx, primary, "node", "set", f.Name(i), "--weight", "7")
	uuid := f.status(t, ctx, i).ServerUUID
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
	if err := devcluster.Poll(ctx, "the node is refused", func(context.Context) (bool, string, error) {
		return f.AgentPID(i) == 0, "it runs", nil
	}); err != nil {
		t.Fatal(err)
	}
	f.must(t, ctx, primary, "node", "rebuild", f.Name(i), "--yes")
	if err := f.Start(ctx, i); err != nil {
		t.Fatal(err)
	}
	f.rebuilt(t, ctx, i, uuid)
	for _, want := range []string{"node " + f.Name(i) + ": weight 6", "rebuild node " + f.Name(i)} { // of when it had nothing
		if lines := f.changesOf(t, ctx, i); !slices.ContainsFunc(lines, func(l cluster.AuditEntry) bool { return l.What == want }) {
			t.Errorf("its audit log has no %q: %+v", want, lines)
		}
	}
	f.awaitSameHistory(t, ctx) // of what it was itself before, too
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	if now := f.heal(t, ctx); now != primary {
		t.Logf("the primary was %s, is %s", f.Name(primary), f.Name(now))
	}
	f.check(t, ctx)
}

// rebuildLostLog: a node whose log is gone, or cannot be healed, ends, until it is told to be rebuilt. What it had is
// kept in old/.
func (f *fixture) rebuildLostLog(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	i := (primary + 1) % 3
	f.must(t, ctx, primary, "node", "set", f.Name(i), "--weight", "7")
	log := filepath.Join(f.DataDir(i), "log")
	for _, spoil := range []func() error{
		func() error { return os.Rename(log, filepath.Join(f.DataDir(i), "moved-away")) },
		func() error { return os.Truncate(filepath.Join(log, "state"), 700) },
	} {
		uuid := f.status(t, ctx, i).ServerUUID
		if err := f.KillBoth(i); err != nil {
			t.Fatal(err)
		}
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if err := f.Start(ctx, i); err != nil {
			t.Fatal(err)
		}
		if err := devcluster.Poll(ctx, "the node ends", func(context.Context) (bool, string, error) {
			return f.AgentPID(i) == 0, "it runs", nil
		}); err != nil {
			t.Fatal(err)
		}
		out := f.must(t, ctx, primary, "node", "rebuild", f.Name(i), "--yes")
		if !strings.Contains(out, "will be rebuilt") || !strings.Contains(out, f.Name(i)+" is not heard of: it is rebuilt once its agent runs") {
			t.Errorf("the command says %s", out)
		}
		if out := f.must(t, ctx, primary, "status"); !strings.Contains(out, f.Name(i)+": to be rebuilt") {
			t.Errorf("the status does not say that it is to be rebuilt: %s", out)
		}
		if err := f.Start(ctx, i); err != nil {
			t.Fatal(err)
		}
		f.rebuilt(t, ctx, i, uuid)
	}
	f.check(t, ctx)
}

// changeWhileLeaderDies: the leader is killed while the voters change. Afterwards all nodes
// agree whether the change was made, and the members can be changed again.
func (f *fixture) changeWhileLeaderDies(t *testing.T, ctx context.Context) {
	load := f.start(t, 2)
	for round := range 3 {
		primary := f.heal(t, ctx)
		i, via := (primary+1)%3, (primary+2)%3
		asked := make(chan string, 1)
		go func() {
			out, err := f.quorate(t, ctx, via, "node", "demote", f.Name(i))
			asked <- fmt.Sprintf("%s (%v)", strings.TrimSpace(out), err)
		}()
		if round > 0 { // else before it was asked
			if err := devcluster.Poll(ctx, "the change is under way", func(ctx context.Context) (bool, string, error) {
				st, err := f.Status(ctx, primary)
				return err == nil && st.Nodes[i].Kind == cluster.KindLearner, "it is not", nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.KillBoth(primary); err != nil {
			t.Fatal(err)
		}
		f.heal(t, ctx)
		t.Log(<-asked)
		f.heal(t, ctx)
		// Through another change all nodes have the same state; with its vote the node
		// is what it was.
		f.must(t, ctx, via, "node", "set", f.Name(via), "--site", fmt.Sprint("round", round))
		st, err := f.Status(ctx, via)
		if err != nil {
			t.Fatal(err)
		}
		f.awaitMember(t, ctx, f.Name(i), st.Nodes[i].Kind)
		if st.Nodes[i].Kind == cluster.KindLearner {
			f.must(t, ctx, via, "node", "promote", f.Name(i))
			f.awaitMember(t, ctx, f.Name(i), cluster.KindFull)
		}
	}
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	f.heal(t, ctx)
	f.check(t, ctx)
}
