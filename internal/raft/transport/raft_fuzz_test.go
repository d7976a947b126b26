package transport

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/sys/invariant"
	"github.com/quorate/quorate/internal/testkit/hostile"
)

// follower is node b's part in Raft, on virtual time, over a log in memory. Its messages go nowhere.
type follower struct {
	*recorder
	log    *seglog.Log
	group  *consensus.Group
	now    time.Duration
	broken int
	failed error
	// ended is set where an agent would end: at a commit index beyond the log while b has just started (it may
	// have an older copy of its log), and at a commit that breaks an invariant. docs/architecture/invariants.md
	// names these cases.
	ended bool
}

const fuzzTick = 25 * time.Millisecond

func fuzzedMembers() (all []cluster.Member) {
	for id := nodeA; id <= nodeC; id++ {
		all = append(all, cluster.Member{ID: id, Name: names(id), Peer: names(id) + ":1", Kind: cluster.KindFull, Weight: cluster.WeightDefault})
	}
	return all
}

// begin starts the node on its log.
func (h *follower) begin(state *cluster.StatePoint) (err error) {
	h.group, err = consensus.NewGroup(consensus.GroupConfig{
		Self: nodeB, Members: fuzzedMembers(), State: state, Tick: fuzzTick, HeartbeatTicks: 4, ElectionTicks: 40, Log: h.log,
		HasStage: func(entry.StageID) bool { return true }, Fresh: state == nil, Logger: slog.New(slog.DiscardHandler), Now: h.now,
	})
	return err
}

// Raft implements Handler.
func (h *follower) Raft(m *pb.Message, _ bool) {
	if h.ended {
		return
	}
	defer func() {
		r := recover()
		err, _ := r.(error)
		violation, committed := r.(invariant.Violation)
		switch {
		case r == nil:
		case committed && (violation.Name == "I2" || violation.Name == "I9") || errors.Is(err, consensus.ErrLogBehind) && m.GetType() == pb.MsgHeartbeat:
			h.ended = true
		default:
			panic(r)
		}
	}()
	h.group.Step(h.now, m)
	h.settle()
	h.now += fuzzTick
	h.group.Tick(h.now)
	h.settle()
}

// settle appends what the group wants appended, until the group wants nothing more.
func (h *follower) settle() {
	for {
		out, ok := h.group.Ready()
		h.broken += len(out.Broken)
		for _, a := range out.Append {
			for _, run := range consensus.AppendRuns([]*pb.Message{a}) {
				if err := h.log.Append(run.Entries, run.HardState); err != nil && h.failed == nil {
					h.failed = err
				}
			}
		}
		for _, a := range out.Append {
			for _, answer := range a.GetResponses() {
				if answer.GetTo() == uint64(nodeB) {
					h.group.Step(h.now, answer)
				}
			}
		}
		if !ok {
			return
		}
	}
}

// of returns a message from a to b.
func of(kind pb.MessageType, term uint64) *pb.Message {
	return &pb.Message{Type: kind.Enum(), From: new(uint64(nodeA)), To: new(uint64(nodeB)), Term: &term}
}

// history returns an append of a leader of term 1: an epoch, a transaction, a rotate entry, a change of the cluster
// state, and a change of the members.
func history(f *testing.F) *pb.Message {
	w := binlogtest.New("q.000001")
	transaction := append(entry.AppendHeader(nil, entry.Header{Kind: entry.KindTransactions, Term: 1, Number: 1, Count: 1}), binlogtest.Join(w.Rows(30)...)...)
	weight := 7
	change := cluster.StateChange{Change: cluster.Change{ID: "x", By: "ann@db1", Node: &cluster.NodeChange{Name: "c", Weight: &weight}}, State: cluster.NewState(fuzzedMembers())}
	change.State.Version, change.State.Members[2].Weight = 1, weight
	state, err := entry.EncodeState(1, change)
	if err != nil {
		f.Fatal(err)
	}
	change.State = change.State.Clone()
	change.State.Version = 2
	change.State.Members[2].Kind, change.State.Members[2].Weight = cluster.KindLearner, 0
	change.Change = cluster.Change{ID: "y", By: "ann@db1", Membership: &cluster.MembershipChange{Op: cluster.OpDemote, Name: "c"}}
	context, err := entry.MarshalState(change)
	if err != nil {
		f.Fatal(err)
	}
	members, err := proto.Marshal(&pb.ConfChangeV2{Context: context, Changes: []*pb.ConfChangeSingle{{Type: pb.ConfChangeAddLearnerNode.Enum(), NodeId: new(uint64(nodeC))}}})
	if err != nil {
		f.Fatal(err)
	}
	m := of(pb.MsgApp, 1)
	epoch := entry.EncodeEpoch(entry.Epoch{Term: 1, Primary: "a", FormatDescription: w.FormatDescription(1)})
	rotate := append(entry.AppendHeader(nil, entry.Header{Kind: entry.KindRotate, Term: 1, Number: 2}), w.FormatDescription(1)...)
	for i, data := range [][]byte{nil, epoch, transaction, rotate, state, members} {
		e := &pb.Entry{Index: new(uint64(i + 1)), Term: new(uint64(1)), Type: pb.EntryNormal.Enum(), Data: data}
		if i == 5 {
			e.Type = pb.EntryConfChangeV2.Enum()
		}
		m.Entries = append(m.Entries, e)
	}
	return m
}

