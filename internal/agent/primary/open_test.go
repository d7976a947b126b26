package primary

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/sys/clock"
)

// TestAwaitTap: the tap has to be mysqld's only semi-sync replica. The tap of an earlier attempt may still be there
// for a while.
func TestAwaitTap(t *testing.T) {
	for _, c := range []struct {
		what string
		says func(after time.Duration) SemiSync
		want string
		took time.Duration
	}{
		{"registered", func(time.Duration) SemiSync { return SemiSync{On: true, Clients: 1} }, "", 0},
		{"registers", func(after time.Duration) SemiSync { return SemiSync{On: true, Clients: int(after / time.Second)} }, "", time.Second},
		{"off", func(time.Duration) SemiSync { return SemiSync{Clients: 1} }, "semi-sync is off", 0},
		{"stale", func(after time.Duration) SemiSync { return SemiSync{On: true, Clients: 2 - int(after/(2*time.Second))} }, "", 2 * time.Second},
		{"foreign", func(time.Duration) SemiSync { return SemiSync{On: true, Clients: 2} }, "2 semi-sync replicas", staleTapWait + tapPoll},
		{"never", func(time.Duration) SemiSync { return SemiSync{On: true} }, "wait for mysqld to count the tap", 10 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			began := time.Now()
			err := AwaitTap(ctx, func(context.Context) (SemiSync, error) { return c.says(time.Since(began)), nil }, clock.Machine{})
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || time.Since(began) != c.took {
				t.Errorf("%s: %v after %v, want %q after %v", c.what, err, time.Since(began), c.want, c.took)
			}
		})
	}
}

// waiter is a clock that only waits.
type waiter struct {
	clock.Machine
	wait func() error
}

// Wait implements clock.Clock.
func (w waiter) Wait(context.Context, time.Duration, <-chan struct{}) error { return w.wait() }

// TestOpen: an epoch is open when its entry is committed, not when its entry is proposed.
func TestOpen(t *testing.T) {
	committed, proposed := uint64(2), 0
	open := func(wait func() error) error {
		return Open(t.Context(), entry.Epoch{Term: 3}, func(_ context.Context, data []byte) error {
			h, _, err := entry.Parse(data)
			if err != nil || h.Kind != entry.KindEpoch || h.Term != 3 {
				t.Errorf("%+v is proposed, %v", h, err)
			}
			proposed++
			return nil
		}, func() (uint64, <-chan struct{}) { return committed, nil }, waiter{wait: wait})
	}
	waits := 0
	err := open(func() error {
		if waits++; waits == 2 {
			committed = 3
		}
		return nil
	})
	if err != nil || waits != 2 || proposed != 1 {
		t.Errorf("open after %d waits and %d proposals: %v", waits, proposed, err)
	}
	committed = 4
	if err = open(func() error { return errors.ErrUnsupported }); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a later epoch's end of the wait is %v", err)
	}
}
