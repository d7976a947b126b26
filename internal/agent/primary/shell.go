package primary

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/role"
	"github.com/quorate/quorate/internal/sys/clock"
)

const (
	// idleLeaderTimeout is how long a leader whose mysqld is not ready keeps leadership, if another node is ready.
	idleLeaderTimeout = 5 * time.Second
	// stopTimeout bounds a leader's wait for its successor when it stops.
	stopTimeout = 5 * time.Second
	// steadyAfter is how long a mysqld must have run to count as one that does not crash in a loop.
	steadyAfter = time.Minute
)

// Shell runs the role machine: it takes what happens out of an inbox, steps the machine with it, and
// executes what follows. Operations are carried out one at a time.
type Shell struct {
	Inbox   *Inbox
	Service Service
	Steps   Steps
	// Leads tells whether this node leads in a term.
	Leads func(term uint64) bool
	// PromotionTimeout bounds Judge and Replicate. The other operations have bounds of their own.
	PromotionTimeout time.Duration
	// Stepped is told of each step, before its effects are executed.
	Stepped func(m *role.Machine, in role.Input, before role.Phase, effects []role.Effect)
	// Began is told of each effect. Ended is told the outcome of each operation, before the role machine is.
	Began func(e role.Effect)
	Ended func(e role.Effect, d role.Done, err error)
	Clock clock.Tasks

	newest *operation
}

// NewRole returns a node's role machine.
func NewRole(self cluster.Member, promotionTimeout time.Duration) *role.Machine {
	return role.New(role.Config{
		Self: self.ID, Kind: self.Kind, Weight: self.Weight, RetryAfter: time.Second, FencedAfter: 5 * time.Second,
		PromotionTimeout: promotionTimeout, IdleLeaderTimeout: idleLeaderTimeout, StopTimeout: stopTimeout,
		SettleTimeout: SettleTimeout, SteadyAfter: steadyAfter,
	})
}

// Service has the effects that are executed at once. None of them waits for longer than a bounded time.
type Service interface {
	Serve(term uint64)
	Unserve()
	CloseTap()
	// Closing: CloseWrites begins.
	Closing()
	PlanEnded(reason string)
	Transfer(ctx context.Context, term uint64, to cluster.NodeID)
	Resign(ctx context.Context, term uint64)
}

// Steps are the operations, as package role describes them.
type Steps interface {
	StartMysqld(ctx context.Context, replicaBinlog bool) (incarnation uint64, err error)
	Judge(ctx context.Context, promote bool) error
	Replicate(ctx context.Context) error
	CatchUp(ctx context.Context) error
	OpenTap(ctx context.Context, term uint64) error
	CommitEpoch(ctx context.Context, term uint64) error
	OpenWrites(ctx context.Context, term uint64) error
	CloseWrites(ctx context.Context) error
	Settle(ctx context.Context, term uint64) error
	AwaitTarget(ctx context.Context, to cluster.NodeID, term uint64) error
	StopMysqld()
	// SignalKill sends the signal, KillMysqld returns once mysqld is gone.
	SignalKill()
	KillMysqld(ctx context.Context)
}

type operation struct {
	id     role.OpID
	cancel context.CancelFunc
	ended  atomic.Bool
	done   chan struct{} // closed after ended is set
}

// Run returns nil after the role machine's Exit effect, or the cause of ctx's end once ctx has ended. The
// machine gets the input first before it sees the time, and sees the time before all other inputs. Effects
// live no longer than ctx, except for a clean stop of mysqld.
func (s *Shell) Run(ctx context.Context, m *role.Machine, first role.Input) error {
	if s.step(ctx, m, first) {
		return nil
	}
	now := s.Inbox.cfg.Clock.Now
	began := now()
	every, due := tickInterval, began+tickInterval
	for {
		if next := s.Inbox.nextTick(m.Idle()); next != every || next != tickInterval {
			every, due = next, now()+next
		}
		batch, ticked, err := s.Inbox.next(ctx, due)
		if err != nil {
			return err
		}
		if ticked {
			due = now() + every
		}
		s.Inbox.look()
		for _, in := range append([]role.Input{role.Tick{Now: now() - began}}, batch...) {
			if s.step(ctx, m, in) {
				return nil
			}
		}
	}
}

