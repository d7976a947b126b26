package primary

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/sys/clock"
)

// writtenServer is a mysqld that takes time to close its writes.
type writtenServer struct {
	takes    time.Duration // SET super_read_only
	xa       int           // sessions in XA transactions: one ends at each look
	ended    int           // of these sessions
	pending  int
	readOnly bool
	fails    error
}

func (w *writtenServer) SetSuperReadOnly(ctx context.Context, on bool, lockWait time.Duration) error {
	if w.fails != nil {
		return w.fails
	}
	if w.takes > 0 {
		if err := (clock.Machine{}).Wait(ctx, min(w.takes, lockWait), nil); err != nil {
			return err
		}
	}
	if w.takes > lockWait {
		return errors.New("lock wait timeout")
	}
	w.readOnly = on
	return nil
}

func (w *writtenServer) PendingXA(context.Context) (int, error) { return w.pending, nil }

func (w *writtenServer) EndXA(context.Context) (int, error) {
	n := w.xa
	w.xa = max(0, n-1)
	return n, nil
}

func (w *writtenServer) EndedXA(sessions int) { w.ended = sessions }
func (w *writtenServer) NotClosed(err error) error {
	return errors.Join(err, errors.New("by session 7"))
}

// TestWrites: writes are open only if this node still leads after they were opened, and are closed only within their
// time. Before a move no XA transaction may go on.
func TestWrites(t *testing.T) {
	open := func(leads bool) func(context.Context, *writtenServer) error {
		return func(ctx context.Context, w *writtenServer) error {
			return OpenWrites(ctx, w, 3, func() bool { return leads && !w.readOnly })
		}
	}
	closes := func(ctx context.Context, w *writtenServer) error { return CloseWrites(ctx, w, clock.Machine{}) }
	plan := func(moves bool) func(context.Context, *writtenServer) error {
		return func(ctx context.Context, w *writtenServer) error {
			return Plan{Server: w, Moves: moves, Limit: 800 * time.Millisecond, Left: 700 * time.Millisecond, Clock: clock.Machine{}}.CloseWrites(ctx)
		}
	}
	for _, c := range []struct {
		what string
		run  func(context.Context, *writtenServer) error
		w    writtenServer
		want string
		took time.Duration
	}{
		{"opened", open(true), writtenServer{readOnly: true}, "", 0},
		{"opened too late", open(false), writtenServer{readOnly: true}, "epoch 3 ended", 0},
		{"not opened", open(true), writtenServer{fails: errors.ErrUnsupported}, "open for writes", 0},
		{"closed", closes, writtenServer{takes: time.Second}, "", time.Second},
		{"not closed", closes, writtenServer{takes: time.Minute}, "close writes: lock wait", closeWritesLockWait},
		{"closed for a plan", plan(true), writtenServer{takes: 100 * time.Millisecond, xa: 3}, "", 106 * time.Millisecond},
		{"not closed for a plan", plan(true), writtenServer{takes: time.Minute}, "by session 7", 700 * time.Millisecond},
		{"XA goes on", plan(true), writtenServer{xa: 1000}, "sessions in XA transactions to end", 700 * time.Millisecond},
		{"XA is prepared", plan(true), writtenServer{pending: 2}, "2 XA transactions are prepared", 0},
		{"XA is prepared, mysqld starts again here", plan(false), writtenServer{xa: 1, pending: 2}, "", 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			err := c.run(t.Context(), &c.w)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || time.Since(began) != c.took {
				t.Errorf("%s: %v after %v, want %q after %v", c.what, err, time.Since(began), c.want, c.took)
			}
			if c.what == "closed for a plan" && c.w.ended != 3 {
				t.Errorf("%d sessions were ended, want 3", c.w.ended)
			}
		})
	}
}

// TestAwaitTarget: the other node has to answer in time, and no transaction may be prepared.
func TestAwaitTarget(t *testing.T) {
	for _, c := range []struct {
		what    string
		answers time.Duration
		pending int
		want    string
	}{
		{"it has everything", 600 * time.Millisecond, 0, ""},
		{"too late", time.Minute, 0, "deadline"},
		{"XA", 0, 1, "1 XA transaction is prepared"},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := Plan{Server: &writtenServer{pending: c.pending}, Left: 700 * time.Millisecond, Clock: clock.Machine{}}
			err := p.AwaitTarget(t.Context(), func(ctx context.Context) error {
				if c.answers == 0 {
					return nil
				}
				return clock.Machine{}.Wait(ctx, c.answers, nil)
			})
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", c.what, err, c.want)
			}
		})
	}
}
