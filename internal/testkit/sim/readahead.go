package sim

import (
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/log/seglog"
)

const (
	// inMemoryMax is how many of the newest entries a leader has in memory. Older entries have
	// to be read ahead, aheadEntries at a time.
	inMemoryMax  = 24
	aheadEntries = 40
	// aheadMean is how long a read takes: longer than an append to the same disk.
	aheadMean = 3 * time.Millisecond
)

// aheadLog is the log as raft sees it where a lagging peer's entries are read ahead, as seglog's
// Run does in a goroutine of its own. A read for such a peer never waits. It fails, and is tried
// again when the entries are there. Only the newest read is kept, so peers that lag by different
// lengths disturb each other.
type aheadLog struct {
	*seglog.Log
	a *agent
	// The entries from..until are in memory beside the newest ones. reading is where the read
	// under way begins; 0 = there is none.
	from, until, reading uint64
	news                 chan struct{}
}

// Arrived implements consensus.Log.
func (l *aheadLog) Arrived() <-chan struct{} { return l.news }

// EntriesInMemory implements consensus.Log.
func (l *aheadLog) EntriesInMemory(lo, hi, bytesMax uint64) ([]seglog.Entry, error) {
	if lo+inMemoryMax > l.LastIndex() || lo < l.FirstIndex() {
		return l.Entries(lo, hi, bytesMax)
	}
	if lo >= l.from && lo < l.until {
		return l.Entries(lo, min(hi, l.until), bytesMax)
	}
	if l.reading == 0 {
		l.reading = lo
		l.a.w.aheads++
		l.a.life.after(l.a.n.disk.slow*around(l.a.n.rng, aheadMean), l.arrived)
	}
	return nil, fmt.Errorf("read entry %d: %w", lo, seglog.ErrNotInMemory)
}

func (l *aheadLog) arrived() {
	l.from, l.until, l.reading = l.reading, l.reading+aheadEntries, 0
	select {
	case l.news <- struct{}{}:
	default:
	}
}
