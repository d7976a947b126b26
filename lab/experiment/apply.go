package experiment

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quorate/quorate/lab/result"
	"github.com/quorate/quorate/lab/workload"
)

const (
	// queueWait bounds the queueing of transactions, applyWait their application.
	queueWait = 15 * time.Minute
	applyWait = 25 * time.Minute
	// queueScript and queueThreads write the transactions that are queued, as in the article.
	queueScript  = "oltp_write_only"
	queueThreads = 100
	// largeWait bounds a large transaction.
	largeWait = 15 * time.Minute
	// seenFor is how long the cell looks for expelled nodes after a large transaction, once all are in: a group
	// expels a silent member up to 25 s after it fell silent. seenEvery is the pause between looks.
	seenFor   = 30 * time.Second
	seenEvery = 500 * time.Millisecond
)

// apply queues transactions on a replica whose appliers are stopped, and lets it go.
func (c *cell) apply(ctx context.Context) error {
	thousands, err := strconv.Atoi(strings.TrimSuffix(c.step.Workload, "k"))
	if err != nil {
		return fmt.Errorf("%w: workload %q", errNotForIt, c.step.Workload)
	}
	_, others, err := c.roles(ctx)
	if err != nil {
		return err
	}
	replica := ""
	for _, n := range c.system.Nodes() {
		if n.Kind == "full" && len(others) > 0 && n.Name == others[0] {
			replica = n.Name
		}
	}
	if replica == "" {
		return fmt.Errorf("%w: %s has no replica", errNotForIt, c.step.System)
	}
	writers, err := c.writers(ctx)
	if err != nil {
		return err
	}
	if err := c.system.StopApply(ctx, replica); err != nil {
		return fmt.Errorf("stop apply on node %s: %w", replica, err)
	}
	load := workload.Load{Script: queueScript, Threads: queueThreads, Events: thousands * 1000, Duration: queueWait}
	sample, err := c.bench.Run(ctx, writers, load)
	if err != nil {
		return errors.Join(fmt.Errorf("queue transactions: %w", err), c.system.StartApply(ctx, replica))
	}
	lags, err := c.system.Lag(ctx)
	if err != nil {
		return errors.Join(err, c.system.StartApply(ctx, replica))
	}
	queued := lags[replica].Transactions
	c.set("queue_tps", sample.TPS)
	c.set(result.Transactions, float64(queued))
	if queued < int64(thousands)*900 {
		return errors.Join(fmt.Errorf("queue transactions: node %s has only %d of %d000 to apply", replica, queued, thousands), c.system.StartApply(ctx, replica))
	}
	before, err := c.usage(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := c.system.StartApply(ctx, replica); err != nil {
		return fmt.Errorf("start apply on node %s: %w", replica, err)
	}
	if err := c.replicasFollow(ctx, applyWait); err != nil {
		return fmt.Errorf("apply %d transactions: %w", queued, err)
	}
	took := time.Since(began).Seconds()
	c.set(result.ApplyS, took)
	c.set(result.ApplyTPS, float64(queued)/took)
	after, err := c.usage(ctx)
	if err != nil {
		return err
	}
	c.recordCPU(before, after, queued)
	return nil
}

// large commits a large transaction beside a prober.
func (c *cell) large(ctx context.Context) error {
	size, err := sizeOf(c.step.Workload)
	if err != nil {
		return err
	}
	writers, err := c.writers(ctx)
	if err != nil {
		return err
	}
	if c.prober, err = workload.NewProber(c.dial, c.system.Endpoints(), writers[0]); err != nil {
		return err
	}
	prober := c.prober
	probeCtx, stop := context.WithCancel(ctx)
	defer stop()
	var probing sync.WaitGroup
	var probeErr error
	probing.Go(func() { probeErr = prober.Run(probeCtx) })
	err = sleep(ctx, quietFor)
	var out workload.LargeResult
	at := time.Since(prober.Began())
	seenCtx, stopSeeing := context.WithCancel(ctx)
	defer stopSeeing()
	probing.Go(func() { c.seeExpelled(seenCtx) })
	if err == nil {
		limited, cancel := context.WithTimeout(ctx, largeWait)
		out, err = workload.Large{Bytes: size}.Run(limited, c.dial, writers[0])
		cancel()
	}
	if err == nil {
		err = c.recordLarge(ctx, out, at, out.CommitBegan.Sub(prober.Began()))
	}
	stopSeeing()
	stop()
	probing.Wait()
	line, end := prober.Timeline(), time.Since(prober.Began())
	c.recordTimeline(line, end)
	start, until, _ := line.Gap(at, end)
	c.set(result.StallMS, ms(until-start))
	if err := errors.Join(err, probeErr); err != nil {
		return err
	}
	_, err = c.judge(ctx, line)
	return err
}

func (c *cell) recordLarge(ctx context.Context, out workload.LargeResult, began, commit time.Duration) error {
	committed := 0.0
	verdict := "committed"
	if out.Err == nil {
		committed = 1
		c.set(result.CommitS, out.Commit.Seconds())
		c.set("total_s", out.Total.Seconds())
	} else {
		verdict = "refused: " + oneLine(out.Err)
	}
	c.set(result.Committed, committed)
	c.text(result.TextVerdict, verdict)
	c.eventAt(began, "BEGIN")
	c.eventAt(commit, "COMMIT")
	// An expelled node may come back by itself.
	ready, cancel := context.WithTimeout(ctx, restoreWait)
	defer cancel()
	if err := c.allIn(ready); err != nil {
		c.text(result.TextNotBack, "not: "+oneLine(err))
	}
	return sleep(ctx, seenFor)
}

// seeExpelled notes which nodes a majority puts outside, until ctx is done.
func (c *cell) seeExpelled(ctx context.Context) {
	expelled := map[string]bool{}
	tick := time.NewTicker(seenEvery)
	defer tick.Stop()
	for {
		nodes, err := c.system.Expelled(ctx)
		if errors.Is(err, errors.ErrUnsupported) {
			return
		}
		for _, n := range nodes {
			if !expelled[n] {
				expelled[n] = true
				c.event(n + " is outside for a majority")
			}
		}
		c.set(result.Expelled, float64(len(expelled)))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sizeOf reads 100MB or 1GB.
func sizeOf(name string) (int64, error) {
	for suffix, unit := range map[string]int64{"MB": 1 << 20, "GB": 1 << 30} {
		if text, ok := strings.CutSuffix(name, suffix); ok {
			if n, err := strconv.ParseInt(text, 10, 32); err == nil && n > 0 {
				return n * unit, nil
			}
		}
	}
	return 0, fmt.Errorf("%w: workload %q is no size", errNotForIt, name)
}
