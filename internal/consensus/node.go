package consensus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"golang.org/x/sync/errgroup"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/entry"
	"github.com/quorate/quorate/internal/seglog"
)

// Bounds of the shell.
const (
	// proposalsMax is how many entries may wait for the loop. An entry grows
	// while it waits at the tap, so a short queue makes larger groups.
	proposalsMax = 4
	// messagesMax is how many peer messages may wait for the loop; a full queue
	// blocks the peer's reader, which is TCP's back-pressure.
	messagesMax = 1024
	// appendsMax is how many writes may wait for the append goroutine. Each is
	// one turn of the loop; raft bounds their bytes.
	appendsMax = 1024
	// appendEntriesMax and appendBytesMax bound one group commit; a single
	// message may be longer. 8 MiB take a slow disk well below an election
	// timeout, beyond which it counts as stalled.
	appendEntriesMax = 1024
	appendBytesMax   = 8 << 20
	// fullRetryInterval is the pause between two tries to append to a full disk.
	fullRetryInterval = 500 * time.Millisecond
	// barriersMax bounds the callers that wait for a read barrier.
	barriersMax = 64
)

// ErrStopped is returned to callers of a Node that is not running any more.
var ErrStopped = errors.New("consensus: stopped")

// Config is what a Node is built from.
type Config struct {
	Self    cluster.NodeID
	Members []cluster.Member
	// State is as in GroupConfig.
	State *cluster.StatePoint
	// Heartbeat and ElectionTimeout are raft's timing.
	Heartbeat, ElectionTimeout time.Duration
	Log                        Log
	// Fresh says that this is the node's first start ever: it has promised
	// nothing to anybody.
	Fresh bool
	// Promised is as in GroupConfig.
	Promised time.Duration
	Logger   *slog.Logger
	// Send hands messages to the transport; it never blocks.
	Send func([]*pb.Message)
	// OnRole is called by the loop at each change; it must not block.
	OnRole func(RoleState)
	// OnLease is called by the loop when Lease may have changed; it must not block.
	// nil = nobody listens.
	OnLease func()
	// OnCommit is called by the loop after the commit check went forward; it
	// must not block.
	OnCommit func(Mark)
	// OnState is called by the loop when a change of the cluster state was
	// committed. It must not block. nil = nobody listens.
	OnState func(StateOutcome)
	// OnAcknowledge is called by the loop of a leader when it may acknowledge what
	// is committed up to an index, after the OnCommit of that index; OnAckEvent
	// when a require-ack is dropped or taken back. They must not block. nil = nobody
	// listens.
	OnAcknowledge func(index uint64)
	OnAckEvent    func(cluster.AckEvent)
	// OnRefused is called by the loop when a proposal was refused: its epoch
	// has ended. It must not block.
	OnRefused func(Refusal)
	// HasStage tells whether the log holds a stage, complete and durable.
	HasStage func(entry.StageID) bool
	// OnWanted is called by the loop when the leader has named a stage that this
	// node lacks, again and again until it has it. It must not block.
	OnWanted func(Wanted)
	// OnFull is called by the append goroutine when the log has no space left on
	// its disk, with the error, and when it has space again, with nil. It must
	// not block.
	OnFull func(error)
	// OnStalled is called by the loop of a leader, at most once per election
	// timeout, while one write to its log has taken longer than that. It must
	// not block.
	OnStalled func(term uint64, took time.Duration)
}

// ticksPerHeartbeat sets the resolution of raft's timers.
const ticksPerHeartbeat = 4

// Node is the shell around a Group. Build it with New, then Run it.
type Node struct {
	cfg   Config
	group *Group
	role  atomic.Pointer[RoleState]
	lease atomic.Pointer[clocks] // until then; never nil

	messages  chan *pb.Message
	responses chan []*pb.Message // of the append goroutine; see runAppend
	proposals chan []byte
	control   chan func(now time.Duration)
	appends   chan *pb.Message
	stopped   chan struct{}

	barrierMu  sync.Mutex
	barrierSeq uint64
	barriers   map[uint64]chan uint64

	states  stateWaiters
	timings *timings
	sent    messageCounts
	acks    atomic.Pointer[cluster.AckStatus]

	// appendBegan is the boot time at which the group commit under way began;
	// 0 = none. diskCheckAfter is the loop's, and suspectAppend: one that took too
	// long when it was first looked at.
	appendBegan    atomic.Int64
	full           atomic.Bool // its disk has no space: reported by OnFull
	diskCheckAfter time.Duration
	suspectAppend  time.Duration
}

