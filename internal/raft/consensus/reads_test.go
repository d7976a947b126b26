package consensus

import (
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
)

// TestLeaderThatCannotCommit: both followers answer heartbeats, but their disks accept nothing. What the leader
// asks raft for meanwhile must not pile up, neither in memory nor in the messages that it sends when the disks
// have space again.
func TestLeaderThatCannotCommit(t *testing.T) {
	w := newWorld(t, 3)
	w.mute[2], w.mute[3] = true, true
	w.node(1).g.campaign()
	w.settle()
	m := w.node(1)
	if !m.g.Role().Leading {
		t.Fatal("node 1 does not lead")
	}
	for id := range uint64(10_000) {
		m.g.StartBarrier(id)
		w.run(testTick)
	}
	if r := m.g.Role(); !r.Leading || r.Term != 1 || m.g.LeaseUntil() > 0 {
		t.Fatalf("%+v, lease until %v: nothing is tested", r, m.g.LeaseUntil())
	}
	clear(w.mute)
	m.sent, m.answered = 0, nil
	for range 4 * testHeartbeat {
		w.run(testTick)
	}
	if w.now >= m.g.LeaseUntil() {
		t.Error("it has no lease, and its followers answer")
	}
	// These are the rounds, heartbeats and appends of 16 ticks, and the barriers that may wait.
	if most := 2 * (4*testHeartbeat*3 + barriersMax); m.sent > most {
		t.Errorf("%d messages were sent, at most %d are due", m.sent, most)
	}
	if len(m.answered) == 0 || len(m.answered) > barriersMax {
		t.Errorf("%d barriers were answered, at most %d may wait", len(m.answered), barriersMax)
	}
	m.answered = nil
	m.g.StartBarrier(1 << 20)
	w.run(10 * time.Millisecond)
	if len(m.answered) != 1 {
		t.Errorf("a barrier that was asked for now got %d answers", len(m.answered))
	}
}

// TestFirstLeaseComesWithTheFirstCommit: work that waited for the lease begins at once, and not at the next
// tick, because a failover waits for both.
func TestFirstLeaseComesWithTheFirstCommit(t *testing.T) {
	w := newWorld(t, 3)
	w.run(testTick)
	m := w.node(1)
	m.g.campaign()
	for !m.g.Role().Leading {
		w.turn()
	}
	m.g.StartBarrier(7)
	w.settle()
	if len(m.answered) != 1 || m.answered[0].ID != 7 || m.g.LeaseUntil() != w.now+m.g.promise() {
		t.Errorf("without another tick: barriers %v, lease until %v", m.answered, m.g.LeaseUntil())
	}
}

// TestAskWaitsForTheNextRound: what a follower asks, again and again, costs no heartbeats. The next round answers it if a
// majority answers that round.
func TestAskWaitsForTheNextRound(t *testing.T) {
	w := ledWorld(t, 3)
	heartbeats := 0
	w.carries = func(m *pb.Message) bool {
		if m.GetType() == pb.MsgHeartbeat {
			heartbeats++
		}
		return true
	}
	const rounds = 10
	asked := uint64(0)
	for range rounds * testHeartbeat {
		asked++
		w.node(2).g.AskLeader(asked)
		w.node(3).g.AskLeader(asked)
		w.run(testTick)
	}
	if heartbeats > 2*(rounds+1) {
		t.Errorf("%d heartbeats in %d rounds of two peers", heartbeats, rounds)
	}
	for _, id := range []uint64{2, 3} { // the newest question of each round
		if n := len(w.node(id).answered); n < rounds-1 || n > rounds {
			t.Errorf("node %d got %d answers in %d rounds", id, n, rounds)
		}
	}

	w.node(2).answered = nil
	leader := w.node(1)
	w.carries = func(m *pb.Message) bool { return m.GetType() != pb.MsgHeartbeatResp }
	w.node(2).g.AskLeader(asked + 1)
	for range 2 * testHeartbeat {
		w.run(testTick)
	}
	if n := len(w.node(2).answered); n > 0 || !leader.g.Role().Leading {
		t.Fatalf("%d answers, and nobody follows; %+v", n, leader.g.Role())
	}

	w.carries = nil
	w.node(3).g.AskLeader(asked + 2)
	w.settle()
	if n := len(leader.g.lease.asks); n != 1 {
		t.Fatalf("%d questions wait: nothing is tested", n)
	}
	leader.g.TransferTo(leader.g.Role().Term, 2) // node 1 does not lead any more when it would answer
	for w.turn() {
	}
	if !w.node(2).g.Role().Leading {
		t.Fatalf("node 2 does not lead: %+v", w.node(2).g.Role())
	}
	if n := len(leader.g.lease.asks); n != 0 {
		t.Errorf("a node that does not lead keeps %d questions", n)
	}
}
