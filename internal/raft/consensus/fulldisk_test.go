package consensus

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
)

// TestVotesOvertake: a term or vote that was stored while a write waited for space is not undone by that write.
// That includes a vote in the same term, which a node may give when it has forgotten a dead leader.
func TestVotesOvertake(t *testing.T) {
	for _, c := range []struct{ waited, stored, want seglog.HardState }{
		{seglog.HardState{Term: 2, Commit: 9}, seglog.HardState{Term: 1, Vote: 3, Commit: 7}, seglog.HardState{Term: 2, Commit: 9}},
		{seglog.HardState{Term: 2, Commit: 9}, seglog.HardState{Term: 3, Vote: 3, Commit: 7}, seglog.HardState{Term: 3, Vote: 3, Commit: 9}},
		{seglog.HardState{Term: 2, Commit: 9}, seglog.HardState{Term: 2, Vote: 3, Commit: 7}, seglog.HardState{Term: 2, Vote: 3, Commit: 9}},
		{seglog.HardState{Term: 2, Vote: 3, Commit: 9}, seglog.HardState{Term: 2, Commit: 7}, seglog.HardState{Term: 2, Vote: 3, Commit: 9}},
	} {
		if diff := cmp.Diff(&c.want, AppendRun{HardState: &c.waited}.Newest(c.stored)); diff != "" {
			t.Errorf("%+v after %+v (-want +got):\n%s", c.waited, c.stored, diff)
		}
	}
	if got := (AppendRun{}).Newest(seglog.HardState{Term: 2}); got != nil {
		t.Errorf("a run without a hard state has %+v", got)
	}
}

// TestFullDiskStoresEveryVote: the newest term and vote of everything that waits is on the disk before any vote
// is sent.
func TestFullDiskStoresEveryVote(t *testing.T) {
	granted := func() *pb.Message {
		return &pb.Message{Responses: []*pb.Message{{Type: pb.MsgVoteResp.Enum(), From: new(uint64(1)), To: new(uint64(2)), Term: new(uint64(7))}}}
	}
	votes := &seglog.HardState{Term: 7, Vote: 2, Commit: 9}
	entries := []seglog.Entry{{Index: 102, Term: 6}}
	for _, c := range []struct {
		name string
		runs []AppendRun
	}{
		{"of the run that did not fit", []AppendRun{{entries, votes}}},
		{"of a later run", []AppendRun{{Entries: entries}, {entries, votes}}},
		{"before a later run", []AppendRun{{entries, votes}, {Entries: entries}}},
		{"behind an older one", []AppendRun{{entries, &seglog.HardState{Term: 6, Vote: 3, Commit: 4}}, {entries, votes}}},
	} {
		d := NewFullDisk(1, c.runs)
		again := granted()
		given, waits := d.Take(again)
		if len(given) != 1 || waits || len(again.GetResponses()) > 0 {
			t.Errorf("%s: %d votes given, waits: %t, left with the message: %v", c.name, len(given), waits, again.GetResponses())
		}
		stored := seglog.HardState{Term: 6, Vote: 3, Commit: 4}
		want := &seglog.HardState{Term: 7, Vote: 2, Commit: 4}
		if diff := cmp.Diff(want, d.Vote(stored)); diff != "" {
			t.Errorf("%s: stored before a vote leaves (-want +got):\n%s", c.name, diff)
		}
		if hs := d.Vote(*want); hs != nil {
			t.Errorf("%s: %+v is stored once more", c.name, hs)
		}
	}
}

// voter is one node, whose peers are the test: its disk can be full.
type voter struct {
	t    *testing.T
	ctx  context.Context
	node *Runner
	disk *vfs.Mem
	// full: only writes over the existing state file have room. copies: not even these have.
	full, copies atomic.Bool
	refused      chan struct{} // writes of the state file
	reports      chan error
	// granted gets, for each vote, the disk as it would be after a power loss at that moment.
	granted  chan *vfs.Mem
	appended chan uint64
}