// New builds a Node; it starts nothing.
func New(cfg Config) (*Node, error) {
	tick := cfg.Heartbeat / ticksPerHeartbeat
	n := &Node{
		cfg:       cfg,
		messages:  make(chan *pb.Message, messagesMax),
		responses: make(chan []*pb.Message, appendsMax),
		proposals: make(chan []byte, proposalsMax),
		control:   make(chan func(time.Duration)),
		appends:   make(chan *pb.Message, appendsMax),
		stopped:   make(chan struct{}),
		barriers:  map[uint64]chan uint64{},
		// An answer to a former life of this process, still on its way, must not
		// answer a barrier of this one.
		barrierSeq: rand.Uint64(),
		timings:    newTimings(),
		sent:       newMessageCounts(),
	}
	g, err := NewGroup(GroupConfig{
		Self: cfg.Self, Members: cfg.Members, State: cfg.State, Tick: tick,
		HeartbeatTicks: ticksPerHeartbeat, ElectionTicks: int(cfg.ElectionTimeout / tick),
		Log: cfg.Log, HasStage: cfg.HasStage, Fresh: cfg.Fresh, Promised: cfg.Promised,
		Logger: cfg.Logger, Now: BootTime(),
	})
	if err != nil {
		return nil, err
	}
	n.group = g
	n.lease.Store(&clocks{})
	n.watchClocks(readClocks())
	n.role.Store(&RoleState{Term: cfg.Log.HardState().Term})
	return n, nil
}

// Committed is the commit check, readable by everybody.
func (n *Node) Committed() *Committed { return n.group.Committed() }

// Role returns the newest state.
func (n *Node) Role() RoleState { return *n.role.Load() }

// Leads tells whether this node may serve as the leader now (I5).
func (n *Node) Leads() bool { return n.leads(readClocks()) }

// Step hands a peer's message to the loop; it blocks while the queue is full.
func (n *Node) Step(m *pb.Message) {
	select {
	case n.messages <- m:
	case <-n.stopped:
	}
}

// Propose queues one entry (package entry) for the loop. It blocks while the
// queue is full. A nil error means queued, no more: the entry may still be
// refused (Config.OnRefused) and counts only once it is committed.
func (n *Node) Propose(ctx context.Context, data []byte) error {
	select {
	case n.proposals <- data:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-n.stopped:
		return ErrStopped
	}
}

// TryPropose is Propose where the queue has room; else it does nothing.
func (n *Node) TryPropose(data []byte) bool {
	select {
	case n.proposals <- data:
		return true
	default:
		return false
	}
}

// do runs f in the loop, unless ctx ends or the node stops before.
func (n *Node) do(ctx context.Context, f func(now time.Duration)) {
	select {
	case n.control <- f:
	case <-ctx.Done():
	case <-n.stopped:
	}
}

// TransferTo asks raft to make another node the leader, if this one still leads
// in the given term. The lease of the term ends before TransferTo returns. It
// waits for the loop, at most as long as ctx.
func (n *Node) TransferTo(ctx context.Context, term uint64, id cluster.NodeID) {
	done := make(chan struct{})
	n.do(ctx, func(time.Duration) {
		n.group.TransferTo(term, id)
		n.publishLease()
		close(done)
	})
	select {
	case <-done:
	case <-ctx.Done():
	case <-n.stopped:
	}
}

// Resign gives leadership of the given term up without a successor and stands
// for election anew.
func (n *Node) Resign(ctx context.Context, term uint64) {
	n.do(ctx, func(time.Duration) { n.group.Resign(term) })
}

// PeerRefused says that a fresh dial to a peer was refused: its process is dead.
func (n *Node) PeerRefused(id cluster.NodeID) {
	n.do(context.Background(), func(now time.Duration) { n.group.LeaderGone(now, id) })
}

// PeerUnreachable says that messages to a peer were dropped.
func (n *Node) PeerUnreachable(id cluster.NodeID) {
	n.do(context.Background(), func(time.Duration) { n.group.Unreachable(id) })
}

// Barrier returns once this node has passed its commit check up to everything
// that was committed anywhere when Barrier was called. It fails only with ctx
// or when the node stops; without a leader it waits.
func (n *Node) Barrier(ctx context.Context) error {
	index, err := n.askLeader(ctx)
	if err != nil {
		return err
	}
	return n.waitCommitted(ctx, index)
}

