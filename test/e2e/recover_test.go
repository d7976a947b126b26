package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/agent/recovery"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/testkit/devcluster"
	"github.com/quorate/quorate/internal/testkit/ledger"
)

// recoverArgs are the arguments of the command, without --accept-loss.
var recoverArgs = []string{"recover", "--force-new-cluster"}

// TestRecover: a majority is gone for good, and a remaining node goes on, by command.
func TestRecover(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3, Network: true})
	f.scenario(t, "Lagging", f.recoverLagging)
}

// TestRecoverComplete: the survivor has everything, so nothing is lost. A node whose
// disk is gone becomes a member again under its name.
func TestRecoverComplete(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3})
	f.scenario(t, "Complete", f.recoverComplete)
}

// TestRecoverLogger: only the logger is left. It has the log, from which a full node is
// made.
func TestRecoverLogger(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3, Loggers: 1})
	f.scenario(t, "Logger", f.recoverLogger)
}

// TestRecoverApart: a node is recovered by mistake, cut off from a majority that runs.
// That does not end the majority, whatever happens to its nodes next.
func TestRecoverApart(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3, Network: true})
	f.scenario(t, "Apart", f.recoverApart)
}

// TestRecoverApartRebuilt: after the mistake the recovered node also orders the others to be rebuilt.
func TestRecoverApartRebuilt(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3, Network: true})
	f.scenario(t, "Rebuilt", f.recoverApartRebuilt)
}

// TestRecoverTakenBack: the others have obeyed, and made their data again. Their former data
// are kept, and an operator can go back to them.
func TestRecoverTakenBack(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3, Network: true})
	f.scenario(t, "TakenBack", f.recoverTakenBack)
}

// TestRefused: a node comes back with an older data directory. Its status says which nodes refuse it. It
// cannot be recovered beside them, and a rebuild makes it a member again.
func TestRefused(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3})
	f.scenario(t, "OlderData", f.refusedOlderData)
	f.scenario(t, "OlderCopy", f.endsOnOlderCopy)
}

// endsOnOlderCopy: a node comes back with an older copy of its own data directory. Its agent ends
// as soon as the leader tells it what it has acknowledged, and the node is rebuilt on command.
func (f *fixture) endsOnOlderCopy(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	i := (primary + 1) % 3
	older := f.DataDir(i) + ".older"
	if err := f.Terminate(ctx, i); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(ctx, "cp", "-a", f.DataDir(i), older).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := f.Start(ctx, i); err != nil {
		t.Fatal(err)
	}
	f.heal(t, ctx)
	newer := f.start(t, 2, primary)
	newer.awaitAcks(t, ctx, 50)
	newer.stop(t)
	f.heal(t, ctx)
	if err := errors.Join(f.Terminate(ctx, i), os.RemoveAll(f.DataDir(i)), os.Rename(older, f.DataDir(i)), f.Start(ctx, i)); err != nil {
		t.Fatal(err)
	}
	f.awaitExit(t, ctx, i, "this node's log lacks entries that it has acknowledged")
	f.must(t, ctx, primary, "node", "rebuild", f.Name(i), "--yes")
	if err := f.Start(ctx, i); err != nil { // as its unit does
		t.Fatal(err)
	}
	f.awaitReturn(t, ctx, i)
	f.awaitVoter(t, ctx, primary, i)
	f.heal(t, ctx)
	f.check(t, ctx)
}

