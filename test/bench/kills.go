package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorate/quorate/internal/devcluster"
	"github.com/quorate/quorate/internal/ledger"
)

const (
	// killRecovery bounds one kill and the return to health after it.
	killRecovery = 3 * time.Minute
	// settleWait bounds how long the servers may take to agree at the end.
	settleWait = 2 * time.Minute
	// findingsMax is how many lost or diverged rows are reported one by one.
	findingsMax = 10
)

// rowsInFlightMax is how many rows one writer may have acknowledged after a
// kill by answers that were under way before it: one transaction (package
// ledger writes up to 8 rows in one).
const rowsInFlightMax = 8

// killKind is what happens to the primary.
type killKind struct {
	name string
	kill func(*devcluster.Cluster, int) error
	// mend undoes what the agents cannot undo, nil if that is nothing.
	mend func(context.Context, *devcluster.Cluster, int) error
}

func killKinds() []killKind {
	return []killKind{
		{"mysqld", (*devcluster.Cluster).KillMysqld, nil},
		{"agent+mysqld", (*devcluster.Cluster).KillBoth, startAgain},
	}
}

func startAgain(ctx context.Context, c *devcluster.Cluster, i int) error { return c.Start(ctx, i) }

// killSeries is the kills of one kind.
type killSeries struct {
	Kind  string `json:"kind"`
	Kills int    `json:"kills"`
	// Write gaps: the longest time without an acknowledgement, over all
	// writers, around each kill.
	MinMs    float64   `json:"gap_min_ms"`
	MedianMs float64   `json:"gap_median_ms"`
	MaxMs    float64   `json:"gap_max_ms"`
	GapsMs   []float64 `json:"gaps_ms"`
}

// killVerdict is the ledger after all kills.
type killVerdict struct {
	Acknowledged int      `json:"acknowledged"`
	Unknown      int      `json:"unknown"`
	Lost         int      `json:"lost"`
	Diverged     int      `json:"diverged"`
	Findings     []string `json:"findings,omitempty"`
}

