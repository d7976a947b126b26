package datadir

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/sys/clock"
)

// TestPromisesOutliveTheAgent: after a restart with a shorter election timeout the longer one counts, until it is
// over. A file that cannot be read may have said the longest possible one.
func TestPromisesOutliveTheAgent(t *testing.T) {
	mem, quiet := vfs.NewMem(), slog.New(slog.DiscardHandler)
	d := New(mem, ".")
	start := func(own, want time.Duration) {
		t.Helper()
		if p, err := d.Promised(own, time.Minute, quiet); err != nil || p.Longest != want || !p.noted {
			t.Errorf("a start with %v: what was promised is %+v, %v; want %v", own, p, err, want)
		}
	}
	start(time.Second, time.Second)
	start(5*time.Second, 5*time.Second)
	start(time.Second, 5*time.Second)
	start(2*time.Second, 5*time.Second) // the first has ended before five seconds were over
	if err := d.WritePromise(2 * time.Second); err != nil {
		t.Fatal(err)
	}
	start(time.Second, 2*time.Second)
	for _, damaged := range []string{"", "{", "{}", `{"election_timeout_ns": -1}`, `{"election_timeout_ns": 60000000001}`} {
		write(t, mem, Promise, damaged)
		start(time.Second, time.Minute)
		start(time.Second, time.Minute) // it is written again
	}
}

// restless is a clock whose waits end before their time, as they may.
type restless struct{ clock.Machine }

// Wait implements clock.Clock.
func (r restless) Wait(ctx context.Context, d time.Duration, changed <-chan struct{}) error {
	return r.Machine.Wait(ctx, max(1, d/3), changed)
}

// TestPromiseOnAFullDisk: a disk that takes nothing ends no agent, unless the promise on it is shorter than the
// configured one. What could not be noted is noted once that is possible.
func TestPromiseOnAFullDisk(t *testing.T) {
	for name, c := range map[string]struct {
		file    string // "" = none
		want    time.Duration
		refused bool
	}{
		"none":    {"", 2 * time.Second, false},
		"longer":  {`{"election_timeout_ns": 5000000000}`, 5 * time.Second, false},
		"damaged": {"{", time.Minute, false},
		"shorter": {`{"election_timeout_ns": 1000000000}`, 0, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			mem, quiet := vfs.NewMem(), slog.New(slog.DiscardHandler)
			if c.file != "" {
				write(t, mem, Promise, c.file)
			}
			full := errors.New("no space left")
			d := New(vfs.Wrap(mem, func(op vfs.Op, _ string) error {
				if op == vfs.OpCreate {
					return full
				}
				return nil
			}), ".")
			p, err := d.Promised(2*time.Second, time.Minute, quiet)
			if p.Longest != c.want && !c.refused || (err != nil) != c.refused {
				t.Fatalf("%s: %+v, %v", name, p, err)
			}
			if c.refused {
				return
			}
			began := time.Now()
			over := p.Longest + 3*promiseRetry
			time.AfterFunc(over-time.Second, func() { full = nil })
			p.Forget(t.Context(), restless{}, d.WritePromise, quiet)
			if took := time.Since(began); took != over {
				t.Errorf("%s: it ends after %v, the disk has room after %v", name, took, over-time.Second)
			}
			if b, err := vfs.ReadFile(mem, Promise); err != nil || !strings.Contains(string(b), ": 2000000000\n") {
				t.Errorf("%s: in the end it has %s, %v", name, b, err)
			}
		})
	}
}
