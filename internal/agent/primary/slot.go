package primary

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
	"github.com/quorate/quorate/internal/mysql/tap"
	"github.com/quorate/quorate/internal/raft/bulk"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/role"
	"github.com/quorate/quorate/internal/sys/clock"
)

// Slot holds the epoch of which this node is the primary; there is at most one. When its tap is
// closed, all acknowledging and all serving ends. Any goroutine may call its methods.
type Slot struct {
	cfg SlotConfig

	mu  sync.Mutex
	cur *tenure
}

// SlotConfig is what a Slot needs.
type SlotConfig struct {
	// Local returns the mysqld that runs, or ErrNoMysqld.
	Local func() (Local, error)
	// Own is this node, as its epochs name it.
	Own     func() entry.Epoch
	Raft    func() Raft
	Bulk    func() *bulk.Bulk
	Clients Clients
	Pace    *LagBound
	Inbox   *Inbox
	Clock   clock.Tasks
	Logger  *slog.Logger
}

// TapServer is the mysqld to which a tap connects.
type TapServer interface {
	Incarnation() uint64
	// ConnectTap connects the tap of an epoch. cfg has only what depends on the epoch.
	ConnectTap(ctx context.Context, e Epoch, cfg mysqlwire.TapConfig) (*mysqlwire.Tap, TapObserver, error)
	SemiSyncStatus(ctx context.Context) (SemiSync, error)
}

// TapObserver sees the batches of one tap.
type TapObserver interface {
	// Received is told of a batch before it is proposed, and again if the proposal is tried again.
	// Proposed is told afterwards.
	Received(b mysqlwire.Batch)
	Proposed(b mysqlwire.Batch, err error)
	// Majority: a majority has everything up to a batch. Acknowledged: the ACKs up to it are sent. Settled:
	// a deposed primary acknowledges all that was received up to it.
	Majority(number uint64)
	Acknowledged(number uint64)
	Settled(number uint64)
}

// Raft is consensus, as the primary asks it.
type Raft interface {
	Role() consensus.RoleState
	Committed() *consensus.Committed
	// Leads tells whether this node may serve as the leader now: its lease holds.
	Leads() bool
	Propose(ctx context.Context, data []byte) error
	// TryPropose does not block. Work does the work that follows from it.
	TryPropose(data []byte) bool
	Work()
	// Barrier waits until this node knows what a majority had committed when it was called.
	Barrier(ctx context.Context) error
	// TransferTo and Resign give leadership of a term away, if this node still has it.
	TransferTo(ctx context.Context, term uint64, to cluster.NodeID)
	Resign(ctx context.Context, term uint64)
}

// tenure is one tenure of the local mysqld as the primary. The slot's lock guards its Epoch.
type tenure struct {
	Epoch
	tap      *mysqlwire.Tap
	observer TapObserver
	uploads  bulk.Uploads
	ctx      context.Context // the tap's
	cancel   context.CancelFunc
}

// Ends implements Tap.
func (t *tenure) Ends(number uint64) (tap.Position, bool) { return t.tap.Ends(number) }

// Settle implements Tap.
func (t *tenure) Settle(number uint64) (transactions int, ok bool) {
	if transactions, ok = t.tap.Settle(number); ok {
		t.observer.Settled(number)
	}
	return transactions, ok
}

// NewSlot returns an empty Slot.
func NewSlot(cfg SlotConfig) *Slot { return &Slot{cfg: cfg} }

func (s *Slot) set(t *tenure) {
	s.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cur = t
}

// Close ends the epoch: its tap is closed when Close returns, so nothing is
// acknowledged after it.
func (s *Slot) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.close()
}

// close is Close. s.mu is held.
func (s *Slot) close() {
	if s.cur == nil {
		return
	}
	s.cur.cancel() // first: then run does not take the tap's end for a doubt about mysqld
	s.cur.tap.Close()
	s.cur = nil
}

// of returns the epoch of a term, or nil.
func (s *Slot) of(term uint64) *tenure {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.rules().Of(term) {
		return nil
	}
	return s.cur
}

// rules is what decides about the epoch, or nil. s.mu is held.
func (s *Slot) rules() *Epoch {
	if s.cur == nil {
		return nil
	}
	return &s.cur.Epoch
}

