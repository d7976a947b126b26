package consensus

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/sys/metrics"
)

// timings splits the commit latency of this node's own proposals: from the turn that takes a proposal to its
// own fsync, from there to its commit, and both together. It also times every group commit of the log. It
// belongs to the Driver.
type timings struct {
	pending []pendingTiming // in order of number; bounded by uncommittedBytesMax

	appendSeconds, fsyncedSeconds, majoritySeconds, committedSeconds prometheus.Histogram
	appendEntries                                                    prometheus.Histogram
}

type pendingTiming struct {
	term, number  uint64
	at, fsyncedAt time.Duration // boot times; fsyncedAt 0 = not on disk yet
}

// pendingTimingsMax bounds the proposals that are timed at once. Further proposals are not timed.
const pendingTimingsMax = 4096

func newTimings() *timings {
	return &timings{
		appendSeconds:    metrics.Histogram("quorate_log_append_seconds", metrics.FineSeconds()),
		appendEntries:    metrics.Histogram("quorate_log_append_entries", prometheus.ExponentialBuckets(1, 2, 11)),
		fsyncedSeconds:   metrics.Histogram("quorate_proposal_fsynced_seconds", metrics.FineSeconds()),
		majoritySeconds:  metrics.Histogram("quorate_proposal_majority_seconds", metrics.CoarseSeconds()),
		committedSeconds: metrics.Histogram("quorate_proposal_committed_seconds", metrics.FineSeconds()),
	}
}

// Collectors returns the node's own metrics.
func (d *Driver) Collectors() []prometheus.Collector {
	t := d.timings
	all := []prometheus.Collector{t.appendSeconds, t.appendEntries, t.fsyncedSeconds, t.majoritySeconds, t.committedSeconds}
	for _, c := range d.sent {
		all = append(all, c)
	}
	return all
}

func (t *timings) proposed(now time.Duration, data []byte) {
	h, _, err := entry.Parse(data)
	if err != nil {
		return // the gate refuses it
	}
	if len(t.pending) < pendingTimingsMax {
		t.pending = append(t.pending, pendingTiming{term: h.Term, number: h.Number, at: now})
	}
}

// reset forgets what is pending: the epoch may have ended.
func (t *timings) reset() { t.pending = t.pending[:0] }

// appended times a group commit that has ended.
func (t *timings) appended(now time.Duration, w *Write) {
	entries := 0
	var last entry.Header
	for _, m := range w.batch {
		es := m.GetEntries()
		entries += len(es)
		if len(es) > 0 {
			last, _, _ = entry.Parse(es[len(es)-1].GetData())
		}
	}
	if entries == 0 {
		return
	}
	t.appendSeconds.Observe(w.took.Seconds())
	t.appendEntries.Observe(float64(entries))
	for i := range t.pending {
		p := &t.pending[i]
		if p.fsyncedAt == 0 && p.term == last.Term && p.number <= last.Number {
			p.fsyncedAt = now
			t.fsyncedSeconds.Observe((now - p.at).Seconds())
		}
	}
}

func (t *timings) committed(now time.Duration, m Mark) {
	done := 0
	for _, p := range t.pending {
		if p.term != m.Epoch || p.number > m.Number {
			break
		}
		t.committedSeconds.Observe((now - p.at).Seconds())
		if p.fsyncedAt != 0 {
			t.majoritySeconds.Observe((now - p.fsyncedAt).Seconds())
		}
		done++
	}
	t.pending = append(t.pending[:0], t.pending[done:]...)
}
