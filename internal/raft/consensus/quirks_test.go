package consensus

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/sys/invariant"
)

// ledWorld makes node 1 lead the nodes that are not cut off.
func ledWorld(t *testing.T, nodes int, cut ...uint64) *world {
	t.Helper()
	w := newWorld(t, nodes)
	for _, id := range cut {
		w.cut[id] = true
	}
	w.node(1).g.campaign()
	w.settle()
	if !w.node(1).g.Role().Leading {
		t.Fatal("node 1 does not lead")
	}
	return w
}

func (w *world) progress(id uint64) (found tracker.Progress) {
	w.node(1).g.rn.WithProgress(func(peer uint64, _ raft.ProgressType, p tracker.Progress) {
		if peer == id {
			found = p
		}
	})
	return found
}

// sentTo counts the messages that node 1 sends to a peer now.
func (w *world) sentTo(id uint64, kind pb.MessageType) (n int) {
	for {
		out, ok := w.node(1).g.Ready()
		if !ok {
			return n
		}
		for _, m := range out.Send {
			if m.GetTo() == id && m.GetType() == kind {
				n++
			}
		}
	}
}

// panicOf runs f and returns the text of its panic.
func panicOf(f func()) (what string) {
	defer func() {
		switch p := recover().(type) {
		case nil:
			what = "nothing"
		case invariant.Violation:
			what = p.Name
		case logFailure:
			what = fmt.Sprint("log is behind: ", errors.Is(p, ErrLogBehind))
		}
	}()
	f()
	return ""
}

// quirk gives one message to raft alone, and to a Group.
type quirk struct {
	name string
	// world sets up the case before the message. node is the node that gets the message.
	world func(*testing.T) *world
	node  uint64
	m     func(*world) *pb.Message
	// seen returns what tells the results apart.
	seen       func(*world) string
	raft, ours string
}

func quirks() []quirk {
	return []quirk{
		{
			name:  "the answer to a message of an earlier term",
			world: func(t *testing.T) *world { return ledWorld(t, 3, 3) }, node: 1,
			m: func(*world) *pb.Message {
				return &pb.Message{Type: pb.MsgAppResp.Enum(), From: new(uint64(3)), To: new(uint64(1)), Term: new(uint64(1))}
			},
			seen: func(w *world) string { return w.progress(3).State.String() },
			raft: "StateReplicate", ours: "StateProbe",
		},
		{
			name:  "a forced vote",
			world: func(t *testing.T) *world { return ledWorld(t, 3) }, node: 2,
			m: func(*world) *pb.Message {
				return &pb.Message{
					Type: pb.MsgVote.Enum(), From: new(uint64(3)), To: new(uint64(2)), Term: new(uint64(5)),
					Index: new(uint64(9)), LogTerm: new(uint64(1)), Context: []byte(raftCampaignTransfer),
				}
			},
			seen: func(w *world) string { return fmt.Sprint(w.node(2).g.rn.BasicStatus().GetTerm()) },
			raft: "5", ours: "1",
		},
		{
			name:  "a read index of a learner of a single voter",
			world: singleVoterBeforeItsFirstCommit, node: 1,
			m: func(*world) *pb.Message {
				return &pb.Message{
					Type: pb.MsgReadIndex.Enum(), From: new(uint64(2)), To: new(uint64(1)),
					Entries: []*pb.Entry{{Data: readContext(contextBarrier, 2, 9)}},
				}
			},
			seen: func(w *world) string { return fmt.Sprint(w.sentTo(2, pb.MsgReadIndexResp)) },
			raft: "1", ours: "0",
		},
		{
			name:  "a peer that lacks what is purged",
			world: purgedWorld, node: 1,
			m: func(w *world) *pb.Message {
				return &pb.Message{
					Type: pb.MsgHeartbeatResp.Enum(), From: new(uint64(3)), To: new(uint64(1)), Term: new(w.node(1).g.Role().Term),
				}
			},
			seen: func(w *world) string { return fmt.Sprint(w.sentTo(3, pb.MsgApp)) },
			raft: "0", ours: "1",
		},
		{
			name:  "a read index at a follower",
			world: func(t *testing.T) *world { return ledWorld(t, 3) }, node: 2,
			m: func(*world) *pb.Message {
				return &pb.Message{
					Type: pb.MsgReadIndex.Enum(), From: new(uint64(3)), To: new(uint64(2)),
					Entries: []*pb.Entry{{Data: readContext(contextBarrier, 3, 9)}},
				}
			},
			seen: func(w *world) string {
				out, _ := w.node(2).g.Ready()
				i := slices.IndexFunc(out.Send, func(m *pb.Message) bool { return m.GetType() == pb.MsgReadIndex })
				if i < 0 {
					return "not passed on"
				}
				return fmt.Sprintf("from %d to %d", out.Send[i].GetFrom(), out.Send[i].GetTo())
			},
			raft: "from 3 to 1", ours: "not passed on",
		},
	}
}