// AskLeader returns once a leader has answered that a majority still followed when
// AskLeader was called, or later. It fails as Barrier does.
func (n *Node) AskLeader(ctx context.Context) error {
	_, err := n.askLeader(ctx)
	return err
}

func (n *Node) askLeader(ctx context.Context) (index uint64, err error) {
	id, answer, err := n.addBarrier()
	if err != nil {
		return 0, err
	}
	defer n.removeBarrier(id)
	retry := time.NewTicker(n.cfg.Heartbeat)
	defer retry.Stop()
	for {
		n.do(ctx, func(time.Duration) { n.group.StartBarrier(id) })
		select {
		case index := <-answer:
			return index, nil
		case <-retry.C: // dropped without a leader: ask again
		case <-ctx.Done():
			return 0, fmt.Errorf("no majority of the nodes answers: %w", ctx.Err())
		case <-n.stopped:
			return 0, ErrStopped
		}
	}
}

func (n *Node) addBarrier() (uint64, chan uint64, error) {
	n.barrierMu.Lock()
	defer n.barrierMu.Unlock()
	if len(n.barriers) >= barriersMax {
		return 0, nil, fmt.Errorf("consensus: %d read barriers wait already", barriersMax)
	}
	n.barrierSeq++
	answer := make(chan uint64, 1)
	n.barriers[n.barrierSeq] = answer
	return n.barrierSeq, answer, nil
}

func (n *Node) removeBarrier(id uint64) {
	n.barrierMu.Lock()
	defer n.barrierMu.Unlock()
	delete(n.barriers, id)
}

func (n *Node) answerBarriers(answers []Barrier) {
	n.barrierMu.Lock()
	defer n.barrierMu.Unlock()
	for _, b := range answers {
		if c, ok := n.barriers[b.ID]; ok {
			select {
			case c <- b.Index:
			default: // answered before
			}
		}
	}
}

func (n *Node) waitCommitted(ctx context.Context, index uint64) error {
	for {
		mark, changed := n.Committed().Changed()
		if mark.Index >= index {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for index %d to be committed here: %w", index, ctx.Err())
		case <-n.stopped:
			return ErrStopped
		}
	}
}

// Run drives the group until ctx ends (nil) or the log fails (an error).
func (n *Node) Run(ctx context.Context) error {
	eg, ctx := errgroup.WithContext(ctx)
	eg.Go(func() error { return n.runAppend(ctx) })
	eg.Go(func() error {
		defer close(n.stopped)
		return n.runLoop(ctx)
	})
	return eg.Wait()
}

func (n *Node) runLoop(ctx context.Context) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case logFailure:
			n.lease.Store(&clocks{})
			err = r.err
		default:
			panic(r)
		}
	}()
	ticker := time.NewTicker(n.cfg.Heartbeat / ticksPerHeartbeat)
	defer ticker.Stop()
	notice := noticeTimer{timer: time.NewTimer(0)}
	defer notice.timer.Stop()
	for {
		proposals := n.proposals
		if n.group.Blocked() {
			proposals = nil
		}
		select {
		case <-ctx.Done():
			n.lease.Store(&clocks{})
			return nil
		case <-ticker.C:
			now := readClocks()
			n.watchClocks(now)
			n.group.Tick(now.boot)
			n.acks.Store(n.group.Acks())
			n.checkDisk()
		case m := <-n.messages:
			n.group.Step(BootTime(), m)
			n.drainMessages()
		case rs := <-n.responses:
			n.stepAll(rs)
		case data := <-proposals:
			n.propose(data)
		case <-notice.timer.C:
			notice.at = 0
			n.group.Notify(BootTime())
		case <-n.cfg.Log.Arrived():
			n.group.SendMore()
		case f := <-n.control:
			f(BootTime())
		}
		if err := n.drainReady(ctx); err != nil {
			return err
		}
		notice.set(n.group.NoticeAt())
	}
}

// noticeTimer wakes the loop for Group.Notify. Most notices are not needed by the time
// that they are due, and a timer that is set anew may cost a system call: so it is left to
// run out, and then set for what is due next.
type noticeTimer struct {
	timer *time.Timer
	at    time.Duration // boot time; 0 = it does not run
}

func (t *noticeTimer) set(due time.Duration) {
	if due == 0 || t.at != 0 && t.at <= due {
		return
	}
	t.at = due
	t.timer.Reset(due - BootTime())
}

