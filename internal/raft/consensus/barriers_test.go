package consensus

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/sys/clock"
)

// TestBarrierAfterStop: a caller that asks a stopped node gets an error at once.
func TestBarrierAfterStop(t *testing.T) {
	b := &Barriers{Clock: clock.Machine{}, Retry: time.Hour, Start: func(context.Context, uint64, barrierKind) {}}
	b.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := b.Ask(ctx, contextBarrier); !errors.Is(err, ErrStopped) {
		t.Errorf("it answers %v, want %v", err, ErrStopped)
	}
}
