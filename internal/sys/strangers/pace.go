package strangers

import "time"

// pace spreads the turns of all sources together over time. A client with many addresses has
// no more of this host's processor than one turn in each interval. The zero pace has no bound.
type pace struct {
	every time.Duration
	// waiting bounds those who wait for theirs.
	waiting int
	// next is when the next turn begins, at the earliest. The turn of one who leaves meanwhile is not
	// given to another.
	next time.Time
}

// take gives the next turn away, and says when it begins; ok=false: as many as may wait already.
func (p *pace) take(now time.Time) (wait time.Duration, ok bool) {
	wait = max(0, p.next.Sub(now))
	if wait > time.Duration(p.waiting)*p.every {
		return 0, false
	}
	p.next = now.Add(wait + p.every)
	return wait, true
}
