package strangers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// In each row strangers come at the times at, and want has the answers: how long to wait, or -1 for a refusal.
func TestPace(t *testing.T) {
	const ms, no = time.Millisecond, time.Duration(-1)
	for name, c := range map[string]struct {
		every    time.Duration
		waiting  int
		at, want []time.Duration
	}{
		"no bound":            {0, 0, []time.Duration{0, 0, 0}, []time.Duration{0, 0, 0}},
		"nobody waits":        {5 * ms, 0, []time.Duration{0, 0, 4 * ms, 5 * ms}, []time.Duration{0, no, no, 0}},
		"at once":             {5 * ms, 2, []time.Duration{0, 0, 0, 0, 0}, []time.Duration{0, 5 * ms, 10 * ms, no, no}},
		"some room again":     {5 * ms, 1, []time.Duration{0, 0, 0, 3 * ms, 5 * ms}, []time.Duration{0, 5 * ms, no, no, 5 * ms}},
		"not too fast":        {5 * ms, 2, []time.Duration{0, 6 * ms, 11 * ms}, []time.Duration{0, 0, 0}},
		"a pause saves none":  {5 * ms, 1, []time.Duration{0, time.Hour, time.Hour, time.Hour}, []time.Duration{0, 0, 5 * ms, no}},
		"refused cost no one": {5 * ms, 0, []time.Duration{0, ms, ms, ms, 5 * ms}, []time.Duration{0, no, no, no, 0}},
	} {
		p, began := pace{every: c.every, waiting: c.waiting}, time.Now()
		for i, at := range c.at {
			wait, ok := p.take(began.Add(at))
			if !ok {
				wait = no
			}
			if wait != c.want[i] {
				t.Errorf("%s: number %d is told %v, want %v", name, i, wait, c.want[i])
			}
		}
	}
}

// TestFloodFromManyAddresses: the strangers of many sources get their turns at a pace. Some wait for a turn, and the
// others are turned away. One source alone cannot have all places to wait. A stranger from a known source gets a turn
// at once.
func TestFloodFromManyAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every, waiting, flood = 5 * time.Millisecond, 4, 50
		home := netip.MustParseAddr("10.0.0.1")
		r := New(Limits{
			Max: 1000, PerSource: 1000, Turns: 2, TurnEvery: every, TurnsWaiting: waiting,
			Known: func(s netip.Addr) bool { return s == home },
		}, slog.New(slog.DiscardHandler))
		began := time.Now()
		turn := func(ip string) (time.Duration, error) {
			done, err := enter(r, ip).Turn(t.Context())
			if err != nil {
				return 0, err
			}
			defer done()
			return time.Since(began), nil
		}
		type told struct {
			after time.Duration
			err   error
		}
		all := make(chan told, 2*flood)
		come := func(ip func(n int) string) (had, away int, last time.Duration) {
			for n := range flood {
				go func() {
					after, err := turn(ip(n))
					all <- told{after, err}
				}()
			}
			synctest.Wait()
			if after, err := turn("10.0.0.1"); err != nil || after != time.Since(began) {
				t.Errorf("a member: after %v, %v", after, err)
			}
			for range flood {
				switch s := <-all; {
				case errors.Is(s.err, ErrTurnedAway):
					away++
				case s.err != nil:
					t.Error(s.err)
				default:
					had, last = had+1, max(last, s.after)
				}
			}
			return had, away, last
		}
		had, away, last := come(func(n int) string { return fmt.Sprintf("10.1.0.%d", n) })
		if had != waiting+1 || away != flood-had || last != waiting*every || r.Stats().TurnedAway != uint64(away) {
			t.Errorf("%d had a turn, the last after %v, %d were turned away, %d counted", had, last, away, r.Stats().TurnedAway)
		}
		time.Sleep(time.Second)
		began = time.Now()
		if had, away, _ = come(func(int) string { return "10.1.0.66" }); had != flood || away != 0 {
			t.Errorf("of one address %d had a turn, %d were turned away", had, away)
		}
	})
}

// TestTurnThatIsNotWaitedFor: a stranger that waits for its turn stops waiting when its time is over, or when it is
// expelled.
func TestTurnThatIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Limits{Max: 9, PerSource: 9, Turns: 1, TurnEvery: time.Hour, TurnsWaiting: 9}, slog.New(slog.DiscardHandler))
		if _, err := enter(r, "10.1.0.1").Turn(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		if _, err := enter(r, "10.1.0.2").Turn(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("its time is over: %v", err)
		}
		g, ended := enter(r, "10.1.0.2"), make(chan error) // the source's turn was given back
		go func() {
			_, err := g.Turn(t.Context())
			ended <- err
		}()
		synctest.Wait()
		close(g.gone) // as when the stranger is expelled to make room
		if err := <-ended; !errors.Is(err, ErrExpelled) {
			t.Errorf("it makes room: %v", err)
		}
	})
}
