package consensus

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/raft/entry"
)

// takeAcks notes up to which index may be acknowledged.
func (m *member) takeAcks(out Output) {
	if out.Role != nil {
		m.acked = 0
	}
	if out.Acknowledge > 0 {
		m.acked = out.Acknowledge
	}
	for _, e := range out.AckEvents {
		m.ackEvents = append(m.ackEvents, fmt.Sprintf("%s dropped=%t", e.Node, e.Dropped))
	}
}

// ackWorld has three nodes, of which the first leads and has opened its epoch.
func ackWorld(t *testing.T, changes ...cluster.Change) *world {
	w := newWorld(t, 3)
	w.node(1).g.campaign()
	w.settle()
	for _, c := range changes {
		w.change(1, c)
	}
	w.propose(1, entry.Header{Kind: entry.KindEpoch, Term: 1})
	return w
}

func (w *world) change(id uint64, c cluster.Change) {
	w.t.Helper()
	c.ID = "x"
	if err := w.node(id).g.ProposeState(w.now, c); err != nil {
		w.t.Fatal(err)
	}
	w.settle()
}

// wantAcks checks the index up to which a leader has committed, and the index up to which it acknowledges.
func (w *world) wantAcks(what string, id, committed, acked uint64) {
	w.t.Helper()
	m := w.node(id)
	if c := m.g.Committed().Mark().Index; c != committed || m.acked != acked {
		w.t.Fatalf("%s: node %d has committed %d and acknowledges %d, want %d and %d", what, id, c, m.acked, committed, acked)
	}
}

func (w *world) transaction(id, term, number uint64) {
	w.propose(id, entry.Header{Kind: entry.KindTransactions, Term: term, Number: number})
}

func requireC(after time.Duration) cluster.Change {
	return cluster.Change{Node: &cluster.NodeChange{Name: "n3", RequireAck: new(true), DropAfter: &after}}
}

func TestMajorityAcknowledgesWhatIsCommitted(t *testing.T) {
	w := ackWorld(t)
	w.mute[3] = true
	w.transaction(1, 1, 1)
	w.wantAcks("one follower says nothing", 1, 3, 3)
	if st := w.node(1).g.Acks(); st != nil {
		t.Errorf("ACKs wait: %+v", st)
	}
}

// TestAcksWaitForTheDisks: a commit does not wait for a missing voter, but its ACK does.
func TestAcksWaitForTheDisks(t *testing.T) {
	w := ackWorld(t, cluster.Change{Durability: new(cluster.DurabilityAll)})
	w.transaction(1, 1, 1)
	w.wantAcks("all are there", 1, 4, 4)
	w.mute[3] = true
	w.transaction(1, 1, 2)
	w.run(10 * time.Second)
	w.wantAcks("one says nothing", 1, 5, 4)
	if st := w.node(1).g.Acks(); st == nil || len(st.Waiting) != 1 || st.Waiting[0].Node != "n3" || st.Waiting[0].Entries != 1 || st.Waiting[0].Seconds < 9 {
		t.Errorf("its status says %+v", st)
	}
	clear(w.mute)
	w.run(time.Second)
	w.wantAcks("it says it", 1, 5, 5)
}

// TestAcksWaitForANodeThatIsRebuilt: while the node has no vote, its answers may be about the data that it
// gives up.
func TestAcksWaitForANodeThatIsRebuilt(t *testing.T) {
	w := ackWorld(t, requireC(0))
	w.change(1, testMembership("rebuild", "n3"))
	w.run(time.Second)
	w.transaction(1, 1, 1)
	w.run(time.Second)
	m, last := w.node(1), w.committed(1)
	if m.acked >= last || w.committed(3) != last {
		t.Fatalf("node 3 has committed %d of %d, acknowledged is %d", w.committed(3), last, m.acked)
	}
	w.change(1, testMembership("promote-rebuilt", "n3"))
	w.run(time.Second)
	if m.acked != w.committed(1) {
		t.Errorf("it has its vote again: acknowledged is %d of %d", m.acked, w.committed(1))
	}
}

