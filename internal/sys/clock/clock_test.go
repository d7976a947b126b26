package clock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestWait: a wait ends with whatever comes first. Only the end of the context is an error, which is its cause.
func TestWait(t *testing.T) {
	cause := errors.New("the cause")
	for _, c := range []struct {
		what                        string
		d, changed, canceled, limit time.Duration // 0 = never
		want                        error
		took                        time.Duration
	}{
		{"passed", time.Second, 2 * time.Second, 3 * time.Second, 0, nil, time.Second},
		{"changed", 2 * time.Second, time.Second, 3 * time.Second, 0, nil, time.Second},
		{"changed, without a limit", 0, time.Second, 0, 0, nil, time.Second},
		{"canceled", 2 * time.Second, 3 * time.Second, time.Second, 0, cause, time.Second},
		{"timed out", 0, 0, 3 * time.Second, time.Second, context.DeadlineExceeded, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := &OneTimer{} // Machine waits by a OneTimer, too
			_ = m.Wait(t.Context(), time.Nanosecond, nil)
			ctx, cancel := context.WithCancelCause(t.Context())
			changed := make(chan struct{})
			if c.changed > 0 {
				time.AfterFunc(c.changed, func() { close(changed) })
			}
			if c.canceled > 0 {
				time.AfterFunc(c.canceled, func() { cancel(cause) })
			}
			limited := context.CancelFunc(func() {})
			if c.limit > 0 {
				ctx, limited = m.WithTimeout(ctx, c.limit)
			}
			began := m.Now()
			if err := m.Wait(ctx, c.d, changed); !errors.Is(err, c.want) || m.Now()-began != c.took {
				t.Errorf("%s: %v after %v, want %v after %v", c.what, err, m.Now()-began, c.want, c.took)
			}
			limited()
			cancel(nil)
			time.Sleep(time.Minute) // until all timers above have ended, inside the bubble
		})
	}
}
