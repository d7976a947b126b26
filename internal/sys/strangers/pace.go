package strangers

import "time"

// pace spreads the turns of all sources together over time. So even a client with many addresses gets
// only one turn of this host's processor in each interval. The zero pace has no bound.
type pace struct {
	every time.Duration
	// waiting bounds how many strangers may wait for a turn.
	waiting int
	// next is the earliest begin of the next turn. If a stranger leaves while it waits, nobody else gets
	// its turn.
	next time.Time
}

// take gives the next turn away, and returns the time until it begins. ok is false if as many strangers wait
// as may.
func (p *pace) take(now time.Time) (wait time.Duration, ok bool) {
	wait = max(0, p.next.Sub(now))
	if wait > time.Duration(p.waiting)*p.every {
		return 0, false
	}
	p.next = now.Add(wait + p.every)
	return wait, true
}
