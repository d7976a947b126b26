package consensus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/raft/entry"
)

// ErrStopped is returned to callers of a Runner that is not running any more.
var ErrStopped = errors.New("consensus: stopped")

// Config is what a Runner is built from.
type Config struct {
	Self    cluster.NodeID
	Members []cluster.Member
	// State is as in GroupConfig.
	State *cluster.StatePoint
	// Heartbeat and ElectionTimeout are raft's timing.
	Heartbeat, ElectionTimeout time.Duration
	Log                        Log
	// Fresh says that this is the node's first start ever: it has made no promises.
	Fresh bool
	// Promised is as in GroupConfig.
	Promised time.Duration
	// Machine is what the Runner runs on; nil = this machine.
	Machine Machine
	Logger  *slog.Logger
	// Send hands messages to the transport; it never blocks. All functions of this Config are called in a turn.
	// Send is also called by the goroutine that makes a write.
	Send func([]*pb.Message)
	// OnRole is called at each change; it must not block.
	OnRole func(RoleState)
	// OnLease is called when Lease may have changed; it must not block. nil = no listener.
	OnLease func()
	// OnCommit is called after the commit check went forward; it must not block.
	OnCommit func(Mark)
	// OnState is called when a change of the cluster state was committed. It must not block. nil = no listener.
	OnState func(StateOutcome)
	// OnAcknowledge is called on a leader when it may acknowledge what is committed up to an index, after the
	// OnCommit of that index. OnAckEvent is called when a require-ack is dropped or restored. They must not
	// block. nil = no listener.
	OnAcknowledge func(index uint64)
	OnAckEvent    func(cluster.AckEvent)
	// OnRefused is called when a proposal was refused: its epoch has ended. It must not block.
	OnRefused func(Refusal)
	// HasStage tells whether the log holds a stage, complete and durable.
	HasStage func(entry.StageID) bool
	// OnBroken is called when a member has sent a message that is refused (ErrBroken), for each member at most
	// once in refusedElections election timeouts. It must not block. nil = no listener.
	OnBroken func(Broken)
	// OnWanted is called when the leader has named a stage that this node lacks, again and again until the node
	// has it. It must not block.
	OnWanted func(Wanted)
	// OnBarrier is called with the answer to a read barrier that was begun at the Group. It must not block. A
	// Runner sets its own. nil = no listener.
	OnBarrier func(Barrier)
	// OnFull is called with the error when the log's disk has no space left, and with nil when it has space
	// again. It must not block.
	OnFull func(error)
	// OnStalled is called on a leader while one write to its log has taken longer than an election timeout, at
	// most once per election timeout. It must not block.
	OnStalled func(term uint64, took time.Duration)
}

// Runner is the shell around a Driver. Build it with New, then Run it.
type Runner struct {
	cfg     Config
	machine Machine
	driver  *Driver
	group   *Group // the driver's Group

	// mu is held during a turn by the goroutine that has it, and by New until Run. What comes meanwhile is in
	// inbox.
	mu    sync.Mutex
	inbox Inbox
	alarm alarm
	// ended: stopped is closed. failure says why; nil = the stop was asked for.
	ended   bool
	failure error
	stopped chan struct{}
	// kept wakes the keeper: something waits in the inbox, a call waits, the alarm has rung, or the node has
	// ended.
	kept chan struct{}
	// beside counts the goroutines that run beside Run, and the write under way (there is at most one). left
	// has a value when one of these has ended.
	beside atomic.Int64
	left   chan struct{}

	barriers Barriers

	states stateWaiters
}

// New builds a Runner; it starts nothing.
func New(cfg Config) (*Runner, error) {
	n := &Runner{
		cfg:     cfg,
		machine: cfg.Machine,
		inbox:   Inbox{room: make(chan struct{}, 1)},
		stopped: make(chan struct{}),
		kept:    make(chan struct{}, 1),
		left:    make(chan struct{}, 1),
	}
	if n.machine == nil {
		n.machine = RealMachine{}
	}
	cfg.OnBarrier, cfg.OnState = n.barriers.Answer, n.reportState
	d, err := NewDriver(cfg, n.machine.Boot())
	if err != nil {
		return nil, err
	}
	d.watchClocks(readClocks(n.machine))
	n.driver, n.group = d, d.Group()
	n.barriers.Committed, n.barriers.Clock = d.Committed(), n.machine
	n.barriers.Retry, n.barriers.First = cfg.Heartbeat, n.machine.Random()
	n.barriers.Start = func(ctx context.Context, id uint64, kind barrierKind) {
		n.do(ctx, func(time.Duration) {
			if kind == contextAsk {
				n.group.AskLeader(id)
			} else {
				n.group.StartBarrier(id)
			}
		})
	}
	n.mu.Lock() // Run takes the first turn
	return n, nil
}

// Group returns the Group. Only a caller that runs the whole node on one thread may use it: outside of a turn,
// another goroutine may be in the middle of one.
func (n *Runner) Group() *Group { return n.group }

// Committed returns the commit check. Any goroutine may read it.
func (n *Runner) Committed() *Committed { return n.driver.Committed() }

// Role returns the newest state.
func (n *Runner) Role() RoleState { return n.driver.Role() }

// Lease is Driver.Lease.
func (n *Runner) Lease() (boot time.Duration, wall time.Time) { return n.driver.Lease() }

// LeaseLeft returns for how long the lease still holds by the boot clock, and whether there is a lease.
func (n *Runner) LeaseLeft() (time.Duration, bool) {
	until, _ := n.driver.Lease()
	return until - n.machine.Boot(), until != 0
}

