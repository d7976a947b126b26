package plan

import (
	"strings"
	"time"

	"github.com/quorate/quorate/lab/result"
)

// ETA estimates how long steps take: from tables at first, then from how the steps so far
// compared with the tables. It is not safe for use by several goroutines.
type ETA struct {
	setups, runs map[string]ratio
}

// ratio is how long steps took, and how long the tables said.
type ratio struct{ took, expected time.Duration }

// NewETA knows the tables only.
func NewETA() *ETA {
	return &ETA{setups: map[string]ratio{}, runs: map[string]ratio{}}
}

// Observe takes note of a step that is done: how long its deployment and data took (0 if
// it had none to do), and the rest.
func (e *ETA) Observe(s Step, setup, rest time.Duration) {
	if setup > 0 {
		add(e.setups, []string{"", s.System}, ratio{setup, setupOf(s.System)})
	}
	add(e.runs, []string{"", s.Experiment, s.Experiment + " " + s.System}, ratio{rest, runOf(s)})
}

func add(to map[string]ratio, keys []string, r ratio) {
	for _, k := range keys {
		to[k] = ratio{to[k].took + r.took, to[k].expected + r.expected}
	}
}

// Remaining is the estimate for steps that are all to be done, in their order.
func (e *ETA) Remaining(steps []Step) time.Duration {
	var sum time.Duration
	for _, s := range steps {
		if !s.Reuse {
			sum += scale(setupOf(s.System), e.setups, s.System, "")
		}
		sum += scale(runOf(s), e.runs, s.Experiment+" "+s.System, s.Experiment, "")
	}
	return sum
}

// scale applies the first of the ratios that was observed.
func scale(d time.Duration, ratios map[string]ratio, keys ...string) time.Duration {
	for _, k := range keys {
		if r := ratios[k]; r.expected > 0 {
			return time.Duration(float64(d) * float64(r.took) / float64(r.expected))
		}
	}
	return d
}

// setupOf is how long a deployment with its data takes on two processors.
func setupOf(system string) time.Duration {
	switch system {
	case "standalone":
		return 15 * time.Second
	case "async", "semisync", "quorate":
		return 20 * time.Second
	}
	return 25 * time.Second
}

// runOf is how long a step takes after that: the load, and what the experiment adds to it.
func runOf(s Step) time.Duration {
	switch s.Experiment {
	case result.Throughput, result.Jitter:
		return s.Warmup + s.Duration + 6*time.Second // drain, round trips, sync
	case result.RTO:
		return s.Duration + 15*time.Second // before the fault, and check
	case result.RPO:
		if strings.HasPrefix(s.System, "mgr") {
			return 90 * time.Second // a start that waits for the others is left to people after 40 s
		}
		return 30 * time.Second
	case result.Apply:
		transactions := map[string]int{"50k": 50_000, "100k": 100_000, "200k": 200_000}[s.Workload]
		return time.Duration(float64(transactions) / 400 * float64(time.Second)) // queued and applied
	}
	if s.Workload == "1GB" {
		return 4 * time.Minute
	}
	return time.Minute
}
