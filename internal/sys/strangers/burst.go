package strangers

import (
	"sync"
	"time"
)

const (
	// BurstMax lines about sessions of one kind may be written at once, then one line per burstEvery: a client
	// that connects for each statement must not fill the disk of the agent's log.
	BurstMax   = 50
	burstEvery = 200 * time.Millisecond
)

// Burst bounds the lines about sessions of one kind, wherever they come from. The zero Burst is ready.
type Burst struct {
	mu   sync.Mutex
	full time.Time // when a whole burst may be written again
	left int64     // sessions without a line since the last line
}

// Take tells whether a line may be written now. left is the number of sessions that have got no line since the
// last one.
func (b *Burst) Take(now time.Time) (ok bool, left int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.full.Before(now) {
		b.full = now
	}
	if b.full.Sub(now) > (BurstMax-1)*burstEvery {
		b.left++
		return false, 0
	}
	b.full = b.full.Add(burstEvery)
	left, b.left = b.left, 0
	return true, left
}
