package primary

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/sys/clock"
)

// OpenTime is the time from a won election to open writes where nothing is left to be applied:
// barrier, judge, tap, epoch entry.
const OpenTime = 100 * time.Millisecond

// Errors of Orders.Run.
var (
	ErrPlanUnderWay = errors.New("another switchover or restart is under way")
	ErrPlanNotEnded = errors.New("the plan has not ended")
)

// Orders is the operator's plan that the role machine has under way: there is one at most. Its
// zero value has none. Everybody may call its methods.
type Orders struct{ now atomic.Pointer[Order] }

// Order is an operator's plan from its beginning to its end. Make one with NewOrder.
type Order struct {
	// By is who ordered it. Moves: leadership goes to another node; else mysqld starts again.
	By    string
	Moves bool
	// Limit is for how long writes may be closed before leadership goes.
	Limit time.Duration

	clock clock.Clock
	// closing: writes are being closed since began. began is set before closing, once.
	closing atomic.Bool
	began   time.Duration
	// ended is closed once the role machine has answered. reason is why the plan came to nothing;
	// "" = it was carried out.
	ended  chan struct{}
	reason string
}

// NewOrder returns a plan that has not begun.
func NewOrder(by string, moves bool, limit time.Duration, c clock.Clock) *Order {
	return &Order{By: by, Moves: moves, Limit: limit, clock: c, ended: make(chan struct{})}
}

// Closing tells whether writes are being closed for it, or were. ClosedFor tells for how
// long; call it only once Closing is true.
func (o *Order) Closing() bool            { return o.closing.Load() }
func (o *Order) ClosedFor() time.Duration { return o.clock.Now() - o.began }

// Left is for how long writes may still stay closed before the plan is called off. OpenTime of the
// limit is kept, to open them again: here or, once leadership was asked away, on the other node.
func (o *Order) Left() time.Duration { return max(0, o.Limit-OpenTime-o.ClosedFor()) }

// Now returns the plan under way, or nil.
func (s *Orders) Now() *Order { return s.now.Load() }

// Closing notes that writes are being closed now, and tells whether that is for a plan.
func (s *Orders) Closing() bool {
	o := s.now.Load()
	if o != nil && !o.closing.Load() {
		o.began = o.clock.Now()
		o.closing.Store(true)
	}
	return o != nil
}

// MovesAway tells whether writes are being closed here for an operator's plan: new clients are held.
func (s *Orders) MovesAway() bool {
	o := s.now.Load()
	return o != nil && o.closing.Load()
}

// Ended takes the role machine's answer, and tells whether there was a plan.
func (s *Orders) Ended(reason string) bool {
	o := s.now.Swap(nil)
	if o != nil {
		o.reason = reason
		close(o.ended)
	}
	return o != nil
}

// Run has the role machine carry out a plan; begin asks for that. It returns why the plan came to
// nothing, "" = it was carried out. If ctx ends first, it returns ErrPlanNotEnded.
func (s *Orders) Run(ctx context.Context, o *Order, begin func()) (reason string, err error) {
	if !s.now.CompareAndSwap(nil, o) {
		return "", ErrPlanUnderWay
	}
	defer s.now.CompareAndSwap(o, nil)
	begin()
	for {
		select {
		case <-o.ended:
			return o.reason, nil
		default:
		}
		if o.clock.Wait(ctx, 0, o.ended) != nil {
			return "", ErrPlanNotEnded
		}
	}
}

// Target is a node that a primary asks to follow it.
type Target struct {
	Role func() status.Role
	// Local returns the mysqld that runs, or ErrNoMysqld.
	Local func() (TargetServer, error)
	// WaitIndex waits until the log is committed up to an index. Committed returns all committed transactions.
	WaitIndex func(ctx context.Context, index uint64) error
	Committed func() *gtid.Set
	// Chosen tells the role machine that leadership of a term comes to this node.
	Chosen func(term uint64)
}

// TargetServer is the mysqld of a replica that is to be the primary.
type TargetServer interface {
	// Applied waits until gtid_executed contains set.
	Applied(ctx context.Context, set *gtid.Set) error
	// NoForeignXA returns why mysqld would have to start again before it serves, or nil.
	NoForeignXA(ctx context.Context) error
}

// Follow waits until the node could take over: all up to an index is committed and applied. term: the
// leader of this term is about to hand over; 0 = it is not yet about to.
func (t Target) Follow(ctx context.Context, index, term uint64) error {
	if role := t.Role(); role != status.RoleReplica {
		return fmt.Errorf("it is not a replica, it is %s", role)
	}
	server, err := t.Local()
	if err != nil {
		return err
	}
	if err := t.WaitIndex(ctx, index); err != nil {
		return fmt.Errorf("its log lacks entry %d: %w", index, err)
	}
	if err := server.Applied(ctx, t.Committed()); err != nil {
		return fmt.Errorf("its mysqld has not applied everything: %w", err)
	}
	if err := server.NoForeignXA(ctx); err != nil {
		return err
	}
	if term != 0 {
		t.Chosen(term + 1)
	}
	return nil
}