// checkDisk reports a leader's log that does not answer: followers still append
// and raft still commits, but nothing that this node does not have on its own
// disk is acknowledged, so every writer hangs.
func (n *Node) checkDisk() {
	began := time.Duration(n.appendBegan.Load())
	now := BootTime()
	if began == 0 || n.full.Load() || now-began < n.cfg.ElectionTimeout || now < n.diskCheckAfter || !n.group.Role().Leading {
		return
	}
	if n.suspectAppend != began { // not at the first look: the agent may have been stopped itself
		n.suspectAppend, n.diskCheckAfter = began, now+n.cfg.Heartbeat
		return
	}
	n.diskCheckAfter = now + n.cfg.ElectionTimeout
	n.cfg.OnStalled(n.group.Role().Term, now-began)
}

// drainMessages takes what else has arrived, so that one turn of the loop
// serves it all; bounded, to let ticks and proposals through.
func (n *Node) drainMessages() {
	now := BootTime()
	for range 64 {
		select {
		case m := <-n.messages:
			n.group.Step(now, m)
		case rs := <-n.responses:
			n.stepAll(rs)
		default:
			return
		}
	}
}

func (n *Node) stepAll(ms []*pb.Message) {
	now := BootTime()
	for _, m := range ms {
		n.group.Step(now, m)
	}
}

func (n *Node) propose(data []byte) {
	n.timings.proposed(data)
	n.group.Propose(data)
	for !n.group.Blocked() {
		select {
		case more := <-n.proposals:
			n.timings.proposed(more)
			n.group.Propose(more)
		default:
			return
		}
	}
}