// TestPolicyChangesWhileAcksWait: a laxer policy releases the waiting ACKs. A stricter one takes none back.
func TestPolicyChangesWhileAcksWait(t *testing.T) {
	w := ackWorld(t, cluster.Change{Durability: new(cluster.DurabilityAll)})
	w.mute[3] = true
	w.transaction(1, 1, 1)
	w.wantAcks("all", 1, 4, 3)
	w.change(1, cluster.Change{Durability: new(cluster.DurabilityMajority)})
	w.wantAcks("majority", 1, 5, 5)
	w.change(1, cluster.Change{Durability: new(cluster.DurabilityAll)})
	w.wantAcks("all again", 1, 6, 5)
	w.transaction(1, 1, 2)
	w.wantAcks("a transaction under it", 1, 7, 5)
}

// TestNewLeaderKnowsNothingOfTheDisks: the acknowledgements that the former leader had heard do not count.
func TestNewLeaderKnowsNothingOfTheDisks(t *testing.T) {
	w := ackWorld(t, cluster.Change{Durability: new(cluster.DurabilityAll)})
	w.transaction(1, 1, 1)
	w.wantAcks("the first leader", 1, 4, 4)
	w.cut[1], w.mute[1] = true, true
	w.run(5 * time.Second)
	leader := uint64(w.node(2).g.Role().Leader)
	if leader != 2 && leader != 3 {
		t.Fatalf("node %d leads", leader)
	}
	w.wantAcks("the next leader", leader, 5, 0)
	clear(w.cut)
	w.run(5 * time.Second)
	w.wantAcks("node 1 says nothing", leader, 5, 0)
	clear(w.mute)
	w.run(time.Second)
	w.wantAcks("node 1 has said it", leader, 5, 5)
}

// TestRequireAckIsDropped: after a time, not before, never silently, and until the
// node has caught up.
func TestRequireAckIsDropped(t *testing.T) {
	w := ackWorld(t, requireC(2*time.Second))
	w.run(time.Second)
	w.transaction(1, 1, 1)
	w.wantAcks("all are there", 1, 4, 4)
	w.cut[3] = true
	w.transaction(1, 1, 2)
	w.run(1900 * time.Millisecond)
	w.wantAcks("it is cut off", 1, 5, 4)
	w.run(200 * time.Millisecond)
	w.wantAcks("it is dropped", 1, 5, 5)
	w.transaction(1, 1, 3)
	w.wantAcks("nothing waits for it", 1, 6, 6)
	if st := w.node(1).g.Acks(); st == nil || len(st.Waiting) != 0 || len(st.Dropped) != 1 || st.Dropped[0].Entries != 2 {
		t.Errorf("its status says %+v", st)
	}
	clear(w.cut)
	w.run(2 * time.Second)
	w.mute[3] = true
	w.transaction(1, 1, 4)
	w.wantAcks("it is back", 1, 7, 6)
	w.node(1).g.Resign(1)
	w.settle()
	if d := cmp.Diff([]string{"n3 dropped=true", "n3 dropped=false"}, w.node(1).ackEvents); d != "" {
		t.Errorf("what was told (-want +got):\n%s", d)
	}
}

// TestDropEndsWithTheLeader: a new leader has to drop the node itself, and the end of the former drop is
// reported.
func TestDropEndsWithTheLeader(t *testing.T) {
	w := ackWorld(t, requireC(time.Second))
	w.cut[3] = true
	w.transaction(1, 1, 1)
	w.run(1500 * time.Millisecond)
	w.wantAcks("dropped", 1, 4, 4)
	w.node(1).g.TransferTo(1, 2)
	w.settle()
	w.wantAcks("the next leader", 2, 5, 0)
	if d := cmp.Diff([]string{"n3 dropped=true", "n3 dropped=false"}, w.node(1).ackEvents); d != "" {
		t.Errorf("what was told (-want +got):\n%s", d)
	}
	w.run(1500 * time.Millisecond)
	w.wantAcks("it drops, too", 2, 5, 5)
}

// TestStandstillDropsNobody: a leader that stood still has heard no node, and drops none for that.
func TestStandstillDropsNobody(t *testing.T) {
	w := ackWorld(t, requireC(time.Second))
	w.run(time.Second)
	w.now += time.Minute
	w.run(100 * time.Millisecond)
	if events := w.node(1).ackEvents; len(events) > 0 {
		t.Errorf("it told %v", events)
	}
}