// Tap returns the tap of a term's epoch, and the incarnation of its mysqld.
func (s *Slot) Tap(term uint64) (tap *mysqlwire.Tap, incarnation uint64, ok bool) {
	if t := s.of(term); t != nil {
		return t.tap, t.Incarnation, true
	}
	return nil, 0, false
}

// Doubt tells the role machine of a doubt about the mysqld of a term's epoch, if there is one.
func (s *Slot) Doubt(term uint64, reason string) {
	if t := s.of(term); t != nil {
		s.cfg.Inbox.Doubt(t.Incarnation, reason)
	}
}

// Stats returns the tap's counters while there is one.
func (s *Slot) Stats() (mysqlwire.TapStats, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cur == nil {
		return mysqlwire.TapStats{}, false
	}
	return s.cur.tap.Stats(), true
}

// Committed is Epoch.Committed.
func (s *Slot) Committed(m consensus.Mark) {
	s.mu.Lock()
	t := s.cur
	s.rules().Committed(m)
	s.mu.Unlock()
	if t != nil && t.Of(m.Epoch) {
		t.observer.Majority(m.Number)
	}
}

// Refused reports a refused proposal. Stalled reports a log disk that does not answer. Both put the epoch's
// mysqld in doubt.
func (s *Slot) Refused(r consensus.Refusal) {
	s.Doubt(r.Term, fmt.Sprintf("a proposal was refused: %v", r.Err))
}
func (s *Slot) Stalled(term uint64, took time.Duration) {
	s.Doubt(term, fmt.Sprintf("the log's disk has not answered for %s", took.Round(time.Millisecond)))
}

// Acknowledge sends the ACKs that Epoch.Acknowledge allows. It is called in a turn of
// consensus; Tap.Ack does not block.
func (s *Slot) Acknowledge(index uint64) {
	term := s.cfg.Raft().Role().Term
	s.mu.Lock()
	t, number := s.cur, s.rules().Acknowledge(term, index)
	s.mu.Unlock()
	if number > 0 {
		t.tap.Ack(number)
		t.observer.Acknowledged(number)
	}
}

// RoleChanged does what Epoch.RoleChanged says, and tells the role machine. It closes no client's connection:
// there may be thousands, and it is called in a turn of consensus. The router closes them soon, except those
// that wait for an answer (Answering).
func (s *Slot) RoleChanged(r consensus.RoleState) {
	acksAreCommits := s.acksAreCommits()
	s.mu.Lock()
	answered := s.rules().Answering()
	if s.rules().RoleChanged(r, acksAreCommits) {
		s.close()
	}
	s.mu.Unlock()
	if answered {
		s.cfg.Clients.Wake()
	}
	s.cfg.Inbox.RaftChanged(role.RaftChanged{Term: r.Term, Leader: r.Leader, Leading: r.Leading})
}

// acksAreCommits tells whether an ACK waits for nothing but the commit. Only a leader
// knows what else it may have to wait for.
func (s *Slot) acksAreCommits() bool { return !s.cfg.Raft().Committed().State().State.AcksWait() }

// Serve lets clients' bytes into mysqld, as long as the lease of a term holds.
func (s *Slot) Serve(term uint64) {
	s.mu.Lock()
	s.rules().Serve(term)
	s.mu.Unlock()
	s.cfg.Clients.Wake()
}

// Unserve lets no more bytes of clients into mysqld: the router asks Serving before it passes any. When Unserve
// returns, the clients' connections to mysqld are closed.
func (s *Slot) Unserve() {
	s.mu.Lock()
	answered := s.rules().Answering()
	s.rules().Unserve()
	s.mu.Unlock()
	if answered {
		s.cfg.Clients.Wake()
		s.cfg.Clients.CloseAll()
	}
}

// Served is the term that clients are served in while its lease holds; 0 = none.
func (s *Slot) Served() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.rules().Serving() {
		return 0
	}
	return s.cur.Term
}

// Serving tells whether clients' bytes may pass into mysqld: the epoch is open and its lease holds (I5).
func (s *Slot) Serving() bool {
	term, raft := s.Served(), s.cfg.Raft()
	return term != 0 && raft.Leads() && raft.Role().Term == term
}

