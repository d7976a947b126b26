package primary

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/role"
	"github.com/quorate/quorate/internal/sys/clock"
)

// replicaWorld is a replica that applies. At first it has all entries, and its applier runs.
type replicaWorld struct {
	executed, committed *gtid.Set
	status              ReplicaStatus
	progress            int
	failing             string // this question fails
	stopped             bool

	// during is called by each look before the look does anything.
	during func(look int)
	looks  int

	started, unblocked, progressed int
	slow                           string
}

func (w *replicaWorld) step(name string) error {
	if name == w.failing {
		return errors.New(name + " fails")
	}
	return nil
}

func (w *replicaWorld) Barrier(context.Context) error { return w.step("barrier") }
func (w *replicaWorld) GTIDs() *gtid.Set              { return w.committed }
func (w *replicaWorld) GTIDExecuted(context.Context) (*gtid.Set, error) {
	return w.executed, w.step("executed")
}
func (w *replicaWorld) StartAgain(context.Context)  { w.started++ }
func (w *replicaWorld) EndBlockers(context.Context) { w.unblocked++ }

func (w *replicaWorld) StopReplica(context.Context) error {
	w.stopped = true
	return w.step("stop")
}

func (w *replicaWorld) AppliedWithin(ctx context.Context, set *gtid.Set, d time.Duration) (bool, error) {
	if w.executed.ContainsSet(set) {
		return true, w.step("wait")
	}
	if err := (clock.Machine{}).Wait(ctx, d, nil); err != nil {
		return false, err
	}
	w.looks++
	w.during(w.looks)
	return w.executed.ContainsSet(set), w.step("wait")
}

func (w *replicaWorld) ReplicaStatus(context.Context) (ReplicaStatus, error) {
	s := w.status
	if w.stopped && w.failing != "stays stopped" {
		s.Receives, s.Applies = false, false
	}
	return s, w.step("status")
}

func (w *replicaWorld) ApplyProgress(context.Context, string) (string, error) {
	return fmt.Sprintf("work %d", w.progress), w.step("progress")
}

// catchUpLimit is what a catch-up of these tests may take.
const catchUpLimit = 10100 * time.Millisecond

type catchUpCase struct {
	what    string
	spoil   func(w *replicaWorld, all *gtid.Set)
	mayOpen func() error
	want    string // "" = it has everything
	verdict role.Verdict
	took    time.Duration
	did     [3]int // started again, ended blockers, progressed
}

// TestCatchUp: what a catch-up does about an applier that makes progress, stands still, or stops. Writes may be
// opened only once mysqld has all transactions and its replication has stopped.
func TestCatchUp(t *testing.T) {
	for _, c := range []catchUpCase{
		{what: "it has everything", spoil: func(*replicaWorld, *gtid.Set) {}},
		{what: "no majority", spoil: func(w *replicaWorld, _ *gtid.Set) { w.failing = "barrier" }, want: "barrier fails", verdict: role.Failed},
		{what: "maintenance", spoil: func(*replicaWorld, *gtid.Set) {}, mayOpen: func() error { return errors.New("maintenance is on") }, want: "maintenance", verdict: role.Failed},
		{what: "what it lacks is not known", spoil: func(w *replicaWorld, _ *gtid.Set) { w.failing = "executed" }},
		{what: "it gets on", spoil: func(w *replicaWorld, all *gtid.Set) {
			w.during = func(look int) {
				if w.progress++; look == 4 {
					w.executed = all
				}
			}
		}, took: time.Second, did: [3]int{0, 0, 2}},
		{what: "it is blocked", spoil: func(w *replicaWorld, all *gtid.Set) {
			w.during = func(int) {
				if w.unblocked == 2 {
					w.executed = all
				}
			}
		}, took: 2500 * time.Millisecond, did: [3]int{0, 2, 0}},
		{what: "it stopped without an error", spoil: func(w *replicaWorld, all *gtid.Set) {
			w.status.Applies = false
			w.during = func(int) {
				if w.started == 1 {
					w.executed = all
				}
			}
		}, took: 500 * time.Millisecond, did: [3]int{1, 0, 0}},
		{what: "it does not receive", spoil: func(w *replicaWorld, all *gtid.Set) {
			w.status.Receives = false
			w.during = func(int) {
				if w.started == 1 {
					w.executed = all
				}
			}
		}, took: 500 * time.Millisecond, did: [3]int{1, 0, 0}},
		{what: "it stopped with an error", spoil: func(w *replicaWorld, _ *gtid.Set) {
			w.status.Applies, w.status.Errno, w.status.Error = false, 1062, "Duplicate entry"
		}, want: "the applier stopped with error 1062: Duplicate entry", verdict: role.ApplierStopped, took: 250 * time.Millisecond},
		{what: "a session waits for an ACK", spoil: func(w *replicaWorld, _ *gtid.Set) {
			w.status.Unacknowledged = "a statement of 'app'@'%' waits for an ACK"
		}, want: "mysqld starts again without that statement", verdict: role.Unfit, took: 500 * time.Millisecond},
		{what: "nothing helps", spoil: func(*replicaWorld, *gtid.Set) {}, want: "deadline", verdict: role.Failed, took: catchUpLimit, did: [3]int{0, 33, 0}},
		{what: "it cannot be asked", spoil: func(w *replicaWorld, _ *gtid.Set) { w.failing = "status" }, want: "deadline", verdict: role.Failed, took: catchUpLimit},
		{what: "it has ended", spoil: func(w *replicaWorld, _ *gtid.Set) { w.failing = "wait" }, want: "wait fails", verdict: role.Failed, took: 250 * time.Millisecond},
		{what: "it does not stop", spoil: func(w *replicaWorld, all *gtid.Set) { w.failing, w.executed = "stop", all }, want: "stop replication", verdict: role.Failed},
		{what: "it runs again", spoil: func(w *replicaWorld, all *gtid.Set) { w.failing, w.executed = "stays stopped", all }, want: "runs again", verdict: role.Failed},
	} {
		synctest.Test(t, c.run)
	}
}