func (f *fixture) refusedOlderData(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	i := (primary + 1) % 3
	older := f.DataDir(i) + ".older"
	if err := errors.Join(f.Terminate(ctx, i), os.Rename(f.DataDir(i), older)); err != nil {
		t.Fatal(err)
	}
	f.returnEmpty(t, ctx, primary, i)
	if err := errors.Join(f.Terminate(ctx, i), os.RemoveAll(f.DataDir(i)), os.Rename(older, f.DataDir(i)), f.Start(ctx, i)); err != nil {
		t.Fatal(err)
	}
	f.awaitTold(t, ctx, i, 3, "node "+f.Name(i)+": ", " run, and refuse this node: ", "comes with another data directory", "no leader: waiting for a majority")
	if err := f.Terminate(ctx, i); err != nil {
		t.Fatal(err)
	}
	out, err := f.quorate(t, ctx, i, slices.Concat(recoverArgs, []string{"--accept-loss", "none"})...)
	if exitCode(err) != 2 || !strings.Contains(out, "a majority of the 3 voters may run without the data of this node") ||
		!strings.Contains(out, "no other node says what it has") || strings.Contains(out, "make sure that these nodes are off") {
		t.Errorf("recover: %v, %s", err, out)
	}
	if err := f.Start(ctx, i); err != nil {
		t.Fatal(err)
	}
	f.must(t, ctx, primary, "node", "rebuild", f.Name(i), "--yes")
	f.awaitReturn(t, ctx, i)
	f.awaitVoter(t, ctx, primary, i)
	f.heal(t, ctx)
	f.check(t, ctx)
}

// found runs the command only for its findings.
func (f *fixture) found(t *testing.T, ctx context.Context, i int) (v recovery.Verdict) {
	t.Helper()
	out, _ := f.quorate(t, ctx, i, slices.Concat(recoverArgs, []string{"--dry-run", "--json"})...)
	if err := json.NewDecoder(strings.NewReader(out)).Decode(&v); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return v
}

// recoverLagging recovers a node that lacks acknowledged transactions, when no other node
// is left. Then the former members come back.
func (f *fixture) recoverLagging(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	lagging, other := (primary+1)%3, (primary+2)%3
	before := f.start(t, 2, primary)
	before.awaitAcks(t, ctx, 100)
	before.stop(t)
	f.heal(t, ctx)
	f.Isolate(lagging)
	lost := f.start(t, 2, primary)
	lost.awaitAcks(t, ctx, 50)
	kept := len(f.history)
	lost.stop(t)
	for n := kept; n < len(f.history); n++ { // these rows may be lost
		f.history[n].Outcome = ledger.Unknown
	}
	for _, i := range []int{lagging, primary} {
		if err := f.KillBoth(i); err != nil {
			t.Fatal(err)
		}
	}
	f.MendAll()
	if err := f.WaitNode(ctx, other, "without a leader", func(n status.Node) bool { return n.Leader == 0 }); err != nil {
		t.Fatal(err)
	}
	f.recoverWithWitness(t, ctx, lagging, other)
	if err := f.KillBoth(other); err != nil {
		t.Fatal(err)
	}
	if v := f.found(t, ctx, lagging); v.Lacking != "" || len(v.Unknown) != 2 || len(v.Objections) != 0 {
		t.Errorf("with nobody there it finds %+v", v)
	}
	out := f.must(t, ctx, lagging, slices.Concat(recoverArgs, []string{"--accept-loss", "none"})...)
	if !strings.Contains(out, "is cluster dev now, alone") || !strings.Contains(out, "which ones is not known") {
		t.Errorf("recover: %s", out)
	}
	if err := f.Start(ctx, lagging); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WaitPrimary(ctx); err != nil {
		t.Fatal(err)
	}
	after := f.start(t, 2, lagging)
	after.awaitAcks(t, ctx, 50)
	after.stop(t)
	f.checkNodes(t, ctx, lagging)
	audit := f.audited(t, ctx, lagging)
	if last := audit[len(audit)-1]; !strings.Contains(last.What, "recover --force-new-cluster on node "+f.Name(lagging)) ||
		!strings.Contains(last.What, "lacking what only ") || last.By == "" {
		t.Errorf("audit: %+v", last)
	}
	f.return2(t, ctx, lagging, other, primary)
}

