package primary

import (
	"time"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/raft/consensus"
)

// WatchInterval is how often mysqld is polled.
const WatchInterval = 500 * time.Millisecond

const (
	// busyLag is two polls. If the oldest missing transaction is at least so old, mysqld
	// has had something to apply ever since the poll before: what it has applied
	// meanwhile is as much as it can.
	busyLag = 2 * WatchInterval
	// busySampleMax bounds the time over which one sample is spread: otherwise an applier
	// that was blocked would count as slow long after that.
	busySampleMax = 5 * time.Second
	// stuckMin is for how many seconds nothing must have been applied before an error counts
	// that may pass by itself.
	stuckMin = 2
	// applyRateShare is the newest sample's part of the rate: a change of speed is
	// seen in about two seconds.
	applyRateShare = 0.3
)

// Applier knows how fast a replica's mysqld applies what is committed, and whether it does.
// Only one goroutine may use it. Its zero value is ready.
type Applier struct {
	rate applyRate
	// Replication that has stopped is started again every two seconds, and may stop again at once.
	// So it counts as stopped until mysqld has applied something, or lacks nothing.
	why      string // "" = it applies
	executed string // gtid_executed when it was seen stopped last
}

// Applied takes what a poll says that mysqld lacks.
func (a *Applier) Applied(role status.Role, l consensus.Lag, now time.Time) {
	if role == status.RolePrimary { // it has everything, and has applied none of it
		a.rate.pause()
		a.why = ""
		return
	}
	a.rate.observe(now, l)
}

// Show completes a status.
func (a *Applier) Show(s *status.Node, l consensus.Lag) {
	s.Applied, s.LagTransactions, s.LagBytes, s.LagSeconds = l.Applied, l.Transactions, l.Bytes, l.Seconds
	s.ApplyRate, s.ApplyStuck = a.rate.rate, a.rate.stuck()
}

// Stopped takes the state of a replica's replication, and returns why it does not apply; "" = it
// does. full is what its mysqld has said of a full disk.
func (a *Applier) Stopped(s ReplicaStatus, full string) string {
	why, stuck := "", a.rate.stuck() >= stuckMin
	switch receives := s.Receives && !(s.Connects && stuck); {
	case s.Error != "" && !s.Applies:
		why = "replication has stopped: " + s.Error
	case s.ReadError != "" && !receives:
		why = "replication cannot read: " + s.ReadError
	case !s.Applies || !s.Receives:
		why = "replication is not running"
	case full != "" && stuck:
		why = full
	}
	if why != "" {
		a.why, a.executed = why, s.Executed
	} else if s.Executed != a.executed || a.rate.lag.Transactions == 0 {
		a.why = ""
	}
	return a.why
}

// applyRate measures how fast mysqld applies while it has something to apply.
type applyRate struct {
	// rate is in bytes a second; 0 = not known: it never had a backlog.
	rate float64

	at   time.Time // when the poll before was; zero = there was none
	lag  consensus.Lag
	busy time.Duration // without progress, while there was something to apply
}

// pause forgets the poll before: what is applied until the next one says nothing about the rate.
func (r *applyRate) pause() { r.at, r.busy = time.Time{}, 0 }

// stuck is for how many seconds nothing was applied although there was something to apply.
func (r *applyRate) stuck() float64 { return r.busy.Seconds() }

// observe takes the lag of the newest poll and returns the rate.
func (r *applyRate) observe(now time.Time, l consensus.Lag) float64 {
	took, applied := now.Sub(r.at), l.AppliedBytes-r.lag.AppliedBytes
	first := r.at.IsZero() || took <= 0 || l.AppliedBytes < r.lag.AppliedBytes
	wasBusy := !first && r.lag.Seconds >= busyLag.Seconds()
	busy := wasBusy && l.Seconds >= busyLag.Seconds()
	fell := l.Transactions < r.lag.Transactions
	r.at, r.lag = now, l
	if first {
		r.busy = 0
		return r.rate
	}
	if !busy {
		r.busy = 0
		if r.rate > 0 || wasBusy { // it can do at least what it does
			r.rate = max(r.rate, float64(applied)/took.Seconds())
		}
		return r.rate
	}
	r.busy += took
	if applied == 0 {
		if fell {
			r.busy = 0 // it applies what was committed before this agent started, whose bytes nobody has counted
		}
		return r.rate // blocked, or in a large transaction: the next sample is spread over this time, too
	}
	sample := float64(applied) / min(r.busy, busySampleMax).Seconds()
	r.busy = 0
	if r.rate == 0 {
		r.rate = sample
	}
	r.rate += applyRateShare * (sample - r.rate)
	return r.rate
}
