package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"

	"github.com/quorate/quorate/internal/devcluster"
	"github.com/quorate/quorate/internal/ledger"
)

// failureSeries is the runs of one failure.
type failureSeries struct {
	Failure string `json:"failure"`
	Runs    int    `json:"runs"`
	// Write gaps (killSeries), by nearest rank: p99 of fewer than 100 runs is
	// the longest.
	P50Ms  float64   `json:"gap_p50_ms"`
	P99Ms  float64   `json:"gap_p99_ms"`
	MaxMs  float64   `json:"gap_max_ms"`
	GapsMs []float64 `json:"gaps_ms"`
	// WantedMs is what p50 should be at most.
	WantedMs float64 `json:"wanted_p50_ms"`
	// Ledger is of all failures of the series' cluster.
	Ledger *killVerdict `json:"ledger,omitempty"`
}

// What the write gap should be at most, in the middle.
const (
	wantedKilledMs = 500
	wantedSilentMs = 2000
)

// failure is one way to lose a primary.
type failure struct {
	killKind
	wantedMs float64
}

// failureClusters are the failures by the cluster that they need: what cuts the
// agents' connections also hides that a killed agent's port refuses.
func failureClusters() map[bool][]failure {
	return map[bool][]failure{
		false: {
			{killKind{"host frozen", freeze, thaw}, wantedSilentMs},
			{killKind{"mysqld killed", (*devcluster.Cluster).KillMysqld, nil}, wantedKilledMs},
			{killKind{"agent+mysqld killed", (*devcluster.Cluster).KillBoth, startAgain}, wantedKilledMs},
		},
		true: {{killKind{"primary cut off", isolate, mendNetwork}, wantedSilentMs}},
	}
}

// freeze stops what runs on the primary's host.
func freeze(c *devcluster.Cluster, i int) error {
	return errors.Join(c.PauseMysqld(i), c.PauseAgent(i))
}

// thaw lets it go on: mysqld first, as the agent kills it.
func thaw(_ context.Context, c *devcluster.Cluster, i int) error {
	return errors.Join(c.ResumeMysqld(i), c.ResumeAgent(i))
}

func isolate(c *devcluster.Cluster, i int) error {
	c.Isolate(i)
	return nil
}

func mendNetwork(_ context.Context, c *devcluster.Cluster, _ int) error {
	c.MendAll()
	return nil
}

// runFailures is part failures.
func (b *bench) runFailures(ctx context.Context) error {
	for _, network := range []bool{false, true} {
		if err := b.failuresOf(ctx, network); err != nil {
			return err
		}
	}
	return nil
}

// failuresOf makes the failures of one cluster happen.
func (b *bench) failuresOf(ctx context.Context, network bool) (err error) {
	dir := filepath.Join(b.dir, map[bool]string{false: "f", true: "p"}[network])
	c, err := b.newClusterOf(ctx, devcluster.Options{Dir: dir, Network: network}, ledger.Database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	var all []failureSeries
	verdict, err := b.underLoad(ctx, c, func(ctx context.Context, w *ledger.Workload) error {
		for _, f := range failureClusters()[network] {
			gaps, err := b.gaps(ctx, c, w, f.killKind, b.opts.failures)
			if err != nil {
				return err
			}
			all = append(all, newFailureSeries(f, gaps))
		}
		return nil
	})
	if len(all) > 0 {
		all[len(all)-1].Ledger = verdict
	}
	b.result.Failures = append(b.result.Failures, all...)
	return err
}

func newFailureSeries(f failure, gaps []float64) failureSeries {
	return failureSeries{Failure: f.name, Runs: len(gaps), GapsMs: gaps, WantedMs: f.wantedMs,
		P50Ms: nearestRank(gaps, 0.50), P99Ms: nearestRank(gaps, 0.99), MaxMs: slices.Max(gaps)}
}

// nearestRank returns the smallest value that at least q of all are not above.
func nearestRank(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(int(math.Ceil(q*float64(len(sorted))))-1, 0)]
}

func (r *result) reportFailures(out io.Writer) {
	if len(r.Failures) == 0 {
		return
	}
	fmt.Fprint(out, "\nwrite gap when the primary is lost, in ms\n")
	rows := [][]string{{"failure", "runs", "p50", "p99", "max", "wanted p50", ""}}
	for _, f := range r.Failures {
		met := "met"
		if f.P50Ms > f.WantedMs {
			met = "MISSED"
		}
		rows = append(rows, []string{f.Failure, fmt.Sprint(f.Runs), fmt.Sprintf("%.0f", f.P50Ms), fmt.Sprintf("%.0f", f.P99Ms),
			fmt.Sprintf("%.0f", f.MaxMs), fmt.Sprintf("<= %.0f", f.WantedMs), met})
	}
	table(out, rows)
	fmt.Fprint(out, "bars to beat: X-Paxos 8 s, group replication 23 s (write gap); MyRaft 1.5 s (detection alone)\n")
	for _, f := range r.Failures {
		f.Ledger.report(out)
	}
}
