package primary

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/mysql/tap"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/sys/clock"
)

// deposedWorld is a deposed primary of epoch 3: its mysqld, tap and committed log. At
// first all is in order, and entry 7 is the last.
type deposedWorld struct {
	did []string // what changes something, in order

	semiSync SemiSync
	xa       int
	binlog   tap.Position
	failing  string // this question fails

	number  uint64 // the last committed entry of the epoch
	over    bool
	changed chan struct{}

	received uint64 // by the tap
	at       tap.Position
	acksWait bool
	// during is called by each step before the step does anything.
	during func(step string)
}

func newDeposedWorld() *deposedWorld {
	end := tap.Position{File: "q.000001", Offset: 900}
	return &deposedWorld{semiSync: SemiSync{On: true, Clients: 1}, binlog: end, at: end, number: 7, received: 7,
		changed: make(chan struct{}), during: func(string) {}}
}

func (w *deposedWorld) step(name string) error {
	w.during(name)
	if name == w.failing {
		return fmt.Errorf("%s: %w", name, errors.ErrUnsupported)
	}
	return nil
}

func (w *deposedWorld) SemiSyncStatus(context.Context) (SemiSync, error) {
	err := w.step("semi-sync")
	return w.semiSync, err
}

func (w *deposedWorld) EndLockWaiters(context.Context) (int, error) {
	w.did = append(w.did, "end waiters")
	return 1, w.step("end waiters")
}

func (w *deposedWorld) SetSuperReadOnly(_ context.Context, on bool, _ time.Duration) error {
	w.did = append(w.did, fmt.Sprintf("read-only %t", on))
	return w.step("read-only")
}

func (w *deposedWorld) PendingXA(context.Context) (int, error) {
	err := w.step("xa")
	return w.xa, err
}

func (w *deposedWorld) BinlogEnd(context.Context) (string, uint64, error) {
	err := w.step("binlog end")
	return w.binlog.File, w.binlog.Offset, err
}

func (w *deposedWorld) Changed() (consensus.Mark, <-chan struct{}) {
	w.during("changed")
	return consensus.Mark{}, w.changed
}
func (w *deposedWorld) EpochEnd(uint64) (uint64, bool) { return w.number, w.over }

func (w *deposedWorld) Ends(number uint64) (tap.Position, bool) { return w.at, number == w.received }

func (w *deposedWorld) Settle(number uint64) (int, bool) {
	if number != w.received {
		return 0, false
	}
	w.did = append(w.did, "acknowledge")
	return 2, true
}

func (w *deposedWorld) settle(ctx context.Context) error {
	number, acknowledged, err := Settling{Term: 3, Server: w, Tap: w, Log: w, AcksAreCommits: func() bool { return !w.acksWait }, Clock: clock.Machine{}}.Run(ctx)
	if err == nil && (number != w.number || acknowledged != 2) {
		return fmt.Errorf("settled with %d acknowledged, up to entry %d", acknowledged, number)
	}
	return err
}

// TestSettling: a primary in order settles, in this order of steps. With one thing out of order it does not settle.
// If that can be known before, nothing is acknowledged.
func TestSettling(t *testing.T) {
	inOrder := []string{"end waiters", "end waiters", "acknowledge", "read-only true"}
	at := func(step string, do func()) func(string) {
		return func(s string) {
			if s == step {
				do()
			}
		}
	}
	for _, c := range []struct {
		what  string
		spoil func(w *deposedWorld)
		want  string // "" = it settles
		acks  bool   // before it is known
	}{
		{"in order", func(*deposedWorld) {}, "", true},
		{"semi-sync off", func(w *deposedWorld) { w.semiSync.On = false }, "semi-sync is off", false},
		{"a foreign replica", func(w *deposedWorld) { w.semiSync.Clients = 2 }, "2 semi-sync replicas", false},
		{"no tap", func(w *deposedWorld) { w.semiSync.Clients = 0 }, "0 semi-sync replicas", false},
		{"another policy", func(w *deposedWorld) { w.acksWait = true }, "more than a majority", false},
		{"another policy meanwhile", func(w *deposedWorld) { w.during = at("end waiters", func() { w.acksWait = true }) }, "more than a majority", false},
		{"more than is committed, and the epoch is over", func(w *deposedWorld) { w.received, w.over = 8, true }, "goes on after entry 7", false},
		{"more than is committed", func(w *deposedWorld) { w.received = 8 }, "wait for what becomes of epoch 3", false},
		{"prepared XA", func(w *deposedWorld) { w.xa = 1 }, "1 XA transaction is prepared", true},
		{"binlog ahead of the tap", func(w *deposedWorld) { w.binlog.Offset++ }, "the tap has read up to", true},
		{"binlog in another file", func(w *deposedWorld) { w.binlog.File = "q.000002" }, "the tap has read up to", true},
		{"sessions that wait", func(w *deposedWorld) { w.semiSync.WaitSessions = 1 }, "1 sessions wait", true},
		{"more received after read-only", func(w *deposedWorld) { w.during = at("read-only", func() { w.received = 8 }) }, "goes on after entry 7", true},
		{"semi-sync not known", func(w *deposedWorld) { w.failing = "semi-sync" }, "semi-sync", false},
		{"waiters not ended", func(w *deposedWorld) { w.failing = "end waiters" }, "end waiters", false},
		{"writes not closed", func(w *deposedWorld) { w.failing = "read-only" }, "close writes", true},
		{"XA not known", func(w *deposedWorld) { w.failing = "xa" }, "xa", true},
		{"end not known", func(w *deposedWorld) { w.failing = "binlog end" }, "binlog end", true},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), SettleTimeout)
				defer cancel()
				w := newDeposedWorld()
				w.changed = make(chan struct{}) // of this bubble
				c.spoil(w)
				err := w.settle(ctx)
				if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("it says %v, want %q", err, c.want)
				}
				if acked := slices.Contains(w.did, "acknowledge"); acked != c.acks {
					t.Errorf("it acknowledges is %t", acked)
				}
				if c.want == "" && !slices.Equal(w.did, inOrder) {
					t.Errorf("it did %q, want %q", w.did, inOrder)
				}
			})
		})
	}
}

// TestSettlingWaits: what the tap has received is committed only later. Then mysqld's sessions end, and then its
// binlog is read.
func TestSettlingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), SettleTimeout)
		defer cancel()
		w := newDeposedWorld()
		w.received, w.semiSync.WaitSessions, w.at.Offset = 8, 1, 800
		close(w.changed)
		looks := map[string]int{}
		w.during = func(step string) {
			looks[step]++
			switch {
			case step == "changed" && looks[step] == 3:
				w.number = 8
			case step == "binlog end" && looks[step] == 2:
				w.semiSync.WaitSessions = 0
			case step == "binlog end" && looks[step] == 3:
				w.at.Offset = 900
			}
		}
		if err := w.settle(ctx); err != nil {
			t.Fatal(err)
		}
		if looks["changed"] != 3 || looks["binlog end"] != 3 {
			t.Errorf("settled after %v looks: before it could be", looks)
		}
	})
}
