package primary

import (
	"context"
	"time"
)

// Waiter returns nil once changed is closed or d has passed (0 = never), or before; and
// ctx's error once ctx is done.
type Waiter func(ctx context.Context, d time.Duration, changed <-chan struct{}) error

// Wait is the Waiter on the machine's clock.
func Wait(ctx context.Context, d time.Duration, changed <-chan struct{}) error {
	var passed <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		passed = timer.C
	}
	select {
	case <-changed:
		return nil
	case <-passed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
