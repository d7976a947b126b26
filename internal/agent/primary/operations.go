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

// Operations carries out what the role machine asks of the local mysqld: one operation at a
// time. Its methods are called by the role machine's goroutine alone.
type Operations struct {
	Steps Steps
	// Leads tells whether this node leads in a term.
	Leads func(term uint64) bool
	// PromotionTimeout bounds Judge and Replicate. The other operations have bounds of their own.
	PromotionTimeout time.Duration
	// Ended is told what each operation came to, before the role machine is.
	Ended func(e role.Effect, d role.Done, err error)
	Input func(role.Input)
	Clock clock.Tasks

	newest *operation
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

// Cancel ends the context of the operation under way, if it is this one.
func (o *Operations) Cancel(id role.OpID) {
	if o.newest != nil && o.newest.id == id {
		o.newest.cancel()
	}
}

// Begin starts an operation. It begins once the one before has ended: that is done or cancelled.
// But mysqld is killed at once, whatever the operation before waits for.
func (o *Operations) Begin(ctx context.Context, e role.Effect) {
	before := o.newest
	ctx, cancel := context.WithCancel(ctx)
	op := &operation{id: e.Op, cancel: cancel, done: make(chan struct{})}
	o.newest = op
	if e.Kind == role.KillMysqld {
		o.Steps.SignalKill()
	}
	o.Clock.Go(func() {
		defer close(op.done)
		defer op.ended.Store(true)
		defer cancel()
		for before != nil && !before.ended.Load() {
			_ = o.Clock.Wait(context.Background(), 0, before.done)
		}
		incarnation, err := o.run(ctx, e)
		d := Done(e.Op, incarnation, err)
		o.Ended(e, d, err)
		o.Input(d)
	})
}

func (o *Operations) run(ctx context.Context, e role.Effect) (incarnation uint64, err error) {
	if e.Term != 0 && e.Kind != role.Settle && !o.Leads(e.Term) {
		return 0, fmt.Errorf("this node does not lead in term %d (any more)", e.Term)
	}
	if e.Kind == role.Judge || e.Kind == role.Replicate {
		var cancel context.CancelFunc
		ctx, cancel = o.Clock.WithTimeout(ctx, o.PromotionTimeout)
		defer cancel()
	}
	switch e.Kind {
	case role.StartMysqld:
		return o.Steps.StartMysqld(ctx, e.ReplicaBinlog)
	case role.Judge:
		err = o.Steps.Judge(ctx, e.Promote)
	case role.Replicate:
		err = o.Steps.Replicate(ctx)
	case role.CatchUp:
		err = o.Steps.CatchUp(ctx)
	case role.OpenTap:
		err = o.Steps.OpenTap(ctx, e.Term)
	case role.CommitEpoch:
		err = o.Steps.CommitEpoch(ctx, e.Term)
	case role.OpenWrites:
		err = o.Steps.OpenWrites(ctx, e.Term)
	case role.CloseWrites:
		err = o.Steps.CloseWrites(ctx)
	case role.Settle:
		err = o.Steps.Settle(ctx, e.Term)
	case role.AwaitTarget:
		err = o.Steps.AwaitTarget(ctx, e.To, e.Term)
	case role.StopMysqld:
		o.Steps.StopMysqld()
	case role.KillMysqld:
		o.Steps.KillMysqld(ctx)
	default:
		err = fmt.Errorf("unknown effect %s", e)
	}
	return 0, err
}
