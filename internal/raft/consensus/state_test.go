package consensus

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/quorate/quorate/internal/cluster"
)

// nodesOf returns how many nodes a script has. In a script about members, the fourth node is no member at
// first.
func nodesOf(path string) int {
	if strings.HasPrefix(filepath.Base(path), "members") {
		return 4
	}
	return 3
}

func testMember(i int) cluster.Member {
	m := cluster.Member{
		ID: cluster.NodeID(i), Name: fmt.Sprint("n", i), Peer: fmt.Sprint("n", i, ":1"), Kind: cluster.KindFull, Weight: cluster.WeightDefault,
	}
	if i > 3 {
		m.Kind, m.Weight = cluster.KindLearner, 0
	}
	return m
}

// doState asks a node for changes, all of them before any is committed. Or it makes the node keep its state, as
// in a file.
//
//	change node=1 weights=(7,8)
//	members node=1 op=promote name=(n4) [weights=(7)]
func (w *world) doState(d *datadriven.TestData, id uint64) {
	m := w.node(id)
	if d.Cmd == "keep" {
		p := m.g.Committed().State()
		m.point = &p
		return
	}
	var op string
	d.MaybeScanArgs(w.t, "op", &op)
	for _, key := range []string{"weights", "name"} {
		for _, arg := range d.CmdArgs {
			if arg.Key != key {
				continue
			}
			for _, text := range arg.Vals {
				c := testMembership(op, text)
				if key == "weights" {
					c = testWeight(w.t, text)
				}
				if err := m.g.ProposeState(w.now, c); err != nil {
					m.refused = append(m.refused, err.Error())
				}
			}
		}
	}
	w.settle()
}

func testWeight(t *testing.T, text string) cluster.Change {
	var weight int
	if _, err := fmt.Sscan(text, &weight); err != nil {
		t.Fatal(err)
	}
	return testChange(text, "n2", weight)
}

func testMembership(op, name string) cluster.Change {
	c := cluster.MembershipChange{Op: cluster.MembershipOp(op), Name: name, Kind: cluster.KindFull}
	if c.Op == cluster.OpAdd {
		c.ID, c.Peer = 4, name+":1"
	}
	if c.Op == cluster.OpRebuild || op == "promote-rebuilt" {
		c.Instance = "new"
	}
	if op == "promote-rebuilt" {
		c.Op = cluster.OpPromote
	}
	return cluster.Change{ID: op + name, By: "ann@db1", Membership: &c}
}

func testChange(id, node string, weight int) cluster.Change {
	return cluster.Change{ID: id, By: "ann@db1", Node: &cluster.NodeChange{Name: node, Weight: &weight}}
}

// describeState adds the cluster state as the node knows it, if that ever changed.
func (m *member) describeState(b *strings.Builder) {
	for _, o := range m.outcomes {
		fmt.Fprintf(b, "\n   entry %d: %s, applied %t", o.Index, o.Change, o.Ignored == nil)
	}
	m.outcomes = nil
	if p := m.g.Committed().State(); p.State.Version > 0 {
		fmt.Fprintf(b, "\n   state %d of entry %d: weight of n2 is %d", p.State.Version, p.Index, p.State.Members[1].Weight)
		if config := m.g.rn.Status().Config.String(); config != "voters=(1 2 3)" {
			fmt.Fprintf(b, "; %s", config)
		}
	}
}

// TestProposeState: every node hears of a change, and the node that asked gets the outcome.
func TestProposeState(t *testing.T) {
	ctx := testContext(t)
	ns := startNodes(t)
	leader := ns.leader(ctx)
	follower := ns.all[0]
	if follower == leader {
		follower = ns.all[1]
	}
	c := testChange("1", "n2", 7)
	if _, err := follower.ProposeState(ctx, c); !errors.Is(err, ErrNotLeader) {
		t.Errorf("a follower said %v", err)
	}
	if err := leader.Barrier(ctx); err != nil { // it has committed something of its own term then
		t.Fatal(err)
	}
	if err := follower.CheckState(ctx, c); !errors.Is(err, ErrNotLeader) {
		t.Errorf("asked whether it could be, a follower said %v", err)
	}
	if err := leader.CheckState(ctx, c); err != nil || leader.Committed().State().State.Version != 0 {
		t.Errorf("asked whether it could be, the leader said %v, and has version %d", err, leader.Committed().State().State.Version)
	}
	o, err := leader.ProposeState(ctx, c)
	if err != nil || o.Ignored != nil || o.State.Version != 1 {
		t.Fatalf("outcome %+v, %v", o, err)
	}
	for _, n := range ns.all {
		for p, changed := n.Committed().StateChanged(); p.State.Version == 0; p, changed = n.Committed().StateChanged() {
			select {
			case <-changed:
			case <-ctx.Done():
				t.Fatal("a node never heard of the change")
			}
		}
	}
	if _, err := leader.ProposeState(ctx, testChange("2", "n9", 7)); err == nil || !strings.Contains(err.Error(), `no node "n9"`) {
		t.Errorf("an unknown node: %v", err)
	}
	for _, n := range ns.all {
		if n != leader {
			ns.dead[n.cfg.Self].Store(true)
		}
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := leader.ProposeState(short, testChange("3", "n2", 8)); !errors.Is(err, ErrUncertain) {
		t.Errorf("without a majority: %v", err)
	}
}

// TestStateWaiters: the number of waiting callers is limited.
func TestStateWaiters(t *testing.T) {
	var w stateWaiters
	for i := range stateWaitersMax {
		if _, err := w.add(fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.add("x"); !errors.Is(err, ErrNotReady) {
		t.Errorf("one too many: %v", err)
	}
	w.remove("0")
	c, err := w.add("x")
	if err != nil {
		t.Fatal(err)
	}
	w.answer(StateOutcome{StateChange: cluster.StateChange{Change: cluster.Change{ID: "y"}}})
	w.answer(StateOutcome{Index: 3, StateChange: cluster.StateChange{Change: cluster.Change{ID: "x"}}})
	<-c.done
	if o := w.remove("x"); o == nil || o.Index != 3 {
		t.Errorf("got %+v", o)
	}
	if c, err = w.add("z"); err != nil {
		t.Fatal(err)
	}
	w.stop()
	<-c.done
	if o := w.remove("z"); o != nil {
		t.Errorf("got %+v from a node that has stopped", o)
	}
}

// TestStateBehindTheLog: a log that begins after the last entry that the state includes is refused, because a
// change may have been between.
func TestStateBehindTheLog(t *testing.T) {
	cfg := GroupConfig{Log: purgedLog{first: 11}, State: &cluster.StatePoint{Through: 9}}
	if _, err := firstPoint(cfg); err == nil || !strings.Contains(err.Error(), "up to index 9, the log begins at 11") {
		t.Errorf("error %v", err)
	}
	cfg.State.Through = 10
	if _, err := firstPoint(cfg); err != nil {
		t.Error(err)
	}
}

type purgedLog struct {
	Log
	first uint64
}

func (l purgedLog) FirstIndex() uint64 { return l.first }
