package clock

import (
	"context"
	"time"
)

// Clock is the clock of one process.
type Clock interface {
	// Now is the time since some moment before the process began. It never goes back.
	Now() time.Duration
	// Wait returns nil once changed is ready or d has passed (0 = never passes). It may also return nil
	// earlier. Once ctx has ended it returns the cause.
	Wait(ctx context.Context, d time.Duration, changed <-chan struct{}) error
	// WithTimeout returns a context that ends with ctx and after d, with the cause
	// context.DeadlineExceeded.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
}

// Sleep waits until d has passed on c, and then returns nil; if ctx ends first, it returns the cause. Unlike
// Clock.Wait, it never returns nil earlier.
func Sleep(ctx context.Context, c Clock, d time.Duration) error {
	until := c.Now() + d
	for left := d; left > 0; left = until - c.Now() {
		if err := c.Wait(ctx, left, nil); err != nil {
			return err
		}
	}
	return nil
}

// Tasks is the Clock of straight-line code that runs beside other such code.
type Tasks interface {
	Clock
	// Go has f run soon, beside the caller.
	Go(f func())
}

// Machine is the clock of the machine. Its zero value is ready.
type Machine struct{}

var began = time.Now()

// Go implements Tasks: a goroutine.
func (Machine) Go(f func()) { go f() }

// Now implements Clock.
func (Machine) Now() time.Duration { return time.Since(began) }

// Wait implements Clock.
func (Machine) Wait(ctx context.Context, d time.Duration, changed <-chan struct{}) error {
	return new(OneTimer).Wait(ctx, d, changed)
}

// OneTimer is Machine for one goroutine that waits very often: it uses the same timer again. Its zero
// value is ready.
type OneTimer struct {
	Machine
	timer *time.Timer
}

// Wait implements Clock.
func (o *OneTimer) Wait(ctx context.Context, d time.Duration, changed <-chan struct{}) error {
	var passed <-chan time.Time
	if d > 0 {
		if o.timer == nil {
			o.timer = time.NewTimer(d)
		} else {
			o.timer.Reset(d)
		}
		defer o.timer.Stop()
		passed = o.timer.C
	}
	select {
	case <-changed:
		return nil
	case <-passed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// WithTimeout implements Clock.
func (Machine) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}
