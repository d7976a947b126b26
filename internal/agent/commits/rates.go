package commits

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/quorate/quorate/internal/cluster/status"
)

const (
	// commitsWindow is the shortest time over which commits are counted.
	commitsWindow = 2 * time.Second
	// stages is how many stages a commit has (status.Commits).
	stages = 5
)

// rates says how a node has committed lately, as the primary.
type rates struct {
	mu     sync.Mutex
	before commitsSample
	shown  *status.Commits
}

// commitsSample are counters at a moment.
type commitsSample struct {
	at           time.Time
	transactions uint64 // of the epoch: a new epoch begins at 0
	means        [stages]meanSample
}

// meanSample are a histogram's sum and count.
type meanSample struct {
	sum   float64
	count uint64
}

func sampled(m prometheus.Metric) meanSample {
	var d dto.Metric
	if m.Write(&d) != nil {
		return meanSample{} // a histogram's cannot fail
	}
	return meanSample{d.GetHistogram().GetSampleSum(), d.GetHistogram().GetSampleCount()}
}

// Lately returns how the epoch has committed in the last seconds; nil = it is too new, or nobody has asked for long.
// transactions counts those of the epoch. own and majority are the histograms of the log's writes and of the answers
// to them.
func (t *Times) Lately(transactions uint64, own, majority prometheus.Metric) *status.Commits {
	return t.rates.next(commitsSample{time.Now(), transactions, [stages]meanSample{
		sampled(t.receive), sampled(t.propose), sampled(own), sampled(majority), sampled(t.release),
	}})
}

func (r *rates) next(now commitsSample) *status.Commits {
	r.mu.Lock()
	defer r.mu.Unlock()
	passed := now.at.Sub(r.before.at)
	switch {
	case now.transactions < r.before.transactions: // another epoch
		r.shown = nil
	case passed < commitsWindow:
		return r.shown
	case r.before.at.IsZero() || passed > 5*commitsWindow: // nobody has asked for long
		r.shown = nil
	default:
		var means [stages]float64
		for i, m := range now.means {
			if n := m.count - r.before.means[i].count; n > 0 {
				means[i] = (m.sum - r.before.means[i].sum) / float64(n)
			}
		}
		r.shown = &status.Commits{
			PerSecond:      float64(now.transactions-r.before.transactions) / passed.Seconds(),
			ReceiveSeconds: means[0], ProposeSeconds: means[1], FsyncSeconds: means[2], MajoritySeconds: means[3], ReleaseSeconds: means[4],
		}
	}
	r.before = now
	return r.shown
}
