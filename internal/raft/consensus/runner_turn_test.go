package consensus

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/entry"
)

// follower is a node whose leader, node 2, is the test. Its clock does not tick, so only what the test asks for
// happens.
type follower struct {
	t    *testing.T
	node *Runner
	stop context.CancelFunc
	ends chan error
	// broken gets the panic that ended Run, if Run did not return.
	broken chan any
	sent   chan *pb.Message
	// during is called once, in a turn, when something is sent.
	during atomic.Pointer[func()]
	// hang is what the syncs of the log wait for; nil = they do not wait. syncs counts them.
	hang   atomic.Pointer[chan struct{}]
	syncs  atomic.Int64
	worked atomic.Bool // one of the syncs was made by a caller of Work
	// arrived is the log's.
	arrived chan struct{}
}

// arrivals is a log that reads ahead when the test says so.
type arrivals struct {
	*seglog.Log
	arrived chan struct{}
}

func (a arrivals) Arrived() <-chan struct{} { return a.arrived }

func startFollower(t *testing.T) *follower {
	f := &follower{t: t, sent: make(chan *pb.Message, 1<<14), ends: make(chan error, 1), broken: make(chan any, 1), arrived: make(chan struct{}, 1)}
	log, err := seglog.Open(seglog.Options{FS: vfs.Wrap(vfs.NewMem(), f.hook), Dir: "log"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	f.node, err = New(Config{
		Self: 1, Members: []cluster.Member{testMember(1), testMember(2), testMember(3)}, Heartbeat: time.Hour, ElectionTimeout: 10 * time.Hour,
		Log: arrivals{log, f.arrived}, Fresh: true, Logger: slog.New(slog.DiscardHandler), OnRole: func(RoleState) {}, OnCommit: func(Mark) {},
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
	go func() {
		defer func() {
			if r := recover(); r != nil {
				f.broken <- r
			}
		}()
		f.ends <- f.node.Run(ctx)
	}()
	f.node.do(ctx, func(time.Duration) {}) // Run has begun
	t.Cleanup(func() {
		cancel()
		select {
		case r := <-f.broken:
			t.Errorf("the keeper has ended with %v", r)
		default:
		}
	})
	return f
}

func (f *follower) hook(op vfs.Op, name string) error {
	if op == vfs.OpSyncData {
		c := f.hang.Load() // read before the sync is counted, because the reader of the count may change it
		f.syncs.Add(1)
		if strings.Contains(string(debug.Stack()), "(*Runner).Work(") {
			f.worked.Store(true)
		}
		if c != nil {
			<-*c
		}
	}
	return nil
}

// hangs makes the disk hang until free is called.
func (f *follower) hangs() (free func()) {
	c := make(chan struct{})
	f.hang.Store(&c)
	free = sync.OnceFunc(func() {
		f.hang.CompareAndSwap(&c, nil)
		close(c)
	})
	f.t.Cleanup(free)
	return free
}

// returns checks that do returns: neither a hanging disk nor a turn may hold it up.
func (f *follower) returns(what string, do func()) {
	f.t.Helper()
	done := make(chan struct{})
	go func() {
		do()
		close(done)
	}()
	f.ended(what, done)
}

// ended waits until done is closed.
func (f *follower) ended(what string, done <-chan struct{}) {
	f.t.Helper()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		f.t.Fatalf("%s: does not return", what)
	}
}

// run waits for the end of Run.
func (f *follower) run() error {
	f.t.Helper()
	select {
	case err := <-f.ends:
		return err
	case <-time.After(20 * time.Second):
		f.t.Fatal("Run does not return")
		return nil
	}
}

// holds makes another goroutine take the turn and keep it until free is called.
func (f *follower) holds() (free func()) {
	held, hold, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	f.during.Store(new(func() {
		close(held)
		<-hold
	}))
	go func() {
		f.node.Step(heartbeatOf(6), false)
		close(done)
	}()
	f.ended("a turn begins", held)
	free = sync.OnceFunc(func() {
		close(hold)
		<-done
	})
	f.t.Cleanup(free)
	return free
}

// waitsFor waits until a goroutine waits in a function of Run or Step.
func (f *follower) waitsFor(name string) {
	f.t.Helper()
	stacks := make([]byte, 1<<20)
	awaitStalled(f.t, testContext(f.t), "a goroutine is in "+name, func() bool {
		return slices.ContainsFunc(strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n"), func(s string) bool {
			return strings.Contains(s, name) && strings.Contains(s, "(*Runner)")
		})
	})
}

// busy makes each of the next turns leave a heartbeat for later, until stop is called. each is called in every
// turn.
func (f *follower) busy(each func(turn int)) (stop func()) {
	var stopped atomic.Bool
	var turns atomic.Int64
	var again func()
	again = func() {
		each(int(turns.Add(1)))
		if !stopped.Load() {
			f.during.Store(&again)
			f.node.inbox.Message(heartbeatOf(6))
		}
	}
	f.during.Store(&again)
	f.node.inbox.Message(heartbeatOf(6))
	stop = func() { stopped.Store(true) }
	f.t.Cleanup(stop)
	return stop
}

// writes waits until a write is under way, or until none is.
func (f *follower) writes(under bool) {
	f.t.Helper()
	awaitStalled(f.t, testContext(f.t), "a write is under way, or is not", func() bool { return (f.node.driver.writes.began() != 0) == under })
}

func heartbeatOf(term uint64) *pb.Message {
	return &pb.Message{Type: pb.MsgHeartbeat.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: &term, Commit: new(uint64(0)), Context: []byte("a beat")}
}

// answered returns the answers of a type that have been sent up to now.
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

// TestReaderWritesItself: an append is on the disk and answered when Step returns, with one fsync for
// everything that the reader had.
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

// TestLongWriteIsLeftToTheWriter: meanwhile the reader takes the next appends.
func TestLongWriteIsLeftToTheWriter(t *testing.T) {
	f := startFollower(t)
	free := f.hangs()
	for index := uint64(1); index <= 3; index++ {
		f.returns("a long append", func() { f.node.Step(longAppendOf(index), false) })
	}
	free()
	for f.awaits(pb.MsgAppResp).GetIndex() != 3 {
		continue
	}
}

// longAppendOf is an append that is long enough to be left to the writer.
func longAppendOf(index uint64) *pb.Message {
	m := appendOf(index)
	m.Entries[0].Data = entry.AppendHeader(nil, entry.Header{Kind: entry.KindRotate, Term: 6, Number: index})
	m.Entries[0].Data = append(m.Entries[0].Data, make([]byte, handOverBytesMin)...)
	return m
}

// TestWriterOnlyWrites: between two writes the writer runs only one turn, however much is left for others. The
// others get the turn meanwhile.
func TestWriterOnlyWrites(t *testing.T) {
	f := startFollower(t)
	f.node.Step(appendOf(1), false)
	free := f.hangs()
	before := f.syncs.Load()
	f.returns("a long append", func() { f.node.Step(longAppendOf(2), false) })
	awaitStalled(t, testContext(t), "the writer hangs", func() bool { return f.syncs.Load() > before })
	f.returns("a long append", func() { f.node.Step(longAppendOf(3), false) })
	freeNext := f.hangs()
	var turns atomic.Int64
	stop := f.busy(func(int) {
		if on := string(debug.Stack()); strings.Contains(on, "(*Runner).write(") && strings.Contains(on, "(*Runner).turn(") {
			turns.Add(1)
		}
	})
	before = f.syncs.Load()
	free()
	awaitStalled(t, testContext(t), "the next write begins", func() bool { return f.syncs.Load() > before })
	if got := turns.Load(); got > 1 {
		t.Errorf("the writer has %d turns while a write waits", got)
	}
	f.answered(pb.MsgHeartbeatResp)
	f.awaits(pb.MsgHeartbeatResp) // the keeper goes on
	stop()
	freeNext()
	for f.awaits(pb.MsgAppResp).GetIndex() != 3 {
		continue
	}
}

// TestWriterLooksAgain: work that was left while the writer had its turn is done.
func TestWriterLooksAgain(t *testing.T) {
	f := startFollower(t)
	f.node.Step(appendOf(1), false)
	free := f.hangs()
	f.returns("a long append", func() { f.node.Step(longAppendOf(2), false) })
	f.writes(true)
	f.answered(pb.MsgHeartbeatResp)
	f.during.Store(new(func() { // the answer of the write
		f.node.inbox.Message(heartbeatOf(6))
		f.during.Store(new(func() { f.node.inbox.Message(heartbeatOf(6)) })) // the turn after it
	}))
	free()
	for range 2 {
		f.awaits(pb.MsgHeartbeatResp)
	}
}

// TestLeftBeforeAWrite: work that is left in a turn does not wait for the write that follows.
func TestLeftBeforeAWrite(t *testing.T) {
	f := startFollower(t)
	f.node.Step(appendOf(1), false)
	free := f.hangs()
	f.during.Store(new(func() { f.node.Step(heartbeatOf(6), false) }))
	f.node.inbox.Message(heartbeatOf(6))
	stepped := make(chan struct{})
	go func() {
		f.node.Step(appendOf(2), false)
		close(stepped)
	}()
	for range 2 {
		f.awaits(pb.MsgHeartbeatResp)
	}
	free()
	f.ended("the append", stepped)
}

// appendOf is an append of node 2, the leader of term 6.
func appendOf(index uint64) *pb.Message { return (&voter{}).entry(index) }

// TestDiskHangsUnderAReader: the reader of appends waits for the disk. Meanwhile heartbeats are answered.
// Appends from another reader wait and become one group commit, which the reader leaves to the writer. Nothing
// is answered before it is on the disk.
func TestDiskHangsUnderAReader(t *testing.T) {
	f := startFollower(t)
	f.node.Step(appendOf(1), false)
	f.answered(pb.MsgAppResp)
	free, before := f.hangs(), f.syncs.Load()
	stepped := make(chan struct{})
	go func() {
		f.node.Step(appendOf(2), false)
		close(stepped)
	}()
	awaitStalled(t, testContext(t), "the reader hangs", func() bool { return f.syncs.Load() > before })
	for index := uint64(3); index <= 5; index++ {
		f.returns("an append while a write is under way", func() { f.node.Step(appendOf(index), false) })
	}
	f.returns("a heartbeat", func() { f.node.Step(heartbeatOf(6), false) })
	f.awaits(pb.MsgHeartbeatResp)
	select {
	case <-stepped:
		t.Fatal("the append returned from a disk that hangs")
	default:
	}
	if got := f.answered(pb.MsgAppResp); len(got) > 0 {
		t.Fatalf("answered on a disk that hangs: %v", got)
	}
	before = f.syncs.Load()
	freeNext := f.hangs()
	free()
	f.ended("the append, though the next write hangs", stepped)
	freeNext()
	for f.awaits(pb.MsgAppResp).GetIndex() != 5 {
		continue
	}
	if syncs := f.syncs.Load() - before; syncs != 1 {
		t.Errorf("%d fsyncs for what came while the disk hung", syncs)
	}
}

// TestReaderOfVotesWaitsForNoDisk: on a disk that hangs, the reader of heartbeats and votes grants a vote and
// returns. The vote is sent when it is on the disk.
func TestReaderOfVotesWaitsForNoDisk(t *testing.T) {
	f := startFollower(t)
	free := f.hangs()
	f.returns("a reader of votes", func() {
		f.node.Step(&pb.Message{
			Type: pb.MsgVote.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(1)), Index: new(uint64(0)), LogTerm: new(uint64(0)),
		}, false)
		f.node.Step(heartbeatOf(1), false)
	})
	f.awaits(pb.MsgHeartbeatResp)
	if got := f.answered(pb.MsgVoteResp); len(got) > 0 {
		t.Fatalf("a vote leaves that is not on disk: %v", got)
	}
	free()
	if m := f.awaits(pb.MsgVoteResp); m.GetReject() {
		t.Fatal("the vote is refused")
	}
}

// TestHolderLooksAgain: work that is left at the very end of a turn is done, whichever goroutine has the turn.
func TestHolderLooksAgain(t *testing.T) {
	f := startFollower(t)
	f.node.Step(appendOf(1), false)
	for _, turn := range []func(){
		func() { f.node.Step(heartbeatOf(6), false) }, // of a reader
		func() { // of the keeper
			f.node.do(t.Context(), func(now time.Duration) { f.node.group.Step(now, heartbeatOf(6)) })
		},
	} {
		f.answered(pb.MsgHeartbeatResp)
		f.during.Store(new(func() { f.node.Step(heartbeatOf(6), false) }))
		turn()
		for range 2 {
			f.awaits(pb.MsgHeartbeatResp)
		}
	}
}

// TestNothingIsLeftBehind: many goroutines bring something at once, and no tick comes. Work that one of them
// leaves for another is always done.
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
	f.waitsFor("(*Runner).awaitBeside")
	f.returns("an append for nobody", func() { f.node.Step(appendOf(3), false) })
	select {
	case <-f.ends:
		t.Fatal("Run has returned while a write is under way")
	default:
	}
	free()
	f.ended("the append", stepped)
	if err := f.run(); err != nil {
		t.Fatal(err)
	}
}