// Leads tells whether this node may serve as the leader now (I5).
func (n *Runner) Leads() bool {
	now := readClocks(n.machine)
	return n.driver.LeadsAt(now.boot, now.wall)
}

// Acks is Driver.Acks.
func (n *Runner) Acks() *cluster.AckStatus { return n.driver.Acks() }

// Stalled is Driver.Stalled at the present time.
func (n *Runner) Stalled() time.Duration { return n.driver.Stalled(n.machine.Boot()) }

// VotesIn is for how long this node, just restarted, still votes for no other node.
func (n *Runner) VotesIn() time.Duration { return max(0, n.group.VotesAt()-n.machine.Boot()) }

// Collectors returns the node's own metrics.
func (n *Runner) Collectors() []prometheus.Collector { return n.driver.Collectors() }

// CommitSeconds returns how long this node's own proposals take: own until they are on this node's disk,
// majority from there until their commit.
func (n *Runner) CommitSeconds() (own, majority prometheus.Histogram) {
	return n.driver.timings.fsyncedSeconds, n.driver.timings.majoritySeconds
}

// Step takes a peer's message. more says that the caller has another message at hand and brings it now: then
// one turn serves both. A short append is written to the log before Step returns, unless a write is under way:
// then it is part of the next group commit. If very much waits for a turn, Step waits for one.
func (n *Runner) Step(m *pb.Message, more bool) {
	switch full := n.inbox.Message(m); {
	case full:
		n.waitTurn(nil)
	case !more:
		n.work(m.GetType() == pb.MsgApp)
	}
}

// Propose queues one entry (package entry). It blocks while the queue is full. A nil error means only that the
// entry is queued. It may still be refused (Config.OnRefused), and counts only once it is committed.
func (n *Runner) Propose(ctx context.Context, data []byte) error {
	for !n.isStopped() {
		if n.inbox.Propose(data) {
			n.work(false)
			return nil
		}
		if err := n.machine.Wait(ctx, 0, n.inbox.room); err != nil {
			return err
		}
	}
	return ErrStopped
}

func (n *Runner) isStopped() bool {
	select {
	case <-n.stopped:
		return true
	default:
		return false
	}
}

// TryPropose queues an entry if the queue has room; else it returns false. After true the caller must call
// Work.
func (n *Runner) TryPropose(data []byte) bool { return n.inbox.Propose(data) }

// Work does what waits for a turn, unless another goroutine has the turn. It also makes a short write to the
// log that follows from it. The caller must be a goroutine that may wait for the disk.
func (n *Runner) Work() { n.work(true) }

// TransferTo asks raft to make another node the leader, if this one still leads
// in the given term. The lease of the term ends before TransferTo returns.
func (n *Runner) TransferTo(ctx context.Context, term uint64, id cluster.NodeID) {
	n.do(ctx, func(time.Duration) { n.group.TransferTo(term, id) })
}

// Resign gives leadership of the given term up without a successor and stands for election again.
func (n *Runner) Resign(ctx context.Context, term uint64) {
	n.do(ctx, func(time.Duration) { n.group.Resign(term) })
}

// PeerRefused says that a new dial to a peer was refused: its process is dead.
func (n *Runner) PeerRefused(id cluster.NodeID) {
	n.do(context.Background(), func(now time.Duration) { n.group.LeaderGone(now, id) })
}

// PeerUnreachable says that messages to a peer were dropped.
func (n *Runner) PeerUnreachable(id cluster.NodeID) {
	n.do(context.Background(), func(time.Duration) { n.group.Unreachable(id) })
}

// Barrier returns once this node's commit check has passed everything that was committed anywhere when Barrier
// was called. It fails only with ctx or when the node stops; without a leader it waits.
func (n *Runner) Barrier(ctx context.Context) error { return n.barriers.Wait(ctx) }

// AskLeader waits until a leader confirms that a majority still followed it when AskLeader was called or later.
// index covers everything that was committed anywhere then. This node may not have that yet. AskLeader fails as
// Barrier does. The answer comes up to a heartbeat interval later than a barrier's, and costs no heartbeats.
func (n *Runner) AskLeader(ctx context.Context) (index uint64, err error) {
	return n.barriers.Ask(ctx, contextAsk)
}

// reportState reports a change that was committed.
func (n *Runner) reportState(o StateOutcome) {
	if n.cfg.OnState != nil {
		n.cfg.OnState(o)
	}
	n.states.answer(o)
}

// Tail is what a node says of its log to a peer that heals its own log.
type Tail struct {
	// Term is Raft's term. Leading: this node led in it all the time, and Commit covers everything that was
	// committed anywhere before this node was asked.
	Term    uint64
	Leading bool
	// First is the log's first index. Last is the newest entry that may be on any node's disk: this node's own
	// disk may be behind.
	First, Last, Commit uint64
}

// Tail asks a majority, and then returns the state of the log.
func (n *Runner) Tail(ctx context.Context) (Tail, error) {
	before := n.Role()
	if err := n.Barrier(ctx); err != nil {
		return Tail{}, err
	}
	t, err := ask(ctx, n, func(time.Duration) Tail {
		return Tail{
			Term: before.Term, Leading: before.Leading && n.group.Role() == before,
			First: n.cfg.Log.FirstIndex(), Last: n.group.LastIndex(), Commit: n.Committed().Mark().Index,
		}
	})
	if err != nil {
		return Tail{}, fmt.Errorf("ask for the log's tail: %w", err)
	}
	return t, nil
}
