package plan

import (
	"strings"
	"time"

	"github.com/quorate/quorate/lab/result"
)

// ETA estimates how long steps take: at first from tables, later also from how long the finished steps took
// compared with the tables. Only one goroutine may use it at a time.
type ETA struct {
	setups, runs map[string]ratio
}

// ratio has how long steps took, and how long they should have taken by the tables.
type ratio struct{ took, expected time.Duration }

// NewETA returns an ETA that knows only the tables.
func NewETA() *ETA {
	return &ETA{setups: map[string]ratio{}, runs: map[string]ratio{}}
}

// Observe notes how long a finished step took: setup is the time for its deployment and data (0 if
// they were there already), rest is the other time.
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

// Remaining is the estimate for all of the given steps, done in their order.
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

// scale scales d by the first of the ratios under keys that was observed.
func scale(d time.Duration, ratios map[string]ratio, keys ...string) time.Duration {
	for _, k := range keys {
		if r := ratios[k]; r.expected > 0 {
			return time.Duration(float64(d) * float64(r.took) / float64(r.expected))
		}
	}
	return d
}

// setupOf is how long a deployment with its data takes on two processors, by the tables.
func setupOf(system string) time.Duration {
	switch system {
	case "standalone":
		return 15 * time.Second
	case "async", "semisync", "quorate":
		return 20 * time.Second
	}
	return 25 * time.Second
}

// runOf is how long a step takes after its setup, by the tables: the load, and the experiment's other work.
func runOf(s Step) time.Duration {
	switch s.Experiment {
	case result.Throughput, result.Jitter:
		return s.Warmup + s.Duration + 6*time.Second // drain, round trips, sync
	case result.RTO:
		return s.Duration + 15*time.Second // the time before the fault, and the check
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
