package consensus

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/entry"
	"github.com/quorate/quorate/internal/seglog"
	"github.com/quorate/quorate/internal/vfs"
)

// follower is a node whose leader, node 2, is the test. Its clock does not tick: nothing
// happens but what is asked for.
type follower struct {
	t    *testing.T
	node *Node
	stop context.CancelFunc
	ends chan error
	sent chan *pb.Message
	// during is called once in a turn, when something is sent.
	during atomic.Pointer[func()]
	// hang is what the syncs of the log wait for, nil: for nothing; syncs counts them.
	hang  atomic.Pointer[chan struct{}]
	syncs atomic.Int64
}

func startFollower(t *testing.T) *follower {
	f := &follower{t: t, sent: make(chan *pb.Message, 1<<14), ends: make(chan error, 1)}
	log, err := seglog.Open(seglog.Options{FS: vfs.Wrap(vfs.NewMem(), f.hook), Dir: "log"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	f.node, err = New(Config{
		Self: 1, Members: []cluster.Member{testMember(1), testMember(2), testMember(3)}, Heartbeat: time.Hour, ElectionTimeout: 10 * time.Hour,
		Log: log, Fresh: true, Logger: slog.New(slog.DiscardHandler), OnRole: func(RoleState) {}, OnCommit: func(Mark) {},
		OnRefused: func(Refusal) {},
		Send: func(ms []*pb.Message) {
			for _, m := range ms {
				f.sent <- m
			}
			if during := f.during.Swap(nil); during != nil {
				(*during)()
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(testContext(t))
	f.stop = cancel
	go func() { f.ends <- f.node.Run(ctx) }()
	<-f.node.started
	t.Cleanup(cancel)
	return f
}

func (f *follower) hook(op vfs.Op, name string) error {
	if op == vfs.OpSyncData {
		f.syncs.Add(1)
		if c := f.hang.Load(); c != nil {
			<-*c
		}
	}
	return nil
}

// hangs has the disk hang until free is called.
func (f *follower) hangs() (free func()) {
	c := make(chan struct{})
	f.hang.Store(&c)
	free = sync.OnceFunc(func() {
		f.hang.Store(nil)
		close(c)
	})
	f.t.Cleanup(free)
	return free
}

// writes waits until a write is under way, or is not.
func (f *follower) writes(under bool) {
	f.t.Helper()
	awaitStalled(f.t, testContext(f.t), "a write is under way, or is not", func() bool { return (f.node.driver.writes.began() != 0) == under })
}

func heartbeatOf(term uint64) *pb.Message {
	return &pb.Message{Type: pb.MsgHeartbeat.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: &term, Commit: new(uint64(0)), Context: []byte("a beat")}
}

// answered returns the answers of a type that have left so far.
func (f *follower) answered(kind pb.MessageType) (found []*pb.Message) {
	for {
		select {
		case m := <-f.sent:
			if m.GetType() == kind {
				found = append(found, m)
			}
		default:
			return found
		}
	}
}

// awaits waits for an answer.
func (f *follower) awaits(kind pb.MessageType) *pb.Message {
	f.t.Helper()
	for {
		select {
		case m := <-f.sent:
			if m.GetType() == kind {
				return m
			}
		case <-time.After(20 * time.Second):
			f.t.Fatalf("no %v leaves", kind)
		}
	}
}

// TestReaderWritesItself: an append is on disk and answered when Step returns, with one
// fsync for all that the reader had at hand.
func TestReaderWritesItself(t *testing.T) {
	f := startFollower(t)
	f.node.Step(appendOf(1), false)
	if got := f.answered(pb.MsgAppResp); len(got) != 1 || got[0].GetIndex() != 1 {
		t.Fatalf("answers when Step has returned: %v", got)
	}
	before := f.syncs.Load()
	for index := uint64(2); index <= 5; index++ {
		f.node.Step(appendOf(index), index < 5)
	}
	got := f.answered(pb.MsgAppResp)
	if len(got) == 0 || got[len(got)-1].GetIndex() != 5 {
		t.Fatalf("answers when Step has returned: %v", got)
	}
	if syncs := f.syncs.Load() - before; syncs != 1 {
		t.Errorf("%d fsyncs for four appends that came together", syncs)
	}
}

// TestLongWriteIsLeftToTheWriter: the reader takes in the next appends meanwhile.
func TestLongWriteIsLeftToTheWriter(t *testing.T) {
	f := startFollower(t)
	free := f.hangs()
	for index := uint64(1); index <= 3; index++ {
		m := appendOf(index)
		m.Entries[0].Data = transactionsEntry(entry.Header{Term: 6, Number: index, Count: 1}, index)
		m.Entries[0].Data = append(m.Entries[0].Data, make([]byte, handOverBytesMin)...)
		f.node.Step(m, false)
	}
	free()
	for f.awaits(pb.MsgAppResp).GetIndex() != 3 {
		continue
	}
}

// appendOf is an append of node 2, the leader of term 6.
func appendOf(index uint64) *pb.Message { return (&voter{}).entry(index) }

// TestDiskHangsUnderAReader: the reader of appends waits for the disk. Heartbeats are
// answered meanwhile, appends that another reader brings wait, and are one group commit;
// nothing is answered before it is on disk.
func TestDiskHangsUnderAReader(t *testing.T) {
	f := startFollower(t)
	f.node.Step(appendOf(1), false)
	f.answered(pb.MsgAppResp)
	free := f.hangs()
	stepped := make(chan struct{})
	go func() {
		f.node.Step(appendOf(2), false)
		close(stepped)
	}()
	f.writes(true)
	for index := uint64(3); index <= 5; index++ {
		f.node.Step(appendOf(index), false) // does not wait: a write is under way
	}
	f.node.Step(heartbeatOf(6), false)
	f.awaits(pb.MsgHeartbeatResp)
	select {
	case <-stepped:
		t.Fatal("the append returned from a disk that hangs")
	default:
	}
	if got := f.answered(pb.MsgAppResp); len(got) > 0 {
		t.Fatalf("answered on a disk that hangs: %v", got)
	}
	before := f.syncs.Load()
	free()
	<-stepped
	for f.awaits(pb.MsgAppResp).GetIndex() != 5 {
		continue
	}
	if syncs := f.syncs.Load() - before; syncs != 1 {
		t.Errorf("%d fsyncs for what came while the disk hung", syncs)
	}
}

// TestReaderOfVotesWaitsForNoDisk: a vote is granted on a disk that hangs, by the reader
// that heartbeats come to: it returns, and the vote leaves once it is on disk.
func TestReaderOfVotesWaitsForNoDisk(t *testing.T) {
	f := startFollower(t)
	free := f.hangs()
	f.node.Step(&pb.Message{
		Type: pb.MsgVote.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(1)), Index: new(uint64(0)), LogTerm: new(uint64(0)),
	}, false)
	f.node.Step(heartbeatOf(1), false)
	f.awaits(pb.MsgHeartbeatResp)
	if got := f.answered(pb.MsgVoteResp); len(got) > 0 {
		t.Fatalf("a vote leaves that is not on disk: %v", got)
	}
	free()
	if m := f.awaits(pb.MsgVoteResp); m.GetReject() {
		t.Fatal("the vote is refused")
	}
}

// TestHolderLooksAgain: what is left at the very end of a turn is done, whoever has it.
func TestHolderLooksAgain(t *testing.T) {
	f := startFollower(t)
	f.node.Step(appendOf(1), false)
	for name, turn := range map[string]func(){
		"of a reader": func() { f.node.Step(heartbeatOf(6), false) },
		"of a caller": func() { f.node.do(t.Context(), func(now time.Duration) { f.node.group.Step(now, heartbeatOf(6)) }) },
	} {
		f.answered(pb.MsgHeartbeatResp)
		f.during.Store(new(func() { f.node.Step(heartbeatOf(6), false) }))
		turn()
		if got := f.answered(pb.MsgHeartbeatResp); len(got) != 2 {
			t.Errorf("%s: %d of 2 heartbeats are answered", name, len(got))
		}
	}
}

// TestNothingIsLeftBehind: many bring something at once, and nothing ticks: what one leaves
// for another is done, always.
func TestNothingIsLeftBehind(t *testing.T) {
	f := startFollower(t)
	f.node.Step(appendOf(1), false)
	f.answered(pb.MsgAppResp)
	const readers, beats = 8, 200
	var running sync.WaitGroup
	for range readers {
		running.Go(func() {
			for i := range beats {
				f.node.Step(heartbeatOf(6), i%3 == 0 && i < beats-1)
			}
		})
	}
	running.Go(func() {
		for index := uint64(2); index <= beats; index++ {
			f.node.Step(appendOf(index), false)
		}
	})
	running.Wait()
	got := 0
	for last := uint64(0); got < readers*beats || last < beats; {
		select {
		case m := <-f.sent:
			switch m.GetType() {
			case pb.MsgHeartbeatResp:
				got++
			case pb.MsgAppResp:
				last = max(last, m.GetIndex())
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%d of %d heartbeats are answered, appends up to %d", got, readers*beats, last)
		}
	}
}

// TestRunWaitsForAReadersWrite: the log may be closed when Run has returned.
func TestRunWaitsForAReadersWrite(t *testing.T) {
	f := startFollower(t)
	f.node.Step(appendOf(1), false)
	free := f.hangs()
	stepped := make(chan struct{})
	go func() {
		f.node.Step(appendOf(2), false)
		close(stepped)
	}()
	f.writes(true)
	f.stop()
	<-f.node.stopped
	f.node.Step(appendOf(3), false) // for nobody
	select {
	case <-f.ends:
		t.Fatal("Run has returned while a write is under way")
	case <-time.After(20 * time.Millisecond):
	}
	free()
	<-stepped
	if err := <-f.ends; err != nil {
		t.Fatal(err)
	}
}

// TestProposerMayWaitForTheDisk: Work writes to the log itself, Propose never does.
func TestProposerMayWaitForTheDisk(t *testing.T) {
	f := startFollower(t)
	free := f.hangs()
	if err := f.node.Propose(t.Context(), transactionsEntry(entry.Header{Term: 1, Number: 1, Count: 1}, 1)); err != nil {
		t.Fatal(err)
	}
	free()
	leads := make(chan struct{})
	go func() { // the peers
		for m := range f.sent {
			answer := map[pb.MessageType]pb.MessageType{pb.MsgPreVote: pb.MsgPreVoteResp, pb.MsgVote: pb.MsgVoteResp}[m.GetType()]
			if m.GetType() == pb.MsgApp {
				close(leads)
				return
			}
			if answer != 0 && m.GetTo() == 2 {
				f.node.Step(&pb.Message{Type: &answer, From: new(uint64(2)), To: new(uint64(1)), Term: m.Term}, false)
			}
		}
	}()
	f.node.do(t.Context(), func(time.Duration) { f.node.group.campaign() })
	<-leads
	f.writes(false)
	term := f.node.Role().Term
	data := entry.EncodeEpoch(entry.Epoch{Term: term, Primary: "a", FormatDescription: testFormatDescription()})
	before := f.syncs.Load()
	if !f.node.TryPropose(data) {
		t.Fatal("there is no room for a proposal")
	}
	f.node.Work()
	if f.syncs.Load() == before {
		t.Error("Work has returned before the proposal is on disk")
	}
	defer f.hangs()()
	next := transactionsEntry(entry.Header{Term: term, Number: 1, Count: 1}, 1)
	if err := f.node.Propose(t.Context(), next); err != nil {
		t.Fatal(err)
	}
}