func (c catchUpCase) run(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), catchUpLimit)
	defer cancel()
	w := &replicaWorld{executed: gtids(t, "1-3"), committed: gtids(t, "1-5"), status: ReplicaStatus{Receives: true, Applies: true}, during: func(int) {}}
	if c.took == 0 {
		w.executed = w.committed
	}
	c.spoil(w, w.committed)
	if c.mayOpen == nil {
		c.mayOpen = func() error { return nil }
	}
	began := time.Now()
	_, err := CatchUp{Server: w, Log: w, MayOpen: c.mayOpen, Progressed: func() { w.progressed++ }, Slow: func(text string) { w.slow = text }, Clock: clock.Machine{}}.Run(ctx)
	if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || err != nil && Done(1, 0, err).Verdict != c.verdict {
		t.Errorf("%s: %v, want %q", c.what, err, c.want)
	}
	if took := time.Since(began); took != c.took {
		t.Errorf("%s: it took %v, want %v", c.what, took, c.took)
	}
	if did := [3]int{w.started, w.unblocked, w.progressed}; did != c.did {
		t.Errorf("%s: started again, ended blockers, progressed: %v, want %v", c.what, did, c.did)
	}
	if w.slow != "" || err == nil && !w.stopped {
		t.Errorf("%s: afterwards it says %q, replication has stopped is %t", c.what, w.slow, w.stopped)
	}
}

// TestCatchUpLacked: a catch-up tells how many transactions it has applied.
func TestCatchUpLacked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &replicaWorld{executed: gtids(t, "1-3"), committed: gtids(t, "1-5")}
		w.during = func(int) { w.executed = w.committed }
		none := func(string) {}
		lacked, err := CatchUp{Server: w, Log: w, MayOpen: func() error { return nil }, Slow: none, Clock: clock.Machine{}}.Run(t.Context())
		if lacked != 2 || err != nil {
			t.Errorf("it lacked %d, %v", lacked, err)
		}
	})
}

// TestCatchUpWatch: the status tells a catch-up that makes progress from a catch-up that does not.
func TestCatchUpWatch(t *testing.T) {
	w, now := catchUpWatch{}, time.Duration(0)
	for _, c := range []struct {
		progress string
		moved    bool
		says     string
	}{
		{"u:1-5, work 7", false, "catching up for 1s"},
		{"u:1-5, work 9", true, "catching up for 2s"},
		{"u:1-5, work 9", false, "catching up for 3s"},
		{"u:1-5, work 9", false, "catching up for 4s, at a standstill for 2s"},
		{"u:1-6, work 9", true, "catching up for 5s"},
	} {
		now += time.Second
		if moved := w.observe(c.progress, now); moved != c.moved || w.text(now) != c.says {
			t.Errorf("%s: %t, %q, want %q", c.progress, moved, w.text(now), c.says)
		}
	}
}
