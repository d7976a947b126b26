package agent

import (
	"context"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/tap"
)

// logLagMax is how far a replica's log may be behind this node's and the replica
// still count as one that could take over: what was committed before that it has.
// It is what its status is old, and a little more.
const logLagMax = 3 * time.Second

// lagBound slows the tap down while the best replica is too far behind
// (mysql.max_apply_lag).
type lagBound struct {
	mu    sync.Mutex
	bound *tap.LagBound
	pacer tap.Pacer
	pace  tap.Pace
	// open: writes are not being closed. What waits for its ACK then is in the way.
	open bool
	// changed is closed at the next change of the pace.
	changed chan struct{}
	waited  time.Duration
	slowed  uint64 // batches that waited

	commits []commitPoint // runLagBound's
}

// commitPoint is what was committed at a time.
type commitPoint struct {
	at    time.Time
	index uint64
}

func newLagBound(max time.Duration) *lagBound {
	return &lagBound{bound: tap.NewLagBound(max), changed: make(chan struct{}), open: true}
}

// wait waits until a batch may be proposed. What it holds back is not in Raft yet:
// no ACK waits for it but its own.
func (l *lagBound) wait(ctx context.Context, bytes uint64) error {
	began := time.Time{}
	for {
		now := time.Now()
		l.mu.Lock()
		wait, changed := l.pacer.Wait(now), l.changed
		if wait == 0 || !l.open {
			if !began.IsZero() {
				l.waited += now.Sub(began)
				l.slowed++
			}
			l.pacer.Went(now, bytes)
			l.mu.Unlock()
			return nil
		}
		l.mu.Unlock()
		if began.IsZero() {
			began = now
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		timer.Stop()
	}
}

// tryPass proposes a batch if none has to wait now, and tells whether it was proposed.
func (l *lagBound) tryPass(bytes uint64, propose func() bool) bool {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open && l.pacer.Wait(now) > 0 || !propose() {
		return false
	}
	l.pacer.Went(now, bytes)
	return true
}

// set changes the pace, and wakes what waits.
func (l *lagBound) set(p tap.Pace) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pace = p
	l.pacer.Set(p)
	l.wake()
}

// setOpen(false) lets everything pass: writes are being closed, which waits for
// what was written already.
func (l *lagBound) setOpen(open bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = open
	l.wake()
}

// wake is called with l.mu held.
func (l *lagBound) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// now returns the pace, and how many batches waited for how long so far.
func (l *lagBound) now() (p tap.Pace, slowed uint64, waited time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pace, l.slowed, l.waited
}

// committedBefore notes what is committed now, and returns what was logLagMax ago
// (0 = that is not known).
func (l *lagBound) committedBefore(now time.Time, index uint64) (before uint64) {
	l.commits = append(l.commits, commitPoint{now, index})
	for len(l.commits) > 1 && now.Sub(l.commits[1].at) >= logLagMax {
		l.commits = l.commits[1:]
	}
	if first := l.commits[0]; now.Sub(first.at) >= logLagMax {
		return first.index
	}
	return 0
}

// runLagBound looks at the replicas' lag at intervals while this node is primary.
func (a *Agent) runLagBound(ctx context.Context) error {
	if a.cfg.MySQL.MaxApplyLag == 0 {
		return nil
	}
	l := a.lagBound
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	primary, limited := false, false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		before := l.committedBefore(time.Now(), a.node.Committed().Mark().Index)
		nodes := a.board.Nodes()
		if is := a.board.Own().Role == cluster.RolePrimary; !is {
			if primary {
				l.bound = tap.NewLagBound(a.cfg.MySQL.MaxApplyLag)
				l.set(tap.Pace{})
			}
			primary, limited = false, false
			continue
		}
		primary = true
		p := tap.Pace{} // where nobody else could ever lead there is nothing to say
		if othersCanLead(nodes, a.self.ID) {
			p = l.bound.Decide(lags(nodes, a.self.ID, before))
		}
		l.set(p)
		if p.Limited != limited {
			a.logger.Warn("apply lag", "slowed", p.Limited, "bytes_per_second", int64(p.BytesPerSecond), "reason", p.Reason)
		}
		limited = p.Limited
	}
}

// othersCanLead tells whether the cluster has another node that could ever lead.
func othersCanLead(nodes []cluster.NodeStatus, self cluster.NodeID) bool {
	for _, n := range nodes {
		if n.ID != self && n.Kind == cluster.KindFull && n.Weight > 0 {
			return true
		}
	}
	return false
}

// lags returns the replicas that could take over, as the bound wants them: their
// logs have what is committed, up to the entry before.
func lags(nodes []cluster.NodeStatus, self cluster.NodeID, before uint64) (all []tap.Lag) {
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