func startVoter(t *testing.T) *voter {
	v := &voter{
		t: t, ctx: testContext(t), disk: vfs.NewMem(), reports: make(chan error, 16),
		granted: make(chan *vfs.Mem, 16), appended: make(chan uint64, 16), refused: make(chan struct{}),
	}
	log, err := seglog.Open(seglog.Options{FS: vfs.Wrap(v.disk, v.hook), Dir: "log"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	v.node, err = New(Config{
		Self: 1, Members: []cluster.Member{testMember(1), testMember(2), testMember(3)}, Heartbeat: time.Minute, ElectionTimeout: time.Hour,
		Log: log, Fresh: true, Logger: slog.New(slog.DiscardHandler), Send: v.send,
		OnRole: func(RoleState) {}, OnCommit: func(Mark) {}, OnFull: func(err error) { v.reports <- err },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(v.ctx)
	ended := make(chan error, 1)
	go func() { ended <- v.node.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the node ended: %v", err)
		}
	})
	return v
}

func (v *voter) hook(op vfs.Op, name string) error {
	if !v.full.Load() || op != vfs.OpWrite && op != vfs.OpCreate {
		return nil
	}
	if strings.HasSuffix(name, "state") {
		if !v.copies.Load() {
			return nil
		}
		select {
		case v.refused <- struct{}{}:
		default: // nobody counts
		}
	}
	return syscall.ENOSPC
}

func (v *voter) send(ms []*pb.Message) {
	for _, m := range ms {
		switch {
		case m.GetReject():
		case m.GetType() == pb.MsgVoteResp:
			v.granted <- v.disk.CrashClone(0)
		case m.GetType() == pb.MsgAppResp:
			v.appended <- m.GetIndex()
		}
	}
}

// step gives messages to the node in one turn of its loop, which is over when
// step returns.
func (v *voter) step(ms ...*pb.Message) {
	v.node.do(v.ctx, func(now time.Duration) {
		for _, m := range ms {
			v.node.group.Step(now, m)
		}
	})
	v.node.do(v.ctx, func(time.Duration) {})
}

// asked is node 2's request for a vote in term 7, after it gave its leadership up.
func (v *voter) asked() *pb.Message {
	return &pb.Message{
		Type: pb.MsgVote.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(7)),
		Index: new(uint64(9)), LogTerm: new(uint64(6)), Context: []byte(raftCampaignTransfer),
	}
}

// entry is an append by node 2 as the leader of term 6.
func (v *voter) entry(index uint64) *pb.Message {
	return &pb.Message{
		Type: pb.MsgApp.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(6)), Index: new(index - 1),
		LogTerm: new(min(index-1, 1) * 6), Commit: new(uint64(0)),
		Entries: []*pb.Entry{{Index: new(index), Term: new(uint64(6)), Type: pb.EntryNormal.Enum()}},
	}
}

func receive[T any](v *voter, c chan T, what string) (got T) {
	v.t.Helper()
	select {
	case got = <-c:
	case <-v.ctx.Done():
		v.t.Fatal("waited in vain for " + what)
	}
	return got
}

// keeps checks that a disk has the vote for node 2 after a power loss.
func (v *voter) keeps(disk *vfs.Mem) {
	v.t.Helper()
	log, err := seglog.Open(seglog.Options{FS: disk, Dir: "log"})
	if err != nil {
		v.t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	if hs := log.HardState(); hs.Term != 7 || hs.Vote != 2 {
		v.t.Errorf("a vote for node 2 in term 7 has left, %+v is on disk", hs)
	}
}

// TestVoteOfAFullDiskIsKept: entries and a vote come in one turn, and the disk is full. The candidate may have
// crashed, so it asks once more. The vote is sent only when it is stored. If even the vote has no room, the
// node waits.
func TestVoteOfAFullDiskIsKept(t *testing.T) {
	for _, copies := range []bool{false, true} {
		t.Run(fmt.Sprintf("copy on write: %t", copies), func(t *testing.T) {
			v := startVoter(t)
			v.step(v.entry(1))
			receive(v, v.appended, "the answer to an entry")
			v.copies.Store(copies)
			v.full.Store(true)
			v.step(v.entry(2), v.asked())
			if err := receive(v, v.reports, "the full disk"); err == nil {
				t.Fatal("there is space before there was none")
			}
			v.step(v.asked())
			if copies {
				for range 3 { // after these turns the message was taken, whenever it came
					receive(v, v.refused, "a try to store the vote")
				}
				select {
				case <-v.granted:
					t.Error("a vote has left that nothing could store")
				default:
				}
				v.copies.Store(false)
				v.step(v.asked())
			}
			v.keeps(receive(v, v.granted, "the vote"))
			select {
			case index := <-v.appended:
				t.Errorf("entry %d is answered on a full disk", index)
			default:
			}
			v.full.Store(false)
			if err := receive(v, v.reports, "the space"); err != nil {
				t.Fatalf("still full: %v", err)
			}
			if index := receive(v, v.appended, "the answer to the entry that waited"); index != 2 {
				t.Errorf("entry %d is answered, not 2", index)
			}
			v.keeps(receive(v, v.granted, "the vote that came with the entry"))
		})
	}
}

// TestVoteWaitsForSpace: the disk has no room even for the vote that comes while an entry waits. Raft counts on
// the vote from then on, so it is stored as soon as there is space again.
func TestVoteWaitsForSpace(t *testing.T) {
	v := startVoter(t)
	v.step(v.entry(1))
	receive(v, v.appended, "the answer to an entry")
	v.copies.Store(true)
	v.full.Store(true)
	v.step(v.entry(2))
	if err := receive(v, v.reports, "the full disk"); err == nil {
		t.Fatal("there is space before there was none")
	}
	v.step(v.asked())
	receive(v, v.refused, "a try to store the vote")
	v.full.Store(false)
	if err := receive(v, v.reports, "the space"); err != nil {
		t.Fatalf("still full: %v", err)
	}
	if hs := v.node.cfg.Log.HardState(); hs.Term != 7 || hs.Vote != 2 {
		t.Errorf("there is space, and %+v is stored", hs)
	}
	v.step(v.asked())
	v.keeps(receive(v, v.granted, "the vote"))
}