// recoverWithWitness: a node that answers has more. With it there is a majority,
// which needs no recovery.
func (f *fixture) recoverWithWitness(t *testing.T, ctx context.Context, lagging, witness int) {
	t.Helper()
	v := f.found(t, ctx, lagging)
	if v.LackingCount == 0 || len(v.Objections) != 2 || !v.Objections[0].Final || len(v.Unknown) != 1 {
		t.Fatalf("it finds %+v", v)
	}
	newer := "node " + f.Name(witness) + " has a newer log: recover on that node"
	for _, args := range [][]string{nil, {"--dry-run"}, {"--accept-loss", v.Lacking}} {
		out, err := f.quorate(t, ctx, lagging, slices.Concat(recoverArgs, args)...)
		if exitCode(err) != 2 || !strings.Contains(out, newer) || !strings.Contains(out, v.Lacking) || !strings.Contains(out, "there is nothing to recover") {
			t.Errorf("recover %v: %v, %s", args, err, out)
		}
	}
}

// return2: two former members, which were a majority, both come back. They serve nothing, say
// what they have, and become members again.
func (f *fixture) return2(t *testing.T, ctx context.Context, survivor int, old ...int) {
	t.Helper()
	has := regexp.MustCompile(`the recovered cluster lacks [1-9][0-9]* of its transactions: [0-9a-f-]{36}:`)
	for _, i := range old {
		if err := f.Start(ctx, i); err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range old {
		if err := f.WaitNode(ctx, i, "out", func(n status.Node) bool {
			if n.Role == status.RolePrimary || n.Role == status.RolePromoting {
				t.Errorf("node %s is %s", f.Name(i), n.Role)
			}
			return n.Role == status.RoleRemoved && strings.Contains(n.Reason, "was recovered on node "+f.Name(survivor)) && has.MatchString(n.Reason)
		}); err != nil {
			t.Fatal(err)
		}
		if pid := f.MysqldPID(i); pid != 0 {
			t.Errorf("the mysqld of node %s runs", f.Name(i))
		}
	}
	f.refused(t, ctx, survivor, []int{2}, "quorate node rebuild "+f.Name(old[0]), "node", "add", f.Name(old[0]), "--peer", "127.0.0.1:1")
	load := f.start(t, 2, survivor)
	for _, i := range old {
		f.must(t, ctx, survivor, "node", "rebuild", f.Name(i), "--yes")
		if err := f.WaitReady(ctx, i); err != nil {
			t.Fatal(err)
		}
		f.awaitVoter(t, ctx, survivor, i)
	}
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	f.heal(t, ctx)
	f.check(t, ctx)
	if err := f.KillBoth(survivor); err != nil { // it is a cluster of three again
		t.Fatal(err)
	}
	if _, err := f.WaitPrimary(ctx, survivor); err != nil {
		t.Fatal(err)
	}
	f.heal(t, ctx)
	f.check(t, ctx)
}

// awaitVoter waits until a node shows another one as a full node.
func (f *fixture) awaitVoter(t *testing.T, ctx context.Context, on, i int) {
	t.Helper()
	if err := devcluster.Poll(ctx, f.Name(i)+" has its vote", func(ctx context.Context) (bool, string, error) {
		st, err := f.Status(ctx, on)
		if err != nil {
			return false, err.Error(), nil
		}
		for _, n := range st.Nodes {
			if n.Name == f.Name(i) {
				return n.Kind == cluster.KindFull, string(n.Kind) + " " + string(n.Role) + " " + n.Reason, nil
			}
		}
		return false, "it is no member", nil
	}); err != nil {
		t.Fatal(err)
	}
}

// recoverApart: the majority refuses the recovery. Then all of its nodes crash, and a node
// that has not heard of the recovery starts.
func (f *fixture) recoverApart(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	apart, other := (primary+1)%3, (primary+2)%3
	load := f.start(t, 2, primary, other)
	load.awaitAcks(t, ctx, 50)
	f.Isolate(apart)
	load.awaitAcks(t, ctx, 50)
	f.recoverAlone(t, ctx, apart, primary, other)
	f.MendAll()
	f.awaitRefusal(t, ctx, primary)
	f.awaitRefusal(t, ctx, other)
	f.awaitRefused(t, ctx, apart)
	load.awaitAcks(t, ctx, 50)
	for _, i := range []int{primary, other} {
		if err := f.KillBoth(i); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Start(ctx, other); err != nil { // alone, told so, and without a leader
		t.Fatal(err)
	}
	f.awaitRefusal(t, ctx, other)
	if err := f.Start(ctx, primary); err != nil {
		t.Fatal(err)
	}
	leader, err := f.WaitPrimary(ctx, apart)
	if err != nil {
		t.Fatal(err)
	}
	load.awaitAcks(t, ctx, 50)
	follower := primary + other - leader
	if err := f.Terminate(ctx, follower); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(f.DataDir(follower), "refused.json")); err != nil {
		t.Fatal(err)
	}
	if err := f.Start(ctx, follower); err != nil { // as if it had not heard of it before
		t.Fatal(err)
	}
	f.awaitRefusal(t, ctx, follower)
	if err := f.WaitReady(ctx, follower); err != nil {
		t.Fatal(err)
	}
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	f.checkNodes(t, ctx, primary, other)
	load = f.start(t, 2, primary, other)
	// The recovered side was the mistake: its node is made again.
	if err := f.KillBoth(apart); err != nil {
		t.Fatal(err)
	}
	f.returnEmpty(t, ctx, primary, apart)
	load.stop(t)
	f.heal(t, ctx)
	f.check(t, ctx)
	for i := range f.Len() {
		if n := f.status(t, ctx, i); strings.Contains(n.Reason, "recover") {
			t.Errorf("node %s says still: %s", f.Name(i), n.Reason)
		}
	}
}

// recoverApartRebuilt: the others get orders to be rebuilt, before any of them has heard of the
// recovery, and then one is removed. They obey neither.
func (f *fixture) recoverApartRebuilt(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	apart, other := (primary+1)%3, (primary+2)%3
	load := f.start(t, 2, primary, other)
	load.awaitAcks(t, ctx, 50)
	f.Isolate(apart)
	load.awaitAcks(t, ctx, 50)
	f.recoverAlone(t, ctx, apart, primary, other)
	for _, i := range []int{primary, other} {
		f.must(t, ctx, apart, "node", "rebuild", f.Name(i), "--yes")
	}
	f.MendAll()
	for _, i := range []int{primary, other} {
		f.awaitLog(t, ctx, i, "is to be rebuilt")
		f.awaitRefusal(t, ctx, i)
	}
	load.awaitAcks(t, ctx, 50)
	f.must(t, ctx, apart, "node", "remove", f.Name(other), "--yes")
	if err := f.KillBoth(other); err != nil { // it hears of the removal as it starts, without a leader
		t.Fatal(err)
	}
	if err := f.Start(ctx, other); err != nil {
		t.Fatal(err)
	}
	f.awaitLog(t, ctx, other, "was removed from cluster")
	f.awaitRefusal(t, ctx, other)
	if err := f.WaitReady(ctx, other); err != nil {
		t.Fatal(err)
	}
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	f.checkNodes(t, ctx, primary, other)
}

// recoverTakenBack: the whole majority was down when its nodes hear of a recovery apart from
// it, and of orders to be rebuilt there. The nodes cannot tell that from a right recovery.
func (f *fixture) recoverTakenBack(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	apart, other := (primary+1)%3, (primary+2)%3
	load := f.start(t, 2, primary, other)
	load.awaitAcks(t, ctx, 50)
	f.Isolate(apart)
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	f.recoverAlone(t, ctx, apart, primary, other)
	atOnce(t, []int{primary, other}, f.KillBoth)
	for _, i := range []int{primary, other} {
		f.must(t, ctx, apart, "node", "rebuild", f.Name(i), "--yes")
	}
	f.MendAll()
	for _, i := range []int{primary, other} {
		if err := f.Start(ctx, i); err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range []int{primary, other} {
		f.awaitReturn(t, ctx, i)
		f.awaitVoter(t, ctx, apart, i)
	}
	old := f.status(t, ctx, primary).Old
	if len(old) != 1 || !strings.HasSuffix(old[0].Dir, "-recovered") {
		t.Fatalf("it keeps %+v", old)
	}
	atOnce(t, []int{0, 1, 2}, f.KillBoth)
	mine := f.DataDir(primary) + ".of-before"
	if err := errors.Join(os.Rename(old[0].Dir, mine), os.RemoveAll(f.DataDir(primary)), os.Rename(mine, f.DataDir(primary))); err != nil {
		t.Fatal(err)
	}
	f.must(t, ctx, primary, slices.Concat(recoverArgs, []string{"--accept-loss", "none"})...)
	if err := f.Start(ctx, primary); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WaitPrimary(ctx); err != nil {
		t.Fatal(err)
	}
	f.checkNodes(t, ctx, primary)
	for _, i := range []int{apart, other} {
		f.returnEmpty(t, ctx, primary, i)
	}
	load = f.start(t, 2)
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	f.heal(t, ctx)
	f.check(t, ctx)
}

// returnEmpty brings a stopped node back with an empty data directory, by a command at node
// by, and waits until it has its vote.
func (f *fixture) returnEmpty(t *testing.T, ctx context.Context, by, i int) {
	t.Helper()
	if err := os.RemoveAll(f.DataDir(i)); err != nil {
		t.Fatal(err)
	}
	f.must(t, ctx, by, "node", "rebuild", f.Name(i), "--yes")
	if err := f.Start(ctx, i); err != nil {
		t.Fatal(err)
	}
	f.awaitReturn(t, ctx, i)
	f.awaitVoter(t, ctx, by, i)
}

// awaitLog waits until a node's agent has logged something.
func (f *fixture) awaitLog(t *testing.T, ctx context.Context, i int, what string) {
	t.Helper()
	if err := devcluster.Poll(ctx, f.Name(i)+" has logged "+what, func(context.Context) (bool, string, error) {
		text, err := os.ReadFile(f.Logs(i))
		return strings.Contains(string(text), what), "it has not", err
	}); err != nil {
		t.Fatal(err)
	}
}

// recoverAlone recovers a node that is cut off.
func (f *fixture) recoverAlone(t *testing.T, ctx context.Context, i int, others ...int) {
	t.Helper()
	if err := f.KillBoth(i); err != nil {
		t.Fatal(err)
	}
	f.must(t, ctx, i, slices.Concat(recoverArgs, []string{"--accept-loss", "none"})...)
	if err := f.Start(ctx, i); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WaitPrimary(ctx, others...); err != nil {
		t.Fatal(err)
	}
}

// awaitRefused waits until a node that was recovered by mistake says that it is refused,
// and checks that all nodes warn of two sides.
func (f *fixture) awaitRefused(t *testing.T, ctx context.Context, apart int) {
	t.Helper()
	if err := f.WaitNode(ctx, apart, "refused", func(n status.Node) bool {
		return strings.Contains(n.Reason, "refused by ") && strings.Contains(n.Reason, "stop this agent now")
	}); err != nil {
		t.Fatal(err)
	}
	for i := range f.Len() {
		if f.metric(t, ctx, i, "quorate_recovered_apart") != 1 {
			t.Errorf("the metrics of %s do not show two sides", f.Name(i))
		}
		st, err := f.Status(ctx, i)
		if err != nil || len(st.Summary) == 0 || st.Summary[0].Level != status.LevelAlarm || !strings.HasPrefix(st.Summary[0].Text, "TWO SIDES MAY TAKE WRITES") || st.Own().Level != status.LevelAlarm {
			t.Errorf("the status of %s does not begin with the two sides: %+v, %v", f.Name(i), st.Summary, err)
		}
	}
}

// awaitRefusal waits until a node says that it refuses a recovery. The node must not obey that
// recovery at any time.
func (f *fixture) awaitRefusal(t *testing.T, ctx context.Context, i int) {
	t.Helper()
	if err := f.WaitNode(ctx, i, "refusing", func(n status.Node) bool {
		if n.Role == status.RoleRemoved {
			t.Errorf("node %s is out: %s", f.Name(i), n.Reason)
		}
		return strings.Contains(n.Reason, "this node refuses that recovery")
	}); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) recoverComplete(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	survivor, other := (primary+1)%3, (primary+2)%3
	load := f.start(t, 2)
	load.awaitAcks(t, ctx, 100)
	// With the other one dead the survivor is in every majority.
	if err := f.KillBoth(other); err != nil {
		t.Fatal(err)
	}
	load.awaitAcks(t, ctx, 100)
	out, err := f.quorate(t, ctx, survivor, slices.Concat(recoverArgs, []string{"--accept-loss", "none"})...)
	if exitCode(err) != 2 || !strings.Contains(out, "in use by another quorate agent: stop that agent first") {
		t.Errorf("recover beside the agent: %v, %s", err, out)
	}
	if err := f.KillBoth(survivor); err != nil {
		t.Fatal(err)
	}
	load.stop(t)
	// One of three nodes: the cluster must know that it no longer leads.
	if err := f.KillBoth(primary); err != nil {
		t.Fatal(err)
	}
	f.must(t, ctx, survivor, slices.Concat(recoverArgs, []string{"--accept-loss", "none"})...)
	if err := f.Start(ctx, survivor); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WaitPrimary(ctx); err != nil {
		t.Fatal(err)
	}
	load = f.start(t, 2, survivor)
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	f.checkNodes(t, ctx, survivor)
	if err := os.RemoveAll(f.DataDir(other)); err != nil {
		t.Fatal(err)
	}
	f.must(t, ctx, survivor, "node", "rebuild", f.Name(other), "--yes")
	if err := f.Start(ctx, other); err != nil {
		t.Fatal(err)
	}
	f.awaitReturn(t, ctx, other)
	f.awaitVoter(t, ctx, survivor, other)
	f.checkNodes(t, ctx, survivor, other)
	if out := f.must(t, ctx, survivor, "status"); !strings.Contains(out, "RECOVERED on "+f.Name(survivor)) || !strings.Contains(out, "without "+f.Name(primary)) {
		t.Errorf("status: %s", out)
	}
	f.must(t, ctx, survivor, "node", "remove", f.Name(primary), "--yes")
	if err := f.Start(ctx, primary); err != nil {
		t.Fatal(err)
	}
	if err := f.WaitNode(ctx, primary, "removed", func(n status.Node) bool { return n.Role == status.RoleRemoved }); err != nil {
		t.Fatal(err)
	}
	if out := f.must(t, ctx, survivor, "status"); strings.Contains(out, "RECOVERED") {
		t.Errorf("status: %s", out)
	}
}

// awaitReturn waits until a node's agent, which may start again once, is ready.
func (f *fixture) awaitReturn(t *testing.T, ctx context.Context, i int) {
	t.Helper()
	if err := f.WaitReady(ctx, i); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) recoverLogger(t *testing.T, ctx context.Context) {
	f.heal(t, ctx)
	load := f.start(t, 2)
	load.awaitAcks(t, ctx, 50)
	// With one full node dead the logger is in every majority.
	primary, err := f.WaitPrimary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.KillBoth(1 - primary); err != nil {
		t.Fatal(err)
	}
	load.awaitAcks(t, ctx, 50)
	if err := f.KillBoth(primary); err != nil {
		t.Fatal(err)
	}
	load.stop(t)
	if err := f.Terminate(ctx, 2); err != nil {
		t.Fatal(err)
	}
	f.must(t, ctx, 2, slices.Concat(recoverArgs, []string{"--accept-loss", "none"})...)
	if err := f.Start(ctx, 2); err != nil {
		t.Fatal(err)
	}
	if err := f.WaitNode(ctx, 2, "leading", func(n status.Node) bool { return n.Leader == n.ID }); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if err := os.RemoveAll(f.DataDir(i)); err != nil {
			t.Fatal(err)
		}
		f.must(t, ctx, 2, "node", "rebuild", f.Name(i), "--yes")
		if err := f.Start(ctx, i); err != nil {
			t.Fatal(err)
		}
		f.awaitReturn(t, ctx, i)
		f.awaitVoter(t, ctx, 2, i)
	}
	load = f.start(t, 2)
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	f.heal(t, ctx)
	f.check(t, ctx)
}

// exitCode is the exit code of a program; -1 if it did not run.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	return -1
}
