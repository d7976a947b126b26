package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

const (
	// prepareThreads fill the tables: one for each of the default four.
	prepareThreads = 4
	// warmTime and warmThreads are the load that each system gets before the
	// first turn; it is not measured.
	warmTime    = 2 * time.Second
	warmThreads = 16
)

// point is one system's turn at one workload and number of threads.
type point struct {
	Round    int    `json:"round"`
	System   string `json:"system"`
	Workload string `json:"workload"`
	Threads  int    `json:"threads"`

	Transactions int64   `json:"transactions"`
	Seconds      float64 `json:"seconds"`
	TPS          float64 `json:"tps"`
	// CatchUpSeconds is how long the replicas needed after the load had ended.
	CatchUpSeconds float64 `json:"catch_up_s"`
	// EffectiveTPS is Transactions / (Seconds + CatchUpSeconds).
	EffectiveTPS float64 `json:"effective_tps"`
	P95Ms        float64 `json:"p95_ms"`
	AvgMs        float64 `json:"avg_ms"`
	// CPU microseconds per transaction: of all agents, all mysqlds, the client.
	AgentCPUMicros  float64 `json:"agent_cpu_us"`
	MysqldCPUMicros float64 `json:"mysqld_cpu_us"`
	ClientCPUMicros float64 `json:"client_cpu_us"`
	// WriteBackSeconds is how long sync(2) took after the turn.
	WriteBackSeconds float64 `json:"write_back_s"`
	// Error says why the turn has no figures.
	Error string `json:"error,omitempty"`
}

// runSysbench is part sysbench: all systems up, taking turns.
func (b *bench) runSysbench(ctx context.Context) (err error) {
	systems, closeAll, err := b.startSystems(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	if err := b.fill(ctx, systems); err != nil {
		return err
	}
	for round := range b.opts.rounds {
		for _, workload := range split(b.opts.workloads) {
			for _, threads := range b.opts.threadCounts() {
				for _, s := range systems {
					p := point{Round: round + 1, System: s.name(), Workload: workload, Threads: threads}
					if err := b.turn(ctx, s, &p); err != nil {
						if ctx.Err() != nil {
							return ctx.Err()
						}
						p.Error = err.Error()
					}
					b.result.Points = append(b.result.Points, p)
					b.say("%s", p.line())
				}
			}
		}
	}
	return b.compareTables(ctx, systems)
}

// line is the point as it is told while the run goes on.
func (p point) line() string {
	head := fmt.Sprintf("round %d  %s  %d threads  %s: ", p.Round, p.Workload, p.Threads, p.System)
	if p.Error != "" {
		return head + p.Error
	}
	return head + fmt.Sprintf("%.0f tps, p95 %.1f ms, caught up in %.2f s", p.TPS, p.P95Ms, p.CatchUpSeconds)
}

// fill makes the tables on each system and warms it. Both quorate systems are
// one cluster with one set of tables.
func (b *bench) fill(ctx context.Context, systems []system) error {
	filled := map[string]bool{}
	for _, s := range systems {
		dsns, err := s.servers(ctx)
		if err != nil {
			return err
		}
		e, err := s.ready(ctx)
		if err != nil {
			return err
		}
		if !filled[dsns[0]] {
			filled[dsns[0]] = true
			if _, _, err := b.sysbench(ctx, e, "oltp_read_write", "prepare", prepareThreads, 0); err != nil {
				return fmt.Errorf("fill %s: %w", s.name(), err)
			}
		}
		if _, err := b.runLoad(ctx, e, "oltp_read_write", warmThreads, warmTime); err != nil {
			return fmt.Errorf("warm %s: %w", s.name(), err)
		}
		if _, err := catchUp(ctx, dsns); err != nil {
			return fmt.Errorf("warm %s: %w", s.name(), err)
		}
		b.say("%s: tables filled, warm", s.name())
	}
	unix.Sync()
	return nil
}

// turn measures one point.
func (b *bench) turn(ctx context.Context, s system, p *point) error {
	e, err := s.ready(ctx)
	if err != nil {
		return err
	}
	dsns, err := s.servers(ctx)
	if err != nil {
		return err
	}
	before, err := s.cpu()
	if err != nil {
		return err
	}
	l, err := b.runLoad(ctx, e, p.Workload, p.Threads, b.opts.duration)
	if err != nil {
		return err
	}
	caughtUp, err := catchUp(ctx, dsns)
	if err != nil {
		return fmt.Errorf("catch up: %w", err)
	}
	after, err := s.cpu()
	if err != nil {
		return err
	}
	began := time.Now()
	unix.Sync()
	p.WriteBackSeconds = time.Since(began).Seconds()
	p.fill(l, caughtUp, usage{after.agents - before.agents, after.servers - before.servers})
	return nil
}

// fill computes the figures.
func (p *point) fill(l load, caughtUp time.Duration, cpu usage) {
	n := float64(l.transactions)
	p.Transactions, p.Seconds, p.P95Ms, p.AvgMs = l.transactions, l.seconds, l.p95Ms, l.avgMs
	p.CatchUpSeconds = caughtUp.Seconds()
	p.TPS = n / p.Seconds
	p.EffectiveTPS = n / (p.Seconds + p.CatchUpSeconds)
	p.AgentCPUMicros = cpu.agents.Seconds() * 1e6 / n
	p.MysqldCPUMicros = cpu.servers.Seconds() * 1e6 / n
	p.ClientCPUMicros = l.clientCPU.Seconds() * 1e6 / n
}

// compareTables compares the tables of each system's servers at the end: what
// is fast and wrong is no result.
func (b *bench) compareTables(ctx context.Context, systems []system) error {
	for _, s := range systems {
		dsns, err := s.servers(ctx)
		if err != nil {
			return err
		}
		sums := make([]string, len(dsns))
		reading, readCtx := errgroup.WithContext(ctx)
		for i, dsn := range dsns {
			reading.Go(func() (err error) {
				sums[i], err = b.checksums(readCtx, dsn)
				return err
			})
		}
		if err := reading.Wait(); err != nil {
			return fmt.Errorf("compare the tables of %s: %w", s.name(), err)
		}
		for _, sum := range sums[1:] {
			if sum != sums[0] {
				b.result.Faults = append(b.result.Faults,
					fmt.Sprintf("the servers of %s hold different tables: checksums %s and %s", s.name(), sums[0], sum))
			}
		}
	}
	b.say("the tables of each system are the same on all of its servers, unless the report says otherwise")
	return nil
}

// checksums returns the CHECKSUM TABLE values of all sysbench tables.
func (b *bench) checksums(ctx context.Context, dsn string) (string, error) {
	var sums string
	for i := range b.opts.tables {
		var row struct {
			table string
			sum   int64
		}
		stmt := fmt.Sprintf("CHECKSUM TABLE %s.sbtest%d", benchDatabase, i+1)
		if err := queryRow(ctx, dsn, stmt, nil, &row.table, &row.sum); err != nil {
			return "", err
		}
		sums += fmt.Sprintf("%d ", row.sum)
	}
	return sums, nil
}
