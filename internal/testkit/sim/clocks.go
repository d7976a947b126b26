package sim

import (
	"math/rand/v2"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/raft/consensus"
)

const (
	// stepClock sets a machine's wall clock forth or back, by up to hours.
	stepClock faultKind = "step-clock"
	// pause stops a machine together with its boot clock, as a hypervisor can. The wall clock is right again
	// when the machine goes on, or later: see assignClocks.
	pause faultKind = "pause-machine"
)

const (
	// clockFaultMean is the mean time between two faults of the clocks.
	clockFaultMean = 4 * time.Second
	// leaseMax is longer than any lease.
	leaseMax = 3 * time.Second
)

// wallSteps are the steps of wall clocks, forth or back.
var wallSteps = [...]time.Duration{50 * time.Millisecond, 700 * time.Millisecond, 5 * time.Second, time.Minute, 3 * time.Hour}

// assignClocks lets the clocks jump and stand still in one of three worlds. The wall clock of a paused machine
// is right again as soon as the machine goes on. Then no lease lasts too long. With Options.LateClocks the wall
// clock may be set right later. Until then no clock of the machine shows the pause, so reads may be stale for
// as long as a lease lasts (docs/failures.md).
func (w *World) assignClocks() {
	w.clocksJump = chance(w.random(streamClocks), 33) || w.options.LateClocks
}

// clockFaults returns the faults of the clocks. They are added to the other faults.
func (w *World) clockFaults(rng *rand.Rand, from, until time.Duration) (faults []fault) {
	for at := from; w.clocksJump && at < until; at += around(rng, clockFaultMean) {
		f := fault{at: at, kind: pause, lasts: 100*time.Millisecond + around(rng, 2*time.Second), size: rng.IntN(100)}
		if chance(rng, 40) {
			f.kind = stepClock
		}
		if chance(rng, 30) {
			f.target = cluster.NodeID(1 + rng.IntN(len(w.nodes)))
		}
		if chance(rng, 30) {
			f.on = []point{pointAppending, pointAppended, pointAcked, pointEpoch, pointOpened}[rng.IntN(5)]
		}
		faults = append(faults, f)
	}
	return faults
}

func (i *injector) strikeClock(f fault, n *node) {
	if f.kind == stepClock {
		step := around(i.rng, wallSteps[f.size%len(wallSteps)])
		if f.size%2 == 0 {
			step = -step
		}
		n.setWall(step)
		if step < 0 { // the lease must end although the clock goes back
			i.strikeNetwork(fault{kind: isolate, lasts: 3 * time.Second, size: f.size}, n)
		}
		if f.size < 60 { // the mistake is noticed and undone
			i.until(f.lasts, func() { n.setWall(-step) })
		}
		return
	}
	late := time.Duration(0)
	if i.w.options.LateClocks && f.size < 70 {
		late = around(i.rng, 2*time.Second)
	}
	times := 1
	if f.size%3 == 0 { // each of these pauses is too short for an election
		times = 4
	}
	for k := range times {
		each := f.lasts / time.Duration(times)
		i.w.sched.after(time.Duration(k)*(each+30*time.Millisecond), func() { n.pause(each, late) })
	}
}

// clock is the machine's clock, as production code reads it.
func (n *node) clock() time.Time { return time.Unix(0, int64(n.now())) }

// wall is the machine's wall clock.
func (n *node) wall() time.Duration { return n.now() + n.wallAhead }

// setWall moves the wall clock by a time. It does not move it back while a lease from before a pause may last:
// the wrong clock would hide the pause.
func (n *node) setWall(by time.Duration) {
	now := n.w.sched.now
	if by < 0 && n.pausedUntil > 0 && now < n.pausedUntil+leaseMax {
		return
	}
	if by < 0 {
		n.setBack = now
	}
	n.w.struck.ClockSteps++
	n.log("clock", "set by %v", by)
	n.wallAhead += by
}

// pause stops the machine and its clocks for d. The wall clock is right again when the machine has run for
// late.
func (n *node) pause(d, late time.Duration) {
	now := n.w.sched.now
	d -= max(0, n.stalledUntil-now)
	if !n.powered || d <= 0 || n.setBack > 0 && now < n.setBack+leaseMax {
		return
	}
	n.w.struck.Pauses++
	n.log("pause", "for %v, the wall clock is right %v after it", d, late)
	if n.stalledUntil <= now {
		n.stalledAt = now
	}
	n.stalledUntil = max(n.stalledUntil, now) + d
	n.pausedUntil = n.stalledUntil
	n.bootedAt += d
	n.paused += d
	n.pauses = append(n.pauses, pauseOf{n.pausedUntil, d})
	if late == 0 {
		n.wallAhead += d
		return
	}
	n.w.sched.at(n.stalledUntil+late, func() { n.setWall(d) })
	if t := n.timing; t != (timing{}) {
		lease := consensus.Promise(t.tick, int(t.election/t.tick))
		n.staleUntil = max(n.staleUntil, n.stalledUntil+min(late, n.globally(lease)))
	}
}

// pauseOf is one pause of a machine.
type pauseOf struct{ until, lasted time.Duration }

// pausedSince is for how long the machine was paused since a time.
func (n *node) pausedSince(at time.Duration) (sum time.Duration) {
	for _, p := range n.pauses {
		if p.until > at {
			sum += p.lasted
		}
	}
	return sum
}

// mayBeStale tells whether the machine may still believe in a lease that is over: the machine was paused, and
// its wall clock is not right yet.
func (n *node) mayBeStale() bool { return n.w.sched.now <= n.staleUntil }