// TestQuirks: raft alone does what quirks.go says, and a Group does something else.
func TestQuirks(t *testing.T) {
	for _, q := range quirks() {
		w := q.world(t)
		_ = w.node(q.node).g.rn.Step(q.m(w))
		if got := q.seen(w); got != q.raft {
			t.Errorf("%s: raft alone: %s, not %s: is it no quirk any more?", q.name, got, q.raft)
		}
		w = q.world(t)
		w.node(q.node).g.Step(w.now, q.m(w))
		if got := q.seen(w); got != q.ours {
			t.Errorf("%s: %s, not %s", q.name, got, q.ours)
		}
	}
}

// singleVoterBeforeItsFirstCommit returns a node that leads and may not know the commit index.
func singleVoterBeforeItsFirstCommit(t *testing.T) *world {
	w := newWorld(t, 1)
	m := w.node(1)
	m.g.campaign()
	for !m.g.Role().Leading {
		out, _ := m.g.Ready()
		w.carryOut(m, out)
		inbox := m.inbox
		m.inbox = nil
		for _, msg := range inbox {
			m.g.Step(w.now, msg)
		}
	}
	return w
}

// purgedWorld makes raft look for node 3 before the beginning of the leader's log.
func purgedWorld(t *testing.T) *world {
	w := ledWorld(t, 3, 3)
	w.propose(1, entry.Header{Kind: entry.KindEpoch, Term: 1})
	w.node(1).g.Resign(1)
	w.settle()
	w.propose(1, entry.Header{Kind: entry.KindEpoch, Term: w.node(1).g.Role().Term})
	w.purge(1)
	w.node(1).g.Step(w.now, &pb.Message{
		Type: pb.MsgAppResp.Enum(), From: new(uint64(3)), To: new(uint64(1)), Term: new(w.node(1).g.Role().Term),
		Reject: new(true), Index: new(w.progress(3).Next - 1), RejectHint: new(uint64(0)),
	})
	w.sentTo(3, pb.MsgApp)
	return w
}

// TestRaftKeepsReads: raft keeps all reads that come before a leader's first commit.
func TestRaftKeepsReads(t *testing.T) {
	const reads = 1000
	answers := func(ask func(g *Group, id uint64)) int {
		w := newWorld(t, 3)
		w.mute[2], w.mute[3] = true, true
		w.node(1).g.campaign()
		w.settle()
		for id := range uint64(reads) {
			ask(w.node(1).g, id)
		}
		clear(w.mute)
		for range 2 * testHeartbeat {
			w.run(testTick)
		}
		if !w.node(1).g.knowsCommitted() {
			t.Fatal("nothing was committed")
		}
		return len(w.node(1).answered)
	}
	if n := answers(func(g *Group, id uint64) { g.rn.ReadIndex(readContext(contextBarrier, 1, id)) }); n < reads {
		t.Errorf("raft alone kept %d of %d reads: is it no quirk any more?", n, reads)
	}
	if n := answers((*Group).StartBarrier); n > barriersMax {
		t.Errorf("%d of %d reads were kept, want at most %d", n, reads, barriersMax)
	}
}

// TestJointConsensusEndsOnAnIdleCluster: raft tries to end a change of the voters when it applies an entry, but
// a transfer prevents it. No client writes, so no further entry comes.
func TestJointConsensusEndsOnAnIdleCluster(t *testing.T) {
	w := newWorld(t, 4)
	w.node(1).g.campaign()
	w.settle()
	w.run(200 * time.Millisecond)
	g := w.node(1).g
	w.dropTimeoutNow = true
	if err := g.ProposeState(w.now, testMembership("demote", "n3")); err != nil {
		t.Fatal(err)
	}
	g.rn.TransferLeader(2) // its target never hears of it; from now on raft drops proposals
	w.settle()
	if !g.committed.joint() {
		t.Fatal("the change is complete: the test has tested nothing")
	}
	for range 3 * testElection {
		g.rn.Tick()
		g.startRound() // otherwise the leader would not hear from its followers
		w.settle()
	}
	if !g.Role().Leading || !g.committed.joint() {
		t.Error("raft alone ends the change: is it no quirk any more?")
	}
	w.run(5 * time.Second)
	if !g.Role().Leading || g.committed.joint() {
		t.Errorf("leading %t, the change of the voters is complete: %t", g.Role().Leading, !g.committed.joint())
	}
	last := w.committed(1)
	w.run(5 * time.Second)
	if w.committed(1) != last {
		t.Errorf("entries %d to %d were written on an idle cluster", last+1, w.committed(1))
	}
}

