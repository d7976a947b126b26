package consensus

import (
	"slices"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/mysql/gtid"
)

// lagMarksMax bounds the marks that a LagTracker keeps. When it is full, every second mark is dropped: then the
// lag is measured more coarsely, but never wrongly.
const lagMarksMax = 8192

// LagTracker knows how far a mysqld is behind the committed log, by the marks of its commit check. The zero
// value is ready. Any goroutine may call it, except Start.
type LagTracker struct {
	mu sync.Mutex
	// base is what was committed when the commit check started; nil once mysqld has a later transaction. Marks
	// without a transaction stand for base.
	base    *gtid.Set
	lacks   func(*gtid.Set) uint64
	newest  Mark
	applied Mark      // the newest mark that mysqld has
	marks   []lagMark // newer than applied, oldest first
	at      time.Time // when the newest transaction was committed, by this node's clock; zero = none was
}

type lagMark struct {
	Mark
	at time.Time
}

// Lag is how far a mysqld is behind.
type Lag struct {
	// Applied is an index up to which mysqld has everything.
	Applied uint64
	// Transactions and Bytes count what is committed and mysqld lacks.
	Transactions, Bytes int64
	// Seconds is for how long the oldest of these has been committed, by this node's clock.
	Seconds float64
	// AppliedBytes counts what mysqld has. Only the difference of two values is exact.
	AppliedBytes uint64
}

// Start sets what was committed when the commit check started, and how to count the committed transactions that a set
// lacks. It is called before all else.
func (l *LagTracker) Start(committed *gtid.Set, lacks func(*gtid.Set) uint64) {
	l.base, l.lacks = committed, lacks
}

// Committed notes a newer mark, which came at now. Config.OnCommit calls it.
func (l *LagTracker) Committed(m Mark, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.newest = m
	if n := len(l.marks); n > 0 && l.marks[n-1].Last == m.Last {
		l.marks[n-1].Mark = m // nothing new for mysqld between the two marks
		return
	}
	if len(l.marks) >= lagMarksMax { // one more after regressed
		half := l.marks[:0]
		for i := 1; i < len(l.marks); i += 2 {
			half = append(half, l.marks[i])
		}
		l.marks = half
	}
	if m.Last != (gtid.GTID{}) {
		l.at = now
	}
	l.marks = append(l.marks, lagMark{Mark: m, at: now})
}

// NewestAt returns when the newest transaction was committed, by this node's clock; zero = none since the
// start.
func (l *LagTracker) NewestAt() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at
}

// regressed makes up for a mysqld that was killed, and has lost its last commits: it lacks the newest mark that it
// had. Nobody knows how much more it lacks.
func (l *LagTracker) regressed(now time.Time) {
	m := lagMark{Mark: l.applied, at: now}
	if len(l.marks) > 0 {
		m.at = l.marks[0].at
	}
	l.marks = slices.Insert(l.marks, 0, m)
	l.applied.Index, l.applied.Last = 0, gtid.GTID{}
	l.applied.Transactions -= min(1, l.applied.Transactions)
}

// Executed notes what mysqld has and returns its lag.
func (l *LagTracker) Executed(set *gtid.Set, now time.Time) Lag {
	lag, step := l.behind(set, now)
	if lag.Transactions > 0 && l.lacks != nil {
		step.refine(&lag, l.lacks(set)) // without the lock: no commit waits for that
	}
	return lag
}

// markStep is the oldest mark that mysqld lacks: its transactions and bytes, and the transactions behind it.
type markStep struct{ transactions, bytes, later uint64 }

// behind returns the lag, as exact as the marks are.
func (l *LagTracker) behind(set *gtid.Set, now time.Time) (Lag, markStep) {
	l.mu.Lock()
	defer l.mu.Unlock()
	based := l.base == nil || set.ContainsSet(l.base)
	has := func(m Mark) bool { return m.Last == (gtid.GTID{}) && based || set.Contains(m.Last) }
	if l.applied.Index > 0 && !has(l.applied) {
		l.regressed(now)
	}
	for i := len(l.marks) - 1; i >= 0; i-- {
		if m := l.marks[i].Mark; has(m) {
			l.applied = m
			l.marks = append(l.marks[:0], l.marks[i+1:]...)
			break
		}
	}
	if l.applied.Last != (gtid.GTID{}) {
		l.base = nil // it comes before
	}
	if len(l.marks) == 0 {
		return Lag{Applied: l.newest.Index, AppliedBytes: l.newest.Bytes}, markStep{}
	}
	m, seconds := l.marks[0].Mark, now.Sub(l.marks[0].at).Seconds()
	return Lag{
		Applied:      l.applied.Index,
		Transactions: max(1, int64(l.newest.Transactions-l.applied.Transactions)),
		Bytes:        int64(l.newest.Bytes - l.applied.Bytes),
		Seconds:      seconds,
		AppliedBytes: l.applied.Bytes,
	}, markStep{m.Transactions - l.applied.Transactions, m.Bytes - l.applied.Bytes, l.newest.Transactions - m.Transactions}
}

// refine counts what mysqld has of the step. After a start, one mark may stand for the whole log. Of its bytes mysqld
// has the share that it has of its transactions.
func (s markStep) refine(lag *Lag, lacks uint64) {
	lag.Transactions = max(1, int64(lacks))
	if s.transactions == 0 {
		return
	}
	lack := min(lacks-min(lacks, s.later), s.transactions)
	bytes := uint64(float64(s.transactions-lack) / float64(s.transactions) * float64(s.bytes))
	lag.Bytes -= int64(bytes)
	lag.AppliedBytes += bytes
}
