package agent

import (
	"time"

	"github.com/quorate/quorate/internal/consensus"
)

const (
	// busyLag is how old the oldest missing transaction is at least where mysqld
	// had something to apply all the time since the poll before: what it applied is
	// then what it can. It is two polls.
	busyLag = 2 * watchInterval
	// busySampleMax bounds what one sample is spread over: an applier that was
	// blocked is not slow for long after it.
	busySampleMax = 5 * time.Second
	// applyRateShare is the newest sample's part of the rate: a change of speed is
	// seen in about two seconds.
	applyRateShare = 0.3
)

// applyRate measures how fast mysqld applies while it has something to apply.
type applyRate struct {
	// rate is in bytes a second; 0 = not known: it never had a backlog.
	rate float64

	at   time.Time // of the poll before; zero = there was none
	lag  consensus.Lag
	busy time.Duration // without progress, while there was something to apply
}

// pause forgets the poll before: what is applied meanwhile says nothing.
func (r *applyRate) pause() { r.at, r.busy = time.Time{}, 0 }

// stuck is how long nothing was applied although there was something to apply.
func (r *applyRate) stuck() float64 { return r.busy.Seconds() }

// observe takes the lag of the newest poll and returns the rate.
func (r *applyRate) observe(now time.Time, l consensus.Lag) float64 {
	took, applied := now.Sub(r.at), l.AppliedBytes-r.lag.AppliedBytes
	first := r.at.IsZero() || took <= 0 || l.AppliedBytes < r.lag.AppliedBytes
	wasBusy := !first && r.lag.Seconds >= busyLag.Seconds()
	busy := wasBusy && l.Seconds >= busyLag.Seconds()
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
		return r.rate // blocked, or in a large transaction: that tells later
	}
	sample := float64(applied) / min(r.busy, busySampleMax).Seconds()
	r.busy = 0
	if r.rate == 0 {
		r.rate = sample
	}
	r.rate += applyRateShare * (sample - r.rate)
	return r.rate
}
