package ledger

import (
	"sync"
	"time"
)

// gapMeter measures the longest interval between consecutive acknowledged
// commits of all writers. Times must come from the monotonic clock.
type gapMeter struct {
	mu      sync.Mutex
	last    time.Time // the latest acknowledgement, or the start; zero before it
	longest time.Duration
}

// ack notes an acknowledgement at now.
func (g *gapMeter) ack(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.last.IsZero() {
		g.last = now
	}
	// Two writers may take the time in one order and the lock in the other.
	if d := now.Sub(g.last); d > 0 {
		g.longest = max(g.longest, d)
		g.last = now
	}
}

// reset forgets the intervals that have ended. The interval that is open now
// stays: a kill between two commits is inside it.
func (g *gapMeter) reset() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.longest = 0
}

// read returns the longest interval since the last reset, including the interval that is still open
// at now: writes that never resume must not look like a short gap.
func (g *gapMeter) read(now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.last.IsZero() {
		return 0
	}
	return max(g.longest, now.Sub(g.last))
}