func (n *Node) drainReady(ctx context.Context) error {
	for {
		out, ok := n.group.Ready()
		if !ok {
			n.publishLease()
			return nil
		}
		n.publishLease()
		n.report(out) // ACKs before all else: they wait for nothing that follows
		n.send(out.Send)
		for _, m := range out.Append {
			select {
			case n.appends <- m:
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// report tells what a turn has come to, the ACKs first of what is not needed for them.
func (n *Node) report(out Output) {
	if out.Role != nil {
		n.role.Store(out.Role)
		n.timings.reset()
		n.cfg.OnRole(*out.Role)
	}
	if out.Committed {
		n.cfg.OnCommit(n.group.committed.Mark())
	}
	n.reportAcks(out)
	if out.Committed {
		n.timings.committed(n.group.committed.Mark())
		n.reportStates(out.States)
		n.group.committed.publish()
	}
	for _, r := range out.Refused {
		n.cfg.OnRefused(r)
	}
	for _, w := range out.Wanted {
		n.cfg.OnWanted(w)
	}
	if len(out.Barriers) > 0 {
		n.answerBarriers(out.Barriers)
	}
}

// runAppend is the log's only writer: it takes everything that waits, writes
// it with one fsync and delivers the responses, those for peers directly.
//
// responses is as long as appends and each turn sends at most one element per
// message taken, so the loop, which fills appends, is never waited for in a
// circle: when appends is full the loop blocks, this goroutine takes from
// appends and always finds room in responses.
func (n *Node) runAppend(ctx context.Context) error {
	var batch, next []*pb.Message
	for {
		batch = append(batch[:0], next...)
		if len(batch) == 0 {
			select {
			case <-ctx.Done():
				return nil
			case m := <-n.appends:
				batch = append(batch, m)
			}
		}
		entries, bytes := sizeOf(batch[0])
	more:
		for entries < appendEntriesMax && bytes < appendBytesMax {
			select {
			case m := <-n.appends:
				batch = append(batch, m)
				e, b := sizeOf(m)
				entries, bytes = entries+e, bytes+b
			default:
				break more
			}
		}
		began := time.Now()
		n.appendBegan.Store(int64(BootTime()))
		var err error
		if next, err = n.append(ctx, batch); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("append to the log: %w", err)
		}
		n.appendBegan.Store(0)
		n.timings.appended(batch, began)
		if err := n.deliver(ctx, batch); err != nil {
			return nil
		}
	}
}

func sizeOf(m *pb.Message) (entries, bytes int) {
	for _, e := range m.GetEntries() {
		bytes += len(e.GetData())
	}
	return len(m.GetEntries()), bytes
}

// append makes a batch durable. What came meanwhile, while the disk was full,
// comes next.
func (n *Node) append(ctx context.Context, batch []*pb.Message) (next []*pb.Message, err error) {
	runs := AppendRuns(batch)
	var waiting *FullDisk
	for i, run := range runs {
		err := n.appendRun(run)
		if errors.Is(err, seglog.ErrFull) {
			if waiting == nil {
				waiting = NewFullDisk(n.cfg.Self, runs[i:])
			}
			var held []*pb.Message
			held, err = n.waitForSpace(ctx, run, waiting, err)
			next = append(next, held...)
		}
		if err != nil {
			return nil, err
		}
	}
	return next, nil
}

func (n *Node) appendRun(run AppendRun) error {
	return n.cfg.Log.Append(run.Entries, run.Newest(n.cfg.Log.HardState()))
}

// waitForSpace tries run again until the disk has space for it and for the newest term
// and vote: raft counts on both. waiting decides what goes on meanwhile. It returns the
// messages with entries that have come, which are as many as raft lets be under way.
func (n *Node) waitForSpace(ctx context.Context, run AppendRun, waiting *FullDisk, full error) (held []*pb.Message, err error) {
	n.full.Store(true)
	n.cfg.OnFull(full)
	retry := time.NewTicker(fullRetryInterval)
	defer retry.Stop()
	appended := false
	for votes := []*pb.Message(nil); ; {
		err := n.storeVote(waiting)
		if err == nil {
			n.answer(votes)
		} else if !errors.Is(err, seglog.ErrFull) {
			return nil, err
		}
		if appended && err == nil {
			n.full.Store(false)
			n.cfg.OnFull(nil)
			return held, nil
		}
		votes = nil // sent, or never: the disk did not even take them
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case m := <-n.appends:
			var waits bool
			if votes, waits = waiting.Take(m); waits {
				held = append(held, m)
			}
			continue
		case <-retry.C:
		}
		if appended {
			continue
		}
		err = n.appendRun(run)
		if err != nil && !errors.Is(err, seglog.ErrFull) {
			return nil, err
		}
		appended = err == nil
	}
}

// storeVote stores the term and vote of what waits for space.
func (n *Node) storeVote(waiting *FullDisk) error {
	if hs := waiting.Vote(n.cfg.Log.HardState()); hs != nil {
		return n.cfg.Log.Append(nil, hs)
	}
	return nil
}

// answer sends responses of the log to peers.
func (n *Node) answer(responses []*pb.Message) {
	if len(responses) > 0 {
		CheckAnswers(responses, n.cfg.Log.HardState())
		n.send(responses)
	}
}

func (n *Node) deliver(ctx context.Context, batch []*pb.Message) error {
	var peers, self []*pb.Message
	for _, m := range batch {
		for _, r := range m.GetResponses() {
			if r.GetTo() == uint64(n.cfg.Self) {
				self = append(self, r)
			} else {
				peers = append(peers, r)
			}
		}
	}
	n.answer(peers)
	if len(self) == 0 {
		return nil
	}
	select {
	case n.responses <- self:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Tail is what a node says of its log to a peer that heals its own.
type Tail struct {
	// Term is Raft's; Leading: this node led in it all the time, and Commit covers
	// everything that was committed anywhere before it was asked.
	Term    uint64
	Leading bool
	// First is the log's first index. Last is the newest entry that may be on
	// anybody's disk: this node's own may be behind.
	First, Last, Commit uint64
}

// Tail asks a majority, and then says where the log is.
func (n *Node) Tail(ctx context.Context) (Tail, error) {
	before := n.Role()
	if err := n.Barrier(ctx); err != nil {
		return Tail{}, err
	}
	answer := make(chan Tail, 1)
	n.do(ctx, func(time.Duration) {
		answer <- Tail{
			Term: before.Term, Leading: before.Leading && n.group.Role() == before,
			First: n.cfg.Log.FirstIndex(), Last: n.group.LastIndex(), Commit: n.Committed().Mark().Index,
		}
	})
	select {
	case t := <-answer:
		return t, nil
	case <-ctx.Done():
		return Tail{}, fmt.Errorf("ask for the log's tail: %w", ctx.Err())
	case <-n.stopped:
		return Tail{}, ErrStopped
	}
}

// ReadCommitted returns committed entries from index on, at least one and at
// most bytesMax of them unless the first is larger; ok=false when index is not
// committed yet.
func (n *Node) ReadCommitted(index, bytesMax uint64) (found []seglog.Entry, ok bool, err error) {
	return n.Committed().Read(n.cfg.Log, index, bytesMax)
}
