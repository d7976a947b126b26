package primary

import (
	"context"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/tap"
	"github.com/quorate/quorate/internal/sys/clock"
)

// logLagMax is how far the log of a replica that could take over may be behind the
// primary's: the replica has what was committed before that. It is the age that its
// status may have, and a little more.
const logLagMax = 3 * time.Second

// LagBound slows the tap down while the best replica is too far behind
// (mysql.max_apply_lag). Make one with NewLagBound.
type LagBound struct {
	max   time.Duration
	clock clock.Clock

	mu    sync.Mutex
	pacer tap.Pacer
	pace  tap.Pace
	// open: writes are not being closed. While they are being closed, a batch that waits is in the way.
	open bool
	// changed is closed at the next change of the pace.
	changed chan struct{}
	waited  time.Duration
	slowed  uint64 // batches that waited

	// bound is nil while this node is not the primary. Only Look uses bound and commits.
	bound   *tap.LagBound
	commits []commitPoint
}

// commitPoint is what was committed at a time.
type commitPoint struct {
	at    time.Duration
	index uint64
}

// NewLagBound returns a bound of max; 0 = none.
func NewLagBound(max time.Duration, c clock.Clock) *LagBound {
	return &LagBound{max: max, clock: c, changed: make(chan struct{}), open: true}
}

// Wait waits until a batch may be proposed. A batch that waits is not in Raft yet:
// no ACK waits for it but its own.
func (l *LagBound) Wait(ctx context.Context, bytes uint64) error {
	began := l.clock.Now()
	for waited := false; ; waited = true {
		now := l.clock.Now()
		l.mu.Lock()
		wait, changed := l.pacer.Wait(now), l.changed
		if wait == 0 || !l.open {
			if waited {
				l.waited += now - began
				l.slowed++
			}
			l.pacer.Went(now, bytes)
			l.mu.Unlock()
			return nil
		}
		l.mu.Unlock()
		if err := l.clock.Wait(ctx, wait, changed); err != nil {
			return err
		}
	}
}

// TryPass proposes a batch if it need not wait now, and tells whether it was proposed.
func (l *LagBound) TryPass(bytes uint64, propose func() bool) bool {
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open && l.pacer.Wait(now) > 0 || !propose() {
		return false
	}
	l.pacer.Went(now, bytes)
	return true
}

// SetOpen(false) lets everything pass: writes are being closed, which waits for
// what was written already.
func (l *LagBound) SetOpen(open bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = open
	l.wake()
}

// wake is called with l.mu held.
func (l *LagBound) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Now returns the pace, how many batches have waited, and for how long in all.
func (l *LagBound) Now() (p tap.Pace, slowed uint64, waited time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pace, l.slowed, l.waited
}

// Look sets the pace by what this node, if it is the primary, knows of the others. One
// goroutine calls it at intervals. committed was read before the nodes' statuses. news: the
// tap is slowed down now and was not, or the reverse.
func (l *LagBound) Look(self status.Node, committed uint64, nodes []status.Node) (p tap.Pace, news bool) {
	had := l.committedBefore(l.clock.Now(), committed)
	switch is := self.Role == status.RolePrimary; {
	case !is && l.bound == nil:
		return tap.Pace{}, false
	case !is:
		l.bound = nil
	case l.bound == nil:
		l.bound = tap.NewLagBound(l.max)
	}
	if l.bound != nil && othersCanLead(nodes, self.ID) { // else there is nothing to say
		p = l.bound.Decide(lags(nodes, self.ID, had))
	}
	before := l.set(p)
	return p, p.Limited != before.Limited && l.bound != nil
}

// set changes the pace, and wakes what waits.
func (l *LagBound) set(p tap.Pace) (before tap.Pace) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, l.pace = l.pace, p
	l.pacer.Set(p)
	l.wake()
	return before
}

// committedBefore notes what is committed now, and returns what was logLagMax ago
// (0 = that is not known).
func (l *LagBound) committedBefore(now time.Duration, index uint64) (before uint64) {
	l.commits = append(l.commits, commitPoint{now, index})
	for len(l.commits) > 1 && now-l.commits[1].at >= logLagMax {
		l.commits = l.commits[1:]
	}
	if first := l.commits[0]; now-first.at >= logLagMax {
		return first.index
	}
	return 0
}

// othersCanLead tells whether the cluster has another node that could ever lead.
func othersCanLead(nodes []status.Node, self cluster.NodeID) bool {
	for _, n := range nodes {
		if n.ID != self && n.Kind == cluster.KindFull && n.Weight > 0 {
			return true
		}
	}
	return false
}

// lags returns the lags of the replicas that could take over: their logs have what
// is committed, up to the entry before.
func lags(nodes []status.Node, self cluster.NodeID, before uint64) (all []tap.Lag) {
	for _, n := range nodes {
		if n.ID == self || !n.CanTakeOver() || n.LogCommit < before {
			continue
		}
		all = append(all, tap.Lag{
			Node: n.Name, AgeSeconds: n.LagSeconds, BacklogSeconds: n.BacklogSeconds(), BytesPerSecond: n.ApplyRate,
		})
	}
	return all
}