// TestSilentLeaderOfALearner: raft alone never forgets a silent leader.
func TestSilentLeaderOfALearner(t *testing.T) {
	w := ledWorld(t, 4)
	w.change(1, testMembership("add", "n4"))
	w.run(200 * time.Millisecond)
	g := w.node(4).g
	if g.Role().Leader != 1 {
		t.Fatalf("%+v", g.Role())
	}
	for range 10 * testElection {
		g.rn.Tick()
	}
	if g.observe(); g.Role().Leader != 1 {
		t.Error("raft alone has forgotten the leader: is it no quirk any more?")
	}
	for range testElection + 1 {
		g.Tick(w.now)
	}
	if g.Role().Leader != 0 {
		t.Error("the learner's leader is silent, and it knows one")
	}
}

// TestCommitBeyondTheLog: raft alone ends with a text for its developers.
func TestCommitBeyondTheLog(t *testing.T) {
	beyond := &pb.Message{
		Type: pb.MsgHeartbeat.Enum(), From: new(uint64(1)), To: new(uint64(2)), Term: new(uint64(1)), Commit: new(uint64(99)),
	}
	w := ledWorld(t, 3)
	if what := panicOf(func() { _ = w.node(2).g.rn.Step(beyond) }); what != "raft" {
		t.Errorf("raft alone panics as %s: is it no quirk any more?", what)
	}
	w = newWorld(t, 3) // it has just started: it may have acknowledged more before
	if what := panicOf(func() { w.node(2).g.Step(w.now, beyond) }); what != "log is behind: true" {
		t.Errorf("it panics as %s", what)
	}
}

// TestLeaderStepsDown: raft has no call for that.
func TestLeaderStepsDown(t *testing.T) {
	w := ledWorld(t, 3)
	g := w.node(1).g
	g.rn.TransferLeader(1)
	if w.settle(); g.Role().Term != 1 {
		t.Error("raft alone has stepped down: is it no quirk any more?")
	}
	g.Resign(1)
	if w.settle(); g.Role() != (RoleState{Term: 3, Leader: 1, Leading: true}) {
		t.Errorf("%+v", g.Role())
	}
}

// slowLog is a log that has nothing in memory. It counts the reads, and those that wait for a disk.
type slowLog struct {
	*seglog.Log
	asked, waited int
}

func (l *slowLog) EntriesInMemory(uint64, uint64, uint64) ([]seglog.Entry, error) {
	l.asked++
	return nil, seglog.ErrNotInMemory
}

func (l *slowLog) Entries(lo, hi, bytesMax uint64) ([]seglog.Entry, error) {
	l.waited++
	return l.Log.Entries(lo, hi, bytesMax)
}

// TestLeaderNeverWaitsToSend: whatever makes raft send a peer the entries that it lacks, the leader does not
// wait for its disk. It reads only the entries that it hands out.
func TestLeaderNeverWaitsToSend(t *testing.T) {
	for name, do := range map[string]func(w *world) error{
		"an answer": func(w *world) error {
			w.node(1).g.Step(w.now, &pb.Message{Type: pb.MsgHeartbeatResp.Enum(), From: new(uint64(3)), To: new(uint64(1)), Term: new(uint64(1))})
			return nil
		},
		"a proposal": func(w *world) error {
			w.node(1).g.Propose(entry.AppendHeader(nil, entry.Header{Kind: entry.KindTransactions, Term: 1, Number: 1}))
			return nil
		},
		"a change of the state": func(w *world) error {
			return w.node(1).g.ProposeState(w.now, cluster.Change{ID: "x", By: "ann@db1", Node: &cluster.NodeChange{Name: "n2", Weight: new(7)}})
		},
		"a change of the members": func(w *world) error {
			return w.node(1).g.ProposeState(w.now, testMembership("add", "n4"))
		},
	} {
		w := ledWorld(t, 4, 3)
		w.propose(1, entry.Header{Kind: entry.KindEpoch, Term: 1})
		g := w.node(1).g
		log := &slowLog{Log: w.node(1).log}
		g.storage.log = log
		g.Unreachable(3)
		g.Step(w.now, &pb.Message{Type: pb.MsgHeartbeatResp.Enum(), From: new(uint64(3)), To: new(uint64(1)), Term: new(uint64(1))})
		log.asked, log.waited = 0, 0
		if err := do(w); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if log.asked == 0 {
			t.Errorf("%s: raft does not read the log within Step: is it no quirk any more?", name)
		}
		if log.waited > 0 {
			t.Errorf("%s waits for the disk", name)
		}
		w.settle()
		if log.waited == 0 && name != "an answer" {
			t.Errorf("%s: nothing is handed out", name)
		}
	}
}