// FuzzRaft lets member a send node b anything that frames can carry, as the leader, a voter or a candidate. That
// must not end b, except in the three cases that docs/architecture/invariants.md names. It must not wind b's terms
// up, nor leave a log on which b cannot start again.
func FuzzRaft(f *testing.F) {
	all := history(f)
	committed := of(pb.MsgHeartbeat, 1)
	committed.Commit = new(uint64(len(all.Entries)))
	ahead := proto.CloneOf(committed)
	ahead.Term = new(uint64(2))
	first := proto.CloneOf(all)
	first.Entries = first.Entries[:3]
	next := proto.CloneOf(all)
	next.Index, next.LogTerm, next.Entries, next.Commit = new(uint64(3)), new(uint64(1)), next.Entries[3:], new(uint64(3))
	vote := of(pb.MsgVoteResp, 2)
	short := of(pb.MsgHeartbeatResp, 2)
	short.Context = []byte("x")
	granted := of(pb.MsgAppResp, 2)
	granted.Index = new(uint64(4))
	transfer := of(pb.MsgReadIndex, 0)
	transfer.Term, transfer.Entries = nil, []*pb.Entry{{Data: []byte("question")}}
	candidate := of(pb.MsgVote, 3)
	candidate.Index, candidate.LogTerm = new(uint64(9)), new(uint64(2))
	other := of(pb.MsgApp, 2)
	other.Index, other.LogTerm, other.Entries = new(uint64(2)), new(uint64(1)), []*pb.Entry{{Index: new(uint64(3)), Term: new(uint64(2)), Type: pb.EntryNormal.Enum()}}
	for _, messages := range [][]*pb.Message{
		{all, committed}, {first, next, committed}, {first, of(pb.MsgTimeoutNow, 1), vote, granted, of(pb.MsgHeartbeatResp, 2), transfer},
		{all, candidate, of(pb.MsgPreVote, 4), of(pb.MsgHeartbeat, 3)}, {first, other, committed}, {all, committed, of(pb.MsgTimeoutNow, 1), vote, other},
		{ahead, all}, {first, of(pb.MsgTimeoutNow, 1), vote, short},
	} {
		f.Add(encoded(f, classAppend, messages...))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		sent = bytes.Join([][]byte{encodeHello(helloFrom(nodeA, nodeB, classAppend)), hostile.Mend(sent, frameFormat)}, nil)
		log, err := seglog.Open(seglog.Options{FS: vfs.NewMem(), Dir: "log", Identity: [16]byte{byte(nodeB)}, CacheBytesMax: 1 << 16})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = log.Close() }()
		h := &follower{recorder: newRecorder(), log: log}
		if err := h.begin(nil); err != nil {
			t.Fatal(err)
		}
		serve := served(h, cluster.PeersPlain, nil)
		// The log's disk is in memory, and the log allocates a whole segment at a time.
		hostile.Say(t, 512<<20, sent, func(conn *net.UnixConn) { serve(conn) })
		h.sound(t, len(sent))
	})
}

// sound fails unless the node's term, commit index and state are possible, and the node can start again.
func (h *follower) sound(t *testing.T, sentBytes int) {
	t.Helper()
	if h.failed != nil {
		t.Fatalf("append to the log: %v", h.failed)
	}
	const termsAhead = 1 << 20 // consensus.termsAheadMax
	if term := h.group.Role().Term; term > termsAhead*uint64(sentBytes+1) {
		t.Errorf("term %d", term)
	}
	if mark, last := h.group.Committed().Mark(), h.group.LastIndex(); mark.Index > last {
		t.Errorf("%d is committed, the log ends at %d", mark.Index, last)
	}
	for i := 0; i < 4*40 && !h.ended; i++ {
		h.now += fuzzTick
		h.group.Tick(h.now)
		h.settle()
	}
	point := h.group.Committed().State()
	if err := h.begin(&point); err != nil {
		t.Fatalf("start again: %v", err)
	}
	h.settle()
	if len(point.State.Voters()) == 0 {
		t.Errorf("nobody votes: %+v", point.State)
	}
}
