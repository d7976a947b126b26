package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/sys/clock"
)

// restless is a clock whose waits end before their time, as they may.
type restless struct{ clock.Machine }

// Wait implements clock.Clock.
func (r restless) Wait(ctx context.Context, d time.Duration, changed <-chan struct{}) error {
	return r.Machine.Wait(ctx, max(1, d/3), changed)
}

// leaver notes what becomes of it.
type leaver struct {
	accepts bool
	fails   error
	ended   time.Duration // 0 = it runs
	did     string
}

func (l *leaver) End(error)                              { l.ended = clock.Machine{}.Now() }
func (l *leaver) Confirm(cluster.Recovery) (bool, error) { return l.accepts, nil }
func (l *leaver) note(format string, args ...any) error {
	if l.fails == nil {
		l.did += fmt.Sprintf(format, args...)
	}
	return l.fails
}
func (l *leaver) Supersede(cluster.Recovery) error    { return l.note("superseded") }
func (l *leaver) WriteState(cluster.StatePoint) error { return l.note("state") }
func (l *leaver) Remove() error                       { return l.note("removed") }
func (l *leaver) Rebuild(instance string, at time.Time) error {
	return l.note("rebuilt as %s at %d", instance, at.Unix())
}

// TestDeparting: only the first departure counts. It ends what runs, after a grace unless nobody waits for an answer.
// Once it is on disk, it is what the node is from then on.
func TestDeparting(t *testing.T) {
	superseded := Departure{Superseded: &cluster.Recovery{}}
	for _, c := range []struct {
		name    string
		first   Departure
		accepts bool
		grace   time.Duration
		want    string
	}{
		{"rebuilt", Departure{Instance: "b7"}, true, leaveGrace, "rebuilt as b7 at 70"},
		{"removed", Departure{}, true, leaveGrace, "removed"},
		{"another state", Departure{State: &cluster.StatePoint{}}, true, leaveGrace, "state"},
		{"recovered without it", superseded, true, 0, "superseded"},
		{"there was a leader after all", superseded, false, 0, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := &leaver{accepts: c.accepts, fails: errors.New("disk")}
			d := NewDeparting(DepartingConfig{Node: l, Home: l, Clock: restless{}, Now: func() time.Time { return time.Unix(70, 0) }, Logger: slog.New(slog.DiscardHandler)})
			if persisted, err := d.PersistExit(); persisted || err != nil {
				t.Fatalf("%s: before, it is persisted: %t, %v", c.name, persisted, err)
			}
			ctx, cancel := d.Context(t.Context())
			defer cancel()
			began := clock.Machine{}.Now()
			d.Leave(c.first)
			d.Leave(superseded)
			d.Leave(Departure{})
			later, cancel := d.Context(t.Context())
			defer cancel()
			<-d.Left()
			for _, ctx := range []context.Context{ctx, later} {
				if got, ok := errors.AsType[*Departure](context.Cause(ctx)); !ok || *got != c.first {
					t.Errorf("%s: what runs ends by %v", c.name, context.Cause(ctx))
				}
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if l.ended-began != c.grace {
				t.Errorf("%s: it ends after %v, want %v", c.name, l.ended-began, c.grace)
			}
			if c.want != "" {
				if persisted, err := d.PersistExit(); persisted || err == nil {
					t.Errorf("%s: the disk has failed, and it is persisted: %t, %v", c.name, persisted, err)
				}
			}
			l.fails = nil
			for range 2 {
				if persisted, err := d.PersistExit(); !persisted || err != nil || l.did != c.want {
					t.Errorf("%s: it is %q now, persisted %t, %v", c.name, l.did, persisted, err)
				}
			}
		})
	}
}
