package sim

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestLateClocks runs worlds in which machines are paused with their clocks, and wall clocks are set right
// late. Nothing is lost there, and two nodes never both serve for longer than a lease.
func TestLateClocks(t *testing.T) {
	t.Parallel()
	n := 24
	if testing.Short() {
		n = 4
	}
	runSeeds(t, n, Options{LateClocks: true})
}

// TestPause: the clocks and timers of a paused machine stand still. Only its wall clock may be set right.
func TestPause(t *testing.T) {
	for _, late := range []time.Duration{0, 500 * time.Millisecond} {
		w := newWorld(Options{Nodes: 3})
		n := w.nodes[0]
		n.rate, n.timing = 1, timings[0]
		l := &life{n: n}
		var woke, boot, wall time.Duration
		l.after(2*time.Second, func() { woke, boot, wall = w.sched.now, n.now(), n.wall() })
		w.sched.at(time.Second, func() { n.pause(3*time.Second, late) })
		w.sched.runUntil(time.Minute)
		const timer = 2*time.Second + 1 // on the machine's clock, rounded up
		if woke != timer+3*time.Second || boot != timer || wall != woke {
			t.Errorf("set right after %v: the timer ended at %v, by the boot clock at %v, by the wall clock at %v", late, woke, boot, wall)
		}
		if n.stalledUntil != 4*time.Second || n.staleUntil != 0 && n.staleUntil != 4*time.Second+late {
			t.Errorf("set right after %v: it stood still until %v, and took its lease for valid until %v", late, n.stalledUntil, n.staleUntil)
		}
	}
}

// TestWallClockIsRightAfterAPause: a clock that is set back would hide a pause, and nothing is promised for
// that case. So the simulator does not set it back then.
func TestWallClockIsRightAfterAPause(t *testing.T) {
	w := newWorld(Options{Nodes: 3})
	n := w.nodes[0]
	w.sched.runUntil(time.Second)
	n.setWall(-time.Hour)
	if n.pause(time.Second, 0); n.stalledUntil != 0 {
		t.Error("paused just after its wall clock was set back")
	}
	w.sched.runUntil(10 * time.Second)
	n.pause(time.Second, 0)
	before := n.wallAhead
	if n.setWall(-time.Minute); n.wallAhead != before {
		t.Error("set back while it is paused")
	}
	if n.setWall(time.Minute); n.wallAhead != before+time.Minute {
		t.Error("not set forth while it is paused")
	}
}

// TestAroundIsNeverZero: once in a million, a task slept for no time, and that sleep never ended.
func TestAroundIsNeverZero(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		if around(rng, 1) < 1 {
			t.Fatal("no time")
		}
	}
}