// Answering tells whether mysqld may still answer requests that it got under the lease: this
// node is the primary, also without the lease, or was the primary and is being settled.
func (s *Slot) Answering() bool {
	s.mu.Lock()
	answering := s.rules().Answering()
	s.mu.Unlock()
	return answering && s.acksAreCommits()
}

// OpenTap connects the tap of a new epoch and checks that mysqld waits for it
// and for nobody else.
func (s *Slot) OpenTap(ctx context.Context, term uint64) error {
	server, err := s.cfg.Local()
	if err != nil {
		return err
	}
	t := &tenure{Epoch: Epoch{Term: term, Incarnation: server.Incarnation()}}
	t.tap, t.observer, err = server.ConnectTap(ctx, t.Epoch, mysqlwire.TapConfig{
		Term: term, Exclude: s.cfg.Raft().Committed().GTIDs(), Tasks: s.cfg.Clock, Logger: s.cfg.Logger,
		OpenStage: func(ctx context.Context, id entry.StageID) (mysqlwire.StageWriter, error) {
			return t.uploads.Open(ctx, s.cfg.Bulk(), id)
		},
		ProposeNow: func(b mysqlwire.Batch) bool { return s.proposeNow(t, b) },
	})
	if err != nil {
		return err
	}
	t.ctx, t.cancel = context.WithCancel(context.WithoutCancel(ctx)) // the tap lives on when the operation has ended
	s.set(t)
	if ctx.Err() != nil || !s.cfg.Raft().Role().Leads(term) {
		s.Close() // the promotion ended while the tap connected
		return fmt.Errorf("the promotion in term %d ended", term)
	}
	return AwaitTap(ctx, server.SemiSyncStatus, s.cfg.Clock)
}

// CommitEpoch opens the epoch in the log. Its tap runs from then on: nothing can be proposed before.
func (s *Slot) CommitEpoch(ctx context.Context, term uint64) error {
	t := s.of(term)
	if t == nil {
		return fmt.Errorf("open epoch %d: its tap is gone", term)
	}
	e, raft := s.cfg.Own(), s.cfg.Raft()
	e.Term, e.FormatDescription = term, t.tap.FormatDescription()
	if err := Open(ctx, e, raft.Propose, raft.Committed().EpochChanged, s.cfg.Clock); err != nil {
		return err
	}
	s.cfg.Clock.Go(func() { s.run(t) })
	return nil
}

// proposeNow proposes a batch from the tap's reader, if the batch has nothing to wait for.
func (s *Slot) proposeNow(t *tenure, b mysqlwire.Batch) bool {
	if b.Staged != nil {
		return false
	}
	t.observer.Received(b)
	raft := s.cfg.Raft()
	if !s.cfg.Pace.TryPass(uint64(b.Bytes), func() bool { return raft.TryPropose(b.Data) }) {
		return false
	}
	t.observer.Proposed(b, nil)
	raft.Work() // not under the lag bound's lock: it may write to the log
	return true
}

// propose proposes what proposeNow did not.
func (s *Slot) propose(ctx context.Context, t *tenure, b mysqlwire.Batch) error {
	t.observer.Received(b)
	if err := s.cfg.Pace.Wait(ctx, uint64(b.Bytes)); err != nil {
		return err
	}
	err := t.uploads.Propose(b.Staged, func() error { return s.cfg.Raft().Propose(ctx, b.Data) })
	t.observer.Proposed(b, err)
	return err
}

// run proposes what the tap brings. If the tap ends and we have not ended it, that is a doubt
// about mysqld: sessions wait there and nobody listens.
func (s *Slot) run(t *tenure) {
	defer t.uploads.Close() // here and not in Slot.close, which must not wait for a disk
	err := t.tap.Run(t.ctx, func(ctx context.Context, b mysqlwire.Batch) error { return s.propose(ctx, t, b) })
	if t.ctx.Err() != nil || errors.Is(err, context.Canceled) {
		return
	}
	if errors.Is(err, seglog.ErrFull) {
		s.cfg.Logger.Error("the log's disk has no room for a large transaction: mysqld is killed, and the transaction is lost without an OK", "error", err)
	}
	reason := fmt.Sprintf("the tap ended: %v", err)
	if errors.Is(err, mysqlwire.ErrTapClosed) {
		reason = "mysqld ended, or it closed the tap's connection"
	}
	s.cfg.Inbox.Doubt(t.Incarnation, reason)
}