// runKills is part kills: writers, kills of the primary, the ledger.
func (b *bench) runKills(ctx context.Context) (err error) {
	c, err := b.newCluster(ctx, "k", ledger.Database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	b.result.Ledger, err = b.underLoad(ctx, c, func(ctx context.Context, w *ledger.Workload) error {
		for _, kind := range killKinds() {
			if err := b.killSeries(ctx, c, w, kind); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// underLoad runs what happens to a cluster beside writers, and then holds every
// server to what the writers were told.
func (b *bench) underLoad(ctx context.Context, c *devcluster.Cluster, happen func(context.Context, *ledger.Workload) error) (*killVerdict, error) {
	if err := ledger.CreateTable(ctx, c.DSN(0)); err != nil {
		return nil, err
	}
	cfg := ledger.Config{Writers: b.opts.writers, Logger: slog.New(slog.DiscardHandler)}
	for i := range c.Len() {
		cfg.DSNs = append(cfg.DSNs, c.DSN(i))
	}
	w, err := ledger.New(cfg)
	if err != nil {
		return nil, err
	}
	writing, stop := context.WithCancel(ctx)
	defer stop()
	group, killing := errgroup.WithContext(ctx)
	group.Go(func() error { return w.Run(writing) })
	group.Go(func() error {
		defer stop()
		return happen(killing, w)
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return b.checkLedger(ctx, c, w)
}

// killSeries makes all kills of one kind.
func (b *bench) killSeries(ctx context.Context, c *devcluster.Cluster, w *ledger.Workload, kind killKind) error {
	gaps, err := b.gaps(ctx, c, w, kind, b.opts.kills)
	if err != nil {
		return err
	}
	series := killSeries{Kind: kind.name, GapsMs: gaps}
	sorted := slices.Sorted(slices.Values(series.GapsMs))
	series.Kills = len(sorted)
	series.MinMs, series.MedianMs, series.MaxMs = sorted[0], median(sorted), sorted[len(sorted)-1]
	b.result.Kills = append(b.result.Kills, series)
	return nil
}

// gaps makes a kind of failure happen runs times and returns the write gaps, in
// ms.
func (b *bench) gaps(ctx context.Context, c *devcluster.Cluster, w *ledger.Workload, kind killKind, runs int) (ms []float64, err error) {
	for n := range runs {
		gap, err := b.killOnce(ctx, c, w, kind)
		if err != nil {
			return nil, fmt.Errorf("kill %d of %s: %w", n+1, kind.name, err)
		}
		b.say("kill %d of %s: nothing acknowledged for %d ms", n+1, kind.name, gap.Milliseconds())
		ms = append(ms, float64(gap.Microseconds())/1e3)
	}
	return ms, nil
}

// killOnce kills the primary of a healthy cluster under load, and returns the
// write gap once the cluster is healthy again.
func (b *bench) killOnce(ctx context.Context, c *devcluster.Cluster, w *ledger.Workload, kind killKind) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, killRecovery)
	defer cancel()
	primary, term, err := b.heal(ctx, c)
	if err != nil {
		return 0, err
	}
	// A host that freezes takes the writers on its port with it until their own
	// timeout: they must not be all there, after the failures before this one.
	if err := w.Spread(ctx); err != nil {
		return 0, err
	}
	if err := b.awaitRows(ctx, w); err != nil {
		return 0, err
	}
	w.ResetGap()
	if err := kind.kill(c, primary); err != nil {
		return 0, err
	}
	if err := b.awaitRows(ctx, w); err != nil {
		return 0, err
	}
	gap := w.Gap()
	if kind.mend != nil {
		if err := kind.mend(ctx, c, primary); err != nil {
			return 0, err
		}
	}
	// Writes go on in another term, or the kill did not hit the primary and the
	// gap means nothing.
	if _, now, err := b.heal(ctx, c); err != nil || now <= term {
		return 0, errors.Join(err, fmt.Errorf("%s was killed in term %d, and now it is term %d", c.Name(primary), term, now))
	}
	return gap, nil
}

// awaitRows waits until more rows have been acknowledged from now on than
// answers already under way can bring.
func (b *bench) awaitRows(ctx context.Context, w *ledger.Workload) error {
	before := w.Stats().Acknowledged
	need := int64(b.opts.writers * rowsInFlightMax)
	return devcluster.Poll(ctx, "writes are acknowledged", func(context.Context) (bool, string, error) {
		return w.Stats().Acknowledged > before+need, "too few rows so far", nil
	})
}

// heal waits until every node has what was committed when it was asked, and
// returns the primary and its term.
func (b *bench) heal(ctx context.Context, c *devcluster.Cluster) (primary int, term uint64, err error) {
	primary, err = c.WaitAllReady(ctx)
	if err != nil {
		return -1, 0, err
	}
	st, err := c.NodeStatus(ctx, primary)
	if err != nil {
		return -1, 0, err
	}
	for i := range c.Len() {
		if err := c.WaitCaughtUp(ctx, i, st.LogCommit); err != nil {
			return -1, 0, err
		}
	}
	return primary, st.Term, nil
}

// checkLedger holds every server to what the writers were told.
func (b *bench) checkLedger(ctx context.Context, c *devcluster.Cluster, w *ledger.Workload) (*killVerdict, error) {
	if _, err := c.WaitAllReady(ctx); err != nil {
		return nil, err
	}
	var servers []ledger.Node
	for i := range c.Len() {
		dsn, err := c.LocalDSN(i)
		if err != nil {
			return nil, err
		}
		servers = append(servers, ledger.Node{Name: c.Name(i), DSN: dsn})
	}
	r, err := ledger.Check(ctx, slog.New(slog.DiscardHandler), servers, w.History(), settleWait)
	if err != nil {
		return nil, err
	}
	v := &killVerdict{Acknowledged: r.Acknowledged, Unknown: r.Unknown, Lost: len(r.Lost), Diverged: len(r.Diverged)}
	for _, f := range slices.Concat(r.Lost, r.Diverged) {
		if len(v.Findings) == findingsMax {
			break
		}
		v.Findings = append(v.Findings, f.String())
	}
	if !r.OK() {
		b.result.Faults = append(b.result.Faults, fmt.Sprintf("%d rows lost, %d diverged in the kills", v.Lost, v.Diverged))
	}
	b.say("ledger checked: %d rows acknowledged, %d lost, %d diverged", v.Acknowledged, v.Lost, v.Diverged)
	return v, nil
}
