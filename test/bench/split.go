package main

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/quorate/quorate/internal/devcluster"
)

// splitWorkload is the load under which commits are taken apart.
const splitWorkload = "oltp_write_only"

// stage is one agent's histogram over one window of load.
type stage struct {
	Threads int `json:"threads"`
	// Node is the agent, "a (primary)" for the primary's.
	Node string `json:"node"`
	// Histogram is the metric's name without quorate_.
	Histogram string  `json:"histogram"`
	Count     float64 `json:"count"`
	MeanMs    float64 `json:"mean_ms"`
	P50Ms     float64 `json:"p50_ms"`
	P99Ms     float64 `json:"p99_ms"`
}

// runSplit is part split: histograms of the agents under write load.
func (b *bench) runSplit(ctx context.Context) (err error) {
	c, err := b.newCluster(ctx, "s", benchDatabase)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	q := &quorate{cluster: c, label: systemQuorate}
	if err := b.fill(ctx, []system{q}); err != nil {
		return err
	}
	for _, threads := range b.opts.threadCounts() {
		e, err := q.ready(ctx)
		if err != nil {
			return err
		}
		before, err := scrapeAll(ctx, c)
		if err != nil {
			return err
		}
		l, err := b.runLoad(ctx, e, splitWorkload, threads, b.opts.duration)
		if err != nil {
			return err
		}
		after, err := scrapeAll(ctx, c)
		if err != nil {
			return err
		}
		primary, err := q.primary(ctx)
		if err != nil {
			return err
		}
		b.say("split  %d threads: %.0f tps", threads, float64(l.transactions)/l.seconds)
		b.addStages(c, primary, threads, before, after)
		b.result.SplitLoads = append(b.result.SplitLoads, splitLoad{
			Threads: threads, TPS: float64(l.transactions) / l.seconds, AvgMs: l.avgMs, P95Ms: l.p95Ms,
		})
	}
	if len(b.result.Split) == 0 {
		b.result.Notes = append(b.result.Notes, "the agents export no histogram quorate_*_seconds: nothing to take apart")
	}
	return nil
}

// splitLoad is what the client saw in a window of part split.
type splitLoad struct {
	Threads int     `json:"threads"`
	TPS     float64 `json:"tps"`
	AvgMs   float64 `json:"avg_ms"`
	P95Ms   float64 `json:"p95_ms"`
}

func scrapeAll(ctx context.Context, c *devcluster.Cluster) ([]map[string]histogram, error) {
	all := make([]map[string]histogram, c.Len())
	for i := range all {
		var err error
		if all[i], err = scrape(ctx, c.APIAddr(i)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// addStages adds what each agent observed between two scrapes.
func (b *bench) addStages(c *devcluster.Cluster, primary, threads int, before, after []map[string]histogram) {
	for n := range c.Len() {
		i := (primary + n) % c.Len()
		node := c.Name(i)
		if i == primary {
			node += " (primary)"
		}
		for _, name := range slices.Sorted(maps.Keys(after[i])) {
			h := after[i][name].minus(before[i][name])
			if h.count <= 0 {
				continue // nothing happened, or the agent was restarted
			}
			b.result.Split = append(b.result.Split, stage{
				Threads: threads, Node: node, Histogram: name, Count: h.count,
				MeanMs: h.sum / h.count * 1e3, P50Ms: h.quantile(0.50) * 1e3, P99Ms: h.quantile(0.99) * 1e3,
			})
		}
	}
}