// step steps the role machine once and executes what follows; it returns true after Exit.
func (s *Shell) step(ctx context.Context, m *role.Machine, in role.Input) bool {
	before := m.Phase()
	effects := m.Step(in)
	s.Stepped(m, in, before, effects)
	for _, e := range effects {
		if e.Kind == role.Exit {
			return true
		}
		s.Began(e)
		s.execute(ctx, e)
	}
	return false
}

// execute does one effect.
func (s *Shell) execute(ctx context.Context, e role.Effect) {
	switch e.Kind {
	case role.Cancel:
		if s.newest != nil && s.newest.id == e.Op {
			s.newest.cancel()
		}
	case role.Serve:
		s.Service.Serve(e.Term)
	case role.PlanEnded:
		s.Service.PlanEnded(e.Reason)
	case role.Unserve:
		s.Service.Unserve()
	case role.CloseTap:
		s.Service.CloseTap()
	case role.Transfer:
		s.Service.Transfer(ctx, e.Term, e.To)
	case role.Resign:
		s.Service.Resign(ctx, e.Term)
	default:
		if e.Kind == role.CloseWrites {
			s.Service.Closing()
		}
		s.begin(ctx, e)
	}
}

// begin starts an operation, which waits until the operation before has ended: that one is done, or was
// cancelled. But mysqld is killed at once, whatever the operation before waits for.
func (s *Shell) begin(ctx context.Context, e role.Effect) {
	before, life := s.newest, ctx
	ctx, cancel := context.WithCancel(ctx)
	op := &operation{id: e.Op, cancel: cancel, done: make(chan struct{})}
	s.newest = op
	if e.Kind == role.KillMysqld {
		s.Steps.SignalKill()
	}
	s.Clock.Go(func() {
		defer close(op.done)
		defer op.ended.Store(true)
		defer cancel()
		for before != nil && !before.ended.Load() {
			_ = s.Clock.Wait(context.Background(), 0, before.done)
		}
		incarnation, err := s.operate(ctx, e)
		d := Done(e.Op, incarnation, err)
		s.Ended(e, d, err)
		s.Inbox.Put(life, d)
	})
}

func (s *Shell) operate(ctx context.Context, e role.Effect) (incarnation uint64, err error) {
	if e.Term != 0 && e.Kind != role.Settle && !s.Leads(e.Term) {
		return 0, fmt.Errorf("this node does not lead in term %d", e.Term)
	}
	if e.Kind == role.Judge || e.Kind == role.Replicate {
		var cancel context.CancelFunc
		ctx, cancel = s.Clock.WithTimeout(ctx, s.PromotionTimeout)
		defer cancel()
	}
	switch e.Kind {
	case role.StartMysqld:
		return s.Steps.StartMysqld(ctx, e.ReplicaBinlog)
	case role.Judge:
		err = s.Steps.Judge(ctx, e.Promote)
	case role.Replicate:
		err = s.Steps.Replicate(ctx)
	case role.CatchUp:
		err = s.Steps.CatchUp(ctx)
	case role.OpenTap:
		err = s.Steps.OpenTap(ctx, e.Term)
	case role.CommitEpoch:
		err = s.Steps.CommitEpoch(ctx, e.Term)
	case role.OpenWrites:
		err = s.Steps.OpenWrites(ctx, e.Term)
	case role.CloseWrites:
		err = s.Steps.CloseWrites(ctx)
	case role.Settle:
		err = s.Steps.Settle(ctx, e.Term)
	case role.AwaitTarget:
		err = s.Steps.AwaitTarget(ctx, e.To, e.Term)
	case role.StopMysqld:
		s.Steps.StopMysqld()
	case role.KillMysqld:
		s.Steps.KillMysqld(ctx)
	default:
		err = fmt.Errorf("unknown effect %s", e)
	}
	return 0, err
}
