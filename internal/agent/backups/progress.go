package backups

import (
	"slices"
	"sync"
	"time"
)

// progress is how far the archive is, and how the commit index has grown since it was there.
type progress struct {
	mu    sync.Mutex
	known bool   // the archive has reported
	index uint64 // its last entry
	// points are in the order of their commit index. The first is the newest that the archive has, or the oldest that
	// is known: since then the archive may lack something.
	points []point
}

// point: at the moment at, the commit index was no more than commit.
type point struct {
	commit uint64
	at     time.Duration
}

// pointsMax bounds the points: if there are more, every second one is dropped. Two points are never nearer to each
// other than the pointsMax/2-th part of the time that all span. So the lag is too long by some hundredths at most.
const pointsMax = 256

// note takes the commit index of now. A node without a leader (current=false) does not know what is committed: the
// archive gets no younger there.
func (p *progress) note(commit uint64, current bool, now time.Duration) {
	last := len(p.points) - 1
	switch near := (now - p.points[0].at) / (pointsMax / 2); {
	case !current:
		return
	case p.points[last].commit >= commit:
		p.points[last].at = now
		return
	case last > 0 && p.points[last].at-p.points[last-1].at < near:
		p.points[last] = point{commit, now}
		return
	case last+1 >= pointsMax:
		n := 0
		p.points = slices.DeleteFunc(p.points, func(point) bool { n++; return n%2 == 0 })
	}
	p.points = append(p.points, point{commit, now})
}

// trim forgets what is older than the newest point that the archive has.
func (p *progress) trim() {
	has := 0
	for has+1 < len(p.points) && p.points[has+1].commit <= p.index {
		has++
	}
	p.points = slices.Delete(p.points, 0, has)
}

// Reached notes up to which entry the log is in the archive. An archive that reports the same again, or that ships slower
// than the log grows, gets no younger by that.
func (s *Source) Reached(index uint64) {
	p := &s.archive
	p.mu.Lock()
	defer p.mu.Unlock()
	if index < p.index { // it has lost something
		p.points = slices.Insert(p.points, 0, point{at: p.points[0].at})
	}
	p.known, p.index = true, index
	p.note(s.c.Commit(), s.c.Current(), s.c.Clock.Now())
	p.trim()
}

// Archive is the last entry in the archive, and for how long it may lack something that is committed; false if nobody has
// said so since this agent began. The more often it is asked, the more exact is the lag.
func (s *Source) Archive() (index uint64, lag time.Duration, ok bool) {
	p, now := &s.archive, s.c.Clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note(s.c.Commit(), s.c.Current(), now)
	p.trim()
	return p.index, max(now-p.points[0].at, 0), p.known
}
