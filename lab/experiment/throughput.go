package experiment

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorate/quorate/lab/peers"
	"github.com/quorate/quorate/lab/plan"
	"github.com/quorate/quorate/lab/result"
	"github.com/quorate/quorate/lab/workload"
)

const (
	// replicasWait bounds the wait for replicas between warm-up and load. drainWait bounds the wait after the load.
	replicasWait = 5 * time.Minute
	drainWait    = 15 * time.Minute
)

// cellWait bounds a cell without its setup.
func cellWait(s plan.Step) time.Duration {
	switch s.Experiment {
	case result.Throughput, result.Jitter:
		return s.Warmup + s.Duration + replicasWait + drainWait + 5*time.Minute
	case result.RTO:
		return s.Duration + 15*time.Minute
	case result.RPO:
		return 15 * time.Minute
	case result.Apply:
		return queueWait + applyWait + 5*time.Minute
	}
	return largeWait + 10*time.Minute
}

// cell is a step on its stage, and the row that it fills. Several goroutines may fill the row at the
// same time.
type cell struct {
	*stage
	step   plan.Step
	prober *workload.Prober // events use its clock; nil in throughput and apply

	mu  sync.Mutex
	row *result.Row
}

func setMetric(row *result.Row, name string, v float64) {
	if row.Metrics == nil {
		row.Metrics = map[string]float64{}
	}
	row.Metrics[name] = v
}

func (c *cell) set(name string, v float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	setMetric(c.row, name, v)
}

// event notes what happens now.
func (c *cell) event(what string) { c.eventAt(time.Since(c.prober.Began()), what) }

func (c *cell) eventAt(at time.Duration, what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.row.Events = append(c.row.Events, result.Event{AtMS: ms(at), What: what})
}

func (c *cell) series(name string, every time.Duration, values []float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.row.Series == nil {
		c.row.Series = map[string]result.Series{}
	}
	c.row.Series[name] = result.Series{EveryMS: ms(every), Values: values}
}

func (c *cell) text(name, value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.row.Text == nil {
		c.row.Text = map[string]string{}
	}
	c.row.Text[name] = value
}

// throughput loads the system and waits until its replicas have everything.
func (c *cell) throughput(ctx context.Context) error {
	clients, err := c.clients(ctx, c.step.Workload)
	if err != nil {
		return err
	}
	bench, err := c.load(ctx, c.step.Workload)
	if err != nil {
		return err
	}
	load := workload.Load{Script: c.step.Workload, Threads: c.step.Threads, Duration: c.step.Warmup}
	if c.step.Warmup > 0 {
		if _, err := bench.Run(ctx, clients, load); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
		if err := c.replicasFollow(ctx, replicasWait); err != nil {
			return fmt.Errorf("let replicas catch up after the warm-up: %w", err)
		}
	}
	before, err := c.usage(ctx)
	if err != nil {
		return err
	}
	load.Duration = c.step.Duration
	sample, late, err := c.loaded(ctx, func() (workload.Sample, error) { return bench.Run(ctx, clients, load) })
	if err != nil {
		return err
	}
	c.recordSample(sample)
	if err := c.drain(ctx, sample); err != nil {
		return err
	}
	after, err := c.usage(ctx)
	if err != nil {
		return err
	}
	return errors.Join(c.recordUsage(ctx, before, after, late, sample), c.check(ctx, c.step.Workload))
}

// loaded runs a load. Meanwhile it measures round trips, and shortly before the load's end it counts wake-ups.
func (c *cell) loaded(ctx context.Context, run func() (workload.Sample, error)) (s workload.Sample, late map[peers.Thread]int64, err error) {
	ctx, stop := context.WithCancel(ctx)
	var beside errgroup.Group
	beside.Go(func() error {
		c.underLoad(ctx, c.step.Duration/2, c.row.RTT)
		return nil
	})
	beside.Go(func() (err error) {
		late, err = c.lateWaits(ctx, c.step.Duration)
		return err
	})
	s, err = run()
	stop()
	return s, late, errors.Join(err, beside.Wait())
}

func (c *cell) replicasFollow(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err := c.system.CatchUp(ctx)
	return err
}

func (c *cell) recordSample(s workload.Sample) {
	c.set(result.TPS, s.TPS)
	c.set(result.QPS, s.QPS)
	c.set(result.P50MS, s.P50MS)
	c.set(result.P95MS, s.P95MS)
	c.set(result.P99MS, s.P99MS)
	c.set(result.Errors, float64(s.Errors))
	c.set(result.Reconnects, float64(s.Reconnects))
	if len(s.PerSecond) > 1 {
		c.set(result.CVPercent, workload.CV(s.PerSecond))
		least := s.PerSecond[0]
		for _, v := range s.PerSecond {
			least = min(least, v)
		}
		c.set(result.TPSMin, least)
	}
	c.series(result.SeriesTPS, time.Second, s.PerSecond)
}

// drain records how far replicas are behind, and how long they need.
func (c *cell) drain(ctx context.Context, s workload.Sample) error {
	lags, err := c.system.Lag(ctx)
	if err != nil {
		return fmt.Errorf("read lag: %w", err)
	}
	transactions, bytes := int64(0), int64(-1)
	for _, lag := range lags {
		transactions, bytes = max(transactions, lag.Transactions), max(bytes, lag.Bytes)
	}
	c.set(result.LagTx, float64(transactions))
	if bytes >= 0 {
		c.set(result.LagBytes, float64(bytes))
	}
	began := time.Now()
	if err := c.replicasFollow(ctx, drainWait); err != nil {
		return fmt.Errorf("drain the replicas, %d transactions behind: %w", transactions, err)
	}
	drained := time.Since(began).Seconds()
	c.set(result.DrainS, drained)
	c.set(result.EffectiveTPS, float64(s.Transactions)/(s.Seconds+drained))
	return nil
}
