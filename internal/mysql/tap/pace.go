package tap

import (
	"fmt"
	"time"
)

// How the tap slows down. The bound is on the time that the best replica would
// need to apply what it lacks, which is what a failover waits for.
const (
	// paceFrom is the part of the bound from which on the tap slows down. Up to
	// there a backlog comes and goes by itself.
	paceFrom = 0.5
	// paceTo is the part of the bound from which on only the minimum passes (see paceWaitMin).
	// It is above the bound, so that a backlog that overshoots comes back.
	paceTo = 1.5
	// paceFactorMax is how much faster than the replica applies the tap may be at
	// paceFrom; it is 1 at the bound.
	paceFactorMax = 4.0
	// paceFactorCatchingUp is the smallest factor while the best replica has not been within
	// the bound since it came: the replica still gets nearer, and writes do not stop for it.
	paceFactorCatchingUp = 0.5
	// paceAgeMin is the age in seconds below which the oldest transaction that the best replica
	// lacks counts as no lag: the figures are half a second old, and a younger lag may be gone.
	paceAgeMin = 2.0
	// A batch waits at most paceWaitMin, or as long as the replica needs for ten batches of its
	// size, up to paceWaitMax. So something always passes, also the statement that ends the
	// trouble.
	paceWaitMin   = time.Second
	paceWaitMax   = 10 * time.Second
	paceWaitTimes = 10
)

// Lag is how far the server of one replica is behind, by its latest report.
type Lag struct {
	Node string
	// AgeSeconds is the age of the oldest committed transaction that it lacks.
	AgeSeconds float64
	// BacklogSeconds is how long it would take to apply all that it lacks.
	BacklogSeconds float64
	// BytesPerSecond is its rate while it has something to apply; 0 = not known.
	BytesPerSecond float64
}

// Pace is how fast the tap may hand out batches.
type Pace struct {
	// Limited says that BytesPerSecond is the limit. If it is false there is no limit.
	Limited        bool
	BytesPerSecond float64
	// Best is the replica that a failover would wait for the least; its Node is ""
	// if there is none.
	Best Lag
	// Reason tells people in a sentence why there is a limit, or none; "" = there is nothing to
	// say.
	Reason string
}

// LagBound keeps the best replica's backlog near a bound by slowing the tap down. Something may
// always pass. Without a replica there is no limit: a failover would wait for nobody.
type LagBound struct {
	maxSeconds float64
	// within holds the replicas that were within the bound since they came.
	within map[string]bool
}

// NewLagBound returns a bound of max; 0 = no bound.
func NewLagBound(max time.Duration) *LagBound {
	return &LagBound{maxSeconds: max.Seconds()}
}

// Decide returns the pace from now on. replicas are the replicas that could take over now.
func (b *LagBound) Decide(replicas []Lag) Pace {
	if b.maxSeconds <= 0 {
		return Pace{}
	}
	if len(replicas) == 0 {
		b.within = nil
		return Pace{Reason: "no bound on the apply lag: no replica could take over"}
	}
	within := make(map[string]bool, len(replicas))
	best := replicas[0]
	for _, r := range replicas {
		within[r.Node] = b.within[r.Node] || r.BacklogSeconds <= b.maxSeconds
		if r.BacklogSeconds < best.BacklogSeconds {
			best = r
		}
	}
	b.within = within
	p := Pace{Best: best}
	if best.AgeSeconds < min(paceAgeMin, b.maxSeconds*paceFrom) {
		return p
	}
	over := best.BacklogSeconds / b.maxSeconds
	least := 0.0
	if !within[best.Node] {
		least = paceFactorCatchingUp
	}
	if best.BytesPerSecond > 0 {
		p.Limited = over > paceFrom
		p.BytesPerSecond = best.BytesPerSecond * max(least, paceFactor(over))
	} else {
		// The replica has applied nothing yet that could be timed, so there is no rate to keep
		// to. The tap then passes the minimum, and only if the replica was within the bound
		// before: it has stopped.
		p.Limited = over > 1 && within[best.Node]
	}
	if p.Limited {
		p.Reason = fmt.Sprintf("slowed down: the best replica, %s, needs %.1f s to apply what it lacks, the bound is %.1f s",
			best.Node, best.BacklogSeconds, b.maxSeconds)
	} else if over > 1 {
		p.Reason = fmt.Sprintf("no bound on the apply lag: the best replica, %s, is catching up", best.Node)
	}
	return p
}

// paceFactor is how much faster than the best replica applies the tap may be,
// where over is its backlog as a part of the bound.
func paceFactor(over float64) float64 {
	switch {
	case over <= paceFrom:
		return paceFactorMax
	case over <= 1:
		return paceFactorMax - (paceFactorMax-1)*(over-paceFrom)/(1-paceFrom)
	case over < paceTo:
		return (paceTo - over) / (paceTo - 1)
	}
	return 0
}

// Pacer spaces batches out to a pace.
type Pacer struct {
	pace Pace
	due  time.Duration // when the next batch may go, on its owner's clock; 0 = now
}

// Set changes the pace. A batch that waits now keeps its time, unless there is no limit any
// more.
func (p *Pacer) Set(pace Pace) {
	p.pace = pace
	if !pace.Limited {
		p.due = 0
	}
}

// Wait says how long the next batch has to wait from now on; 0 = it may go.
func (p *Pacer) Wait(now time.Duration) time.Duration {
	if p.due == 0 {
		return 0
	}
	return max(0, p.due-now)
}

// Went notes that a batch of some bytes went. The next batch waits for as long as this one
// takes at the pace.
func (p *Pacer) Went(now time.Duration, bytes uint64) {
	if p.pace.Limited {
		p.due = now + p.share(float64(bytes))
	}
}

// share is how long a batch of that many bytes holds the next one back.
func (p *Pacer) share(bytes float64) time.Duration {
	limit := paceWaitMin
	if rate := p.pace.Best.BytesPerSecond; rate > 0 {
		limit = seconds(min(max(paceWaitTimes*bytes/rate, paceWaitMin.Seconds()), paceWaitMax.Seconds()))
	}
	if p.pace.BytesPerSecond <= 0 {
		return limit
	}
	return seconds(min(bytes/p.pace.BytesPerSecond, limit.Seconds()))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