// TestEndDuringAReadersWrite: the log fails for one reader while another one writes. Run waits for the write,
// and returns what has failed.
func TestEndDuringAReadersWrite(t *testing.T) {
	f := startFollower(t)
	f.node.Step(appendOf(1), false)
	free := f.hangs()
	stepped := make(chan struct{})
	go func() {
		f.node.Step(appendOf(2), false)
		close(stepped)
	}()
	f.writes(true)
	beyond := heartbeatOf(6)
	beyond.Commit, beyond.Term = new(uint64(99)), new(beyond.GetTerm()+1) // a leader that may know more
	f.returns("a heartbeat", func() { f.node.Step(beyond, false) })
	f.ended("the node", f.node.stopped)
	f.waitsFor("(*Runner).awaitBeside")
	select {
	case <-f.ends:
		t.Fatal("Run has returned while a write is under way")
	default:
	}
	free()
	f.ended("the append", stepped)
	if err := f.run(); !errors.Is(err, ErrLogBehind) {
		t.Fatalf("Run returned %v", err)
	}
}

// TestRunEndsAfterAWriteOfTheLastTurn: the goroutine that makes the write gets no further turn in which it
// could see the result.
func TestRunEndsAfterAWriteOfTheLastTurn(t *testing.T) {
	f := startFollower(t)
	f.node.Step(appendOf(1), false)
	free := f.hangs()
	var stop func()
	stop = f.busy(func(turn int) {
		if turn == turnsMax-1 {
			stop()
			f.node.inbox.Message(appendOf(2))
		}
	})
	worked := make(chan struct{})
	go func() {
		f.node.Work()
		close(worked)
	}()
	f.writes(true)
	f.stop()
	f.ended("the node", f.node.stopped)
	free()
	f.ended("the write", worked)
	if err := f.run(); err != nil {
		t.Fatal(err)
	}
}

// TestProposerMayWaitForTheDisk: Work writes to the log itself, Propose never does.
func TestProposerMayWaitForTheDisk(t *testing.T) {
	f := startFollower(t)
	propose := func(data []byte) {
		if err := f.node.Propose(t.Context(), data); err != nil {
			t.Error(err)
		}
	}
	free := f.hangs()
	f.returns("Propose", func() { propose(transactionsEntry(entry.Header{Term: 1, Number: 1, Count: 1}, 1)) })
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
	number := uint64(0)
	awaitStalled(t, testContext(t), "Work writes", func() bool { // at once, unless somebody has the turn just then
		if f.node.TryPropose(data) {
			number++
			data = transactionsEntry(entry.Header{Term: term, Number: number, Count: 1}, number)
		}
		f.node.Work()
		return f.worked.Load()
	})
	f.writes(false)
	defer f.hangs()()
	f.returns("Propose", func() { propose(data) })
}
