package primary

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/sys/clock"
)

const (
	// closeWritesLockWait bounds SET super_read_only in a demotion that nobody asked for.
	closeWritesLockWait = 2 * time.Second
	// closedPoll is how often EndXA looks whether the sessions that it ends are gone.
	closedPoll = 2 * time.Millisecond
)

// Writable is a mysqld whose writes are opened and closed.
type Writable interface {
	SetSuperReadOnly(ctx context.Context, on bool, lockWait time.Duration) error
}

// OpenWrites makes mysqld writable and looks again whether it may be writable: mayServe tells
// whether this node still leads in the term, with the tap of its epoch.
func OpenWrites(ctx context.Context, s Writable, term uint64, mayServe func() bool) error {
	if err := s.SetSuperReadOnly(ctx, false, closeWritesLockWait); err != nil {
		return fmt.Errorf("open for writes: %w", err)
	}
	if !mayServe() {
		return fmt.Errorf("epoch %d ended while writes were opened", term)
	}
	return nil
}

// CloseWrites makes mysqld read-only. Only if it returns nil is it proven that no session
// waits for an ACK.
func CloseWrites(ctx context.Context, s Writable, c clock.Clock) error {
	ctx, cancel := c.WithTimeout(ctx, 2*closeWritesLockWait)
	defer cancel()
	if err := s.SetSuperReadOnly(ctx, true, closeWritesLockWait); err != nil {
		return fmt.Errorf("close writes: %w", err)
	}
	return nil
}

// Plan is what an operator ordered: a switchover, or a new start of mysqld.
type Plan struct {
	Server PlanServer
	// Moves: leadership goes to another node.
	Moves bool
	// Limit is for how long writes may be closed, Left how much of that is left.
	Limit, Left time.Duration
	Clock       clock.Clock
}

// PlanServer is the mysqld of a primary that has a plan.
type PlanServer interface {
	Writable
	XAServer
	// EndedXA is told how many sessions were ended that were in an XA transaction.
	EndedXA(sessions int)
	// NotClosed says more about why writes were not closed.
	NotClosed(error) error
	PendingXA(ctx context.Context) (int, error)
}

// CloseWrites closes writes within the plan's limit. Before a move it ends the sessions that
// are in an XA transaction, and waits until they are gone: read-only does not stop their XA
// PREPARE, and from here on no session can begin an XA transaction that writes.
func (p Plan) CloseWrites(ctx context.Context) error {
	ctx, cancel := p.Clock.WithTimeout(ctx, p.Left)
	defer cancel()
	if err := p.Server.SetSuperReadOnly(ctx, true, p.Limit); err != nil {
		return p.Server.NotClosed(fmt.Errorf("close writes within %v: %w", p.Limit, err))
	}
	if !p.Moves {
		return nil
	}
	ended, err := EndXA(ctx, p.Server, p.Clock)
	if err != nil {
		return err
	}
	if ended > 0 {
		p.Server.EndedXA(ended)
	}
	return p.noPendingXA(ctx)
}

// XAServer is a mysqld with sessions that may be in an XA transaction.
type XAServer interface {
	// EndXA ends these sessions, and returns how many there are.
	EndXA(ctx context.Context) (int, error)
}

// EndXA ends the sessions of a server that are in an XA transaction, and waits until they are gone. It returns
// the largest number of them that was seen at once.
func EndXA(ctx context.Context, s XAServer, c clock.Clock) (ended int, err error) {
	for {
		n, err := s.EndXA(ctx)
		if err != nil || n == 0 {
			return ended, err
		}
		ended = max(ended, n)
		if err := c.Wait(ctx, closedPoll, nil); err != nil {
			return ended, fmt.Errorf("wait for %d sessions in XA transactions to end: %w", n, err)
		}
	}
}

// AwaitTarget waits until the other node has everything: writes are closed, so what is
// committed here is all there is. ask returns once the other node says so.
func (p Plan) AwaitTarget(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := p.Clock.WithTimeout(ctx, p.Left)
	defer cancel()
	if err := ask(ctx); err != nil {
		return err
	}
	return p.noPendingXA(ctx) // again: nothing can have come, unless instruments are off
}

func (p Plan) noPendingXA(ctx context.Context) error {
	n, err := p.Server.PendingXA(ctx)
	if err == nil && n > 0 {
		err = errors.New(XABlocks(n))
	}
	return err
}

// XABlocks says why so many prepared XA transactions block a move.
func XABlocks(n int) string {
	return XAPrepared(n) + ": another node would have to start its mysqld again to take over; end what is prepared first"
}
