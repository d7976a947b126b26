package consensus

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

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

// bareRaft is raft without a Group: node 1 of three, which leads term 1. Node 2 agrees to everything, node 3 is
// silent.
type bareRaft struct {
	*raft.RawNode
	log *countingLog
}

// countingLog is raft's own log in memory. It counts the reads.
type countingLog struct {
	*raft.MemoryStorage
	reads int
}

func (l *countingLog) InitialState() (*pb.HardState, *pb.ConfState, error) {
	return nil, &pb.ConfState{Voters: []uint64{1, 2, 3}}, nil
}

func (l *countingLog) Entries(lo, hi, bytesMax uint64) ([]*pb.Entry, error) {
	l.reads++
	return l.MemoryStorage.Entries(lo, hi, bytesMax)
}

func newBareRaft(t *testing.T) *bareRaft {
	t.Helper()
	log := &countingLog{MemoryStorage: raft.NewMemoryStorage()}
	rn, err := raft.NewRawNode(&raft.Config{
		ID: 1, ElectionTick: testElection, HeartbeatTick: testHeartbeat, Storage: log,
		MaxSizePerMsg: messageBytesMax, MaxInflightMsgs: inflightMessagesMax, Logger: raftLogger{slog.New(slog.DiscardHandler)},
	})
	if err != nil {
		t.Fatal(err)
	}
	b := &bareRaft{rn, log}
	err = b.Campaign()
	b.settle()
	if s := b.BasicStatus(); err != nil || s.RaftState != raft.StateLeader || s.GetTerm() != 1 {
		t.Fatalf("%+v, %v", s, err)
	}
	return b
}

// settle does what raft asks for, until nothing is left.
func (b *bareRaft) settle() {
	answers := map[pb.MessageType]pb.MessageType{
		pb.MsgVote: pb.MsgVoteResp, pb.MsgApp: pb.MsgAppResp, pb.MsgHeartbeat: pb.MsgHeartbeatResp,
	}
	for b.HasReady() {
		rd := b.Ready()
		_ = b.log.Append(rd.Entries) // it never fails
		for _, e := range rd.CommittedEntries {
			var c pb.ConfChangeV2
			if e.GetType() == pb.EntryConfChangeV2 && proto.Unmarshal(e.GetData(), &c) == nil {
				b.ApplyConfChange(&c)
			}
		}
		b.Advance(rd)
		for _, m := range rd.Messages {
			if kind, ok := answers[m.GetType()]; ok && m.GetTo() == 2 {
				_ = b.Step(&pb.Message{
					Type: kind.Enum(), From: m.To, To: m.From, Term: m.Term, Context: m.Context,
					Index: new(m.GetIndex() + uint64(len(m.GetEntries()))),
				})
			}
		}
	}
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

// demoteNode3 is a change for which raft needs joint consensus, and which raft ends by itself.
func demoteNode3() *pb.ConfChangeV2 {
	return &pb.ConfChangeV2{
		Transition: pb.ConfChangeTransitionJointImplicit.Enum(),
		Changes:    []*pb.ConfChangeSingle{{Type: pb.ConfChangeAddLearnerNode.Enum(), NodeId: new(uint64(3))}},
	}
}

// TestRaftEndsJointConsensusWithAnEntry: raft alone ends a change of the voters at once, but not if leadership
// is being handed over. When that is over, raft waits for an entry.
func TestRaftEndsJointConsensusWithAnEntry(t *testing.T) {
	for _, transfer := range []bool{false, true} {
		b := newBareRaft(t)
		joint := func() bool { return len(b.Status().Config.Voters[1]) > 0 }
		if err := b.ProposeConfChange(demoteNode3()); err != nil {
			t.Fatal(err)
		}
		if transfer {
			b.TransferLeader(2) // node 2 never stands for election
		}
		b.settle()
		for range 3 * testElection {
			b.Tick()
			b.settle()
		}
		if s := b.BasicStatus(); s.RaftState != raft.StateLeader || s.LeadTransferee != 0 {
			t.Fatalf("%+v", s)
		}
		if joint() != transfer {
			t.Errorf("raft alone, transfer %t: the change is complete: %t: is it no quirk any more?", transfer, !joint())
		}
		if err := b.Propose(nil); err != nil {
			t.Fatal(err)
		}
		if b.settle(); joint() {
			t.Errorf("transfer %t: an entry does not end the change", transfer)
		}
	}
}

// TestJointConsensusEndsOnAnIdleCluster: a Group ends such a change after a transfer, although no client writes.
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

// TestRaftReadsTheLogWithinStep: raft alone reads the log at once, whatever makes it send a peer the entries
// that the peer lacks. It does not wait for Ready.
func TestRaftReadsTheLogWithinStep(t *testing.T) {
	answer := func(kind pb.MessageType) *pb.Message {
		return &pb.Message{Type: kind.Enum(), From: new(uint64(3)), To: new(uint64(1)), Term: new(uint64(1)), Index: new(uint64(1))}
	}
	for name, do := range map[string]func(*bareRaft) error{
		"an answer":               func(b *bareRaft) error { return b.Step(answer(pb.MsgHeartbeatResp)) },
		"a proposal":              func(b *bareRaft) error { return b.Propose([]byte("x")) },
		"a change of the members": func(b *bareRaft) error { return b.ProposeConfChange(demoteNode3()) },
	} {
		b := newBareRaft(t)
		err := b.Propose([]byte("x"))
		b.settle()
		err = errors.Join(err, b.Step(answer(pb.MsgAppResp))) // node 3 has entry 1, of 2
		b.settle()
		b.ReportUnreachable(3)
		b.log.reads = 0
		if err = errors.Join(err, do(b)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if b.log.reads == 0 {
			t.Errorf("%s: raft alone does not read the log: is it no quirk any more?", name)
		}
	}
}

// slowLog is a log that has nothing in memory. It counts the reads that wait for a disk.
type slowLog struct {
	*seglog.Log
	waited int
}

func (l *slowLog) EntriesInMemory(uint64, uint64, uint64) ([]seglog.Entry, error) {
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
		log.waited = 0
		if err := do(w); err != nil {
			t.Fatalf("%s: %v", name, err)
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
