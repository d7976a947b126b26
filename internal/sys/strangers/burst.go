package strangers

import (
	"sync"
	"time"
)

const (
	// BurstMax lines about sessions of one kind may come at once, then one each burstEvery: a client
	// that connects for each statement must not fill the log's disk.
	BurstMax   = 50
	burstEvery = 200 * time.Millisecond
)

// Burst bounds the lines about sessions of one kind, wherever they come from. The zero Burst is ready.
type Burst struct {
	mu   sync.Mutex
	full time.Time // when all lines of a burst may be written again
	left int64     // sessions without a line since the last line
}

// Take tells whether a line may be written, and of how many sessions there was none
// before it.
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
