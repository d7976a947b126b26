package agent

import (
	"sync"
	"time"

	"github.com/quorate/quorate/internal/consensus"
	"github.com/quorate/quorate/internal/gtid"
)

// lagMarksMax bounds the marks that a lagTracker keeps. When it is full every
// second one goes: the lag is then measured more coarsely, never wrongly.
const lagMarksMax = 8192

// lagTracker knows how far mysqld is behind the committed log.
type lagTracker struct {
	mu sync.Mutex
	// base is what was committed when the commit check started, nil once mysqld
	// has all of it: marks without a transaction stand for it.
	base    *gtid.Set
	newest  consensus.Mark
	applied consensus.Mark // the newest mark that mysqld has
	marks   []lagMark      // newer than applied, oldest first
	at      time.Time      // when the newest transaction was committed, as seen here; zero = none was
}

type lagMark struct {
	consensus.Mark
	at time.Time
}

// lag is how far mysqld is behind.
type lag struct {
	Applied             uint64
	Transactions, Bytes int64
	Seconds             float64
	// AppliedBytes counts what mysqld has; differences of two are exact.
	AppliedBytes uint64
}

// start notes what the commit check starts with.
func (l *lagTracker) start(committed *gtid.Set) { l.base = committed }

// committed notes a newer mark. It is called in a turn of consensus.
func (l *lagTracker) committed(m consensus.Mark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.newest = m
	if n := len(l.marks); n > 0 && l.marks[n-1].Last == m.Last {
		l.marks[n-1].Mark = m // nothing new for mysqld in between
		return
	}
	if len(l.marks) == lagMarksMax {
		half := l.marks[:0]
		for i := 1; i < lagMarksMax; i += 2 {
			half = append(half, l.marks[i])
		}
		l.marks = half
	}
	now := time.Now()
	if m.Last != (gtid.GTID{}) {
		l.at = now
	}
	l.marks = append(l.marks, lagMark{Mark: m, at: now})
}

// newestAt returns when the newest transaction was committed, as seen here; zero =
// none was since the start.
func (l *lagTracker) newestAt() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at
}

// executed notes what mysqld has and returns its lag.
func (l *lagTracker) executed(set *gtid.Set, now time.Time) lag {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.base != nil && set.ContainsSet(l.base) {
		l.base = nil
	}
	for i := len(l.marks) - 1; i >= 0; i-- {
		if m := l.marks[i]; m.Last == (gtid.GTID{}) && l.base == nil || set.Contains(m.Last) {
			l.applied = m.Mark
			l.marks = append(l.marks[:0], l.marks[i+1:]...)
			break
		}
	}
	if len(l.marks) == 0 {
		return lag{Applied: l.newest.Index, AppliedBytes: l.newest.Bytes}
	}
	return lag{
		Applied:      l.applied.Index,
		Transactions: int64(l.newest.Transactions - l.applied.Transactions),
		Bytes:        int64(l.newest.Bytes - l.applied.Bytes),
		Seconds:      now.Sub(l.marks[0].at).Seconds(),
		AppliedBytes: l.applied.Bytes,
	}
}
