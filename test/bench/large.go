package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

const (
	systemSemiSync = "semi-sync"
	// largeWriters commit small rows beside the large transaction.
	largeWriters = 8
	// largeRowBytes is the length of a large transaction's rows.
	largeRowBytes = 64 << 10
	// largeSmallMin is how many small commits each writer has at least before the
	// large one: what it does alone is to be seen.
	largeSmallMin = 100
	// largeWait bounds one turn.
	largeWait = 5 * time.Minute
)

// largePoint is one large transaction on one system.
type largePoint struct {
	Round  int    `json:"round"`
	System string `json:"system"`
	MiB    int    `json:"mib"`
	// CommitMs is how long its COMMIT took; its statement, which InnoDB executes
	// and nobody waits for, is not in it.
	CommitMs float64 `json:"commit_ms"`
	// StallMs is the longest small commit that was under way at the same time,
	// SmallMs the median of those before.
	StallMs float64 `json:"stall_ms"`
	SmallMs float64 `json:"small_ms"`
	// CatchUpSeconds is how long the replicas needed afterwards.
	CatchUpSeconds float64 `json:"catch_up_s"`
	// Error says why there are no figures.
	Error string `json:"error,omitempty"`
}

// line is the point as it is told while the run goes on.
func (p largePoint) line() string {
	head := fmt.Sprintf("round %d  %d MiB  %s: ", p.Round, p.MiB, p.System)
	if p.Error != "" {
		return head + p.Error
	}
	return head + fmt.Sprintf("COMMIT took %.0f ms, a small one meanwhile up to %.0f ms", p.CommitMs, p.StallMs)
}

// largeRatio compares two systems: medians over the rounds of the ratios.
type largeRatio struct {
	MiB     int     `json:"mib"`
	Against string  `json:"against"`
	Commit  float64 `json:"commit"`
	Stall   float64 `json:"stall"`
}

func largeMiB() []int { return []int{64, 256} }

func largeSystems() []string { return []string{systemQuorate, systemStandalone, systemSemiSync} }

// runLarge is part large: one large transaction beside small ones, on each
// system in turn.
func (b *bench) runLarge(ctx context.Context) (err error) {
	systems, closers, err := b.startLarge(ctx)
	defer func() {
		for _, c := range closers {
			err = errors.Join(err, c.Close())
		}
	}()
	if err != nil {
		return err
	}
	for round := range b.opts.rounds {
		for _, mib := range largeMiB() {
			for _, s := range systems {
				p := largePoint{Round: round + 1, System: s.name(), MiB: mib}
				if err := b.largeTurn(ctx, s, &p); err != nil {
					if ctx.Err() != nil {
						return ctx.Err()
					}
					p.Error = err.Error()
				}
				b.result.Large = append(b.result.Large, p)
				b.say("large  %s", p.line())
			}
		}
	}
	return nil
}

// startLarge starts the systems. What has to be closed is returned also with an
// error.
func (b *bench) startLarge(ctx context.Context) (systems []system, closers []io.Closer, err error) {
	c, err := b.newCluster(ctx, "l", benchDatabase)
	if err != nil {
		return nil, nil, err
	}
	closers = append(closers, stopper{c})
	systems = append(systems, &quorate{cluster: c, label: systemQuorate})
	for n, name := range largeSystems()[1:] {
		g, err := b.newGroup(ctx, name, 1+n) // one server; a source and its replica
		if err != nil {
			return nil, closers, err
		}
		closers = append(closers, g)
		systems = append(systems, g)
		if name == systemSemiSync {
			if err := g.semiSync(ctx); err != nil {
				return nil, closers, err
			}
		}
	}
	return systems, closers, nil
}

// semiSync makes asynchronous replication semi-synchronous, as it is recommended:
// AFTER_SYNC, and no way back to asynchronous. The replica's relay log is not
// synced before its ACK, which is the server's default.
func (g *group) semiSync(ctx context.Context) error {
	// First the source: a replica that finds no plugin there stays asynchronous.
	if err := g.all[0].exec(ctx, "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'",
		"SET GLOBAL rpl_semi_sync_source_timeout = 4294967295", "SET GLOBAL rpl_semi_sync_source_wait_point = AFTER_SYNC",
		"SET GLOBAL rpl_semi_sync_source_enabled = ON"); err != nil {
		return err
	}
	for _, r := range g.all[1:] {
		if err := r.exec(ctx, "SET GLOBAL super_read_only = OFF", "INSTALL PLUGIN rpl_semi_sync_replica SONAME 'semisync_replica.so'",
			"SET GLOBAL rpl_semi_sync_replica_enabled = ON", "SET GLOBAL super_read_only = ON",
			"STOP REPLICA IO_THREAD", "START REPLICA IO_THREAD"); err != nil {
			return err
		}
	}
	return nil
}

// largeTurn measures one point.
func (b *bench) largeTurn(ctx context.Context, s system, p *largePoint) error {
	ctx, cancel := context.WithTimeout(ctx, largeWait)
	defer cancel()
	e, err := s.ready(ctx)
	if err != nil {
		return err
	}
	db, err := e.open()
	if err != nil {
		return err
	}
	defer db.Close()
	for _, stmt := range []string{
		"DROP TABLE IF EXISTS large", "CREATE TABLE large (id INT PRIMARY KEY, b LONGBLOB)",
		"CREATE TABLE IF NOT EXISTS small (id BIGINT AUTO_INCREMENT PRIMARY KEY, pad VARBINARY(200))",
	} {
		if _, err := db.ExecContext(ctx, stmt); err != nil {
			return fmt.Errorf("prepare tables: %w", err)
		}
	}
	small := &smallCommits{enough: make(chan struct{})}
	working, stop := context.WithCancel(ctx)
	defer stop()
	group, groupCtx := errgroup.WithContext(ctx)
	for range largeWriters {
		group.Go(func() error { return small.write(groupCtx, working.Done(), db) })
	}
	var large commit
	group.Go(func() (err error) {
		defer stop()
		large, err = largeCommit(groupCtx, db, p.MiB, small.enough)
		return err
	})
	if err := group.Wait(); err != nil {
		return err
	}
	p.fill(large, small.all)
	dsns, err := s.servers(ctx)
	if err != nil {
		return err
	}
	caughtUp, err := catchUp(ctx, dsns)
	p.CatchUpSeconds = caughtUp.Seconds()
	unix.Sync()
	return err
}

// commit is when one began and ended, as its client saw it.
type commit struct{ began, ended time.Time }

func (c commit) ms() float64 { return float64(c.ended.Sub(c.began).Microseconds()) / 1e3 }

// largeCommit makes the transaction and commits it once the small writers are at
// work.
func largeCommit(ctx context.Context, db *sql.DB, mib int, enough <-chan struct{}) (c commit, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return c, fmt.Errorf("connect: %w", err)
	}
	defer conn.Close()
	for _, stmt := range []string{"SET SESSION cte_max_recursion_depth = 1000000", "BEGIN", largeInsert(mib)} {
		if _, err := conn.ExecContext(ctx, stmt); err != nil {
			return c, fmt.Errorf("write %d MiB: %w", mib, err)
		}
	}
	select {
	case <-enough:
	case <-ctx.Done():
		return c, ctx.Err()
	}
	c.began = time.Now()
	if _, err := conn.ExecContext(ctx, "COMMIT"); err != nil {
		return c, fmt.Errorf("commit %d MiB: %w", mib, err)
	}
	c.ended = time.Now()
	return c, nil
}

// largeInsert inserts rows of random digits, of the given size in all.
func largeInsert(mib int) string {
	const randomBytes = 1024 // RANDOM_BYTES gives no more
	parts := make([]string, largeRowBytes/randomBytes/2)
	for i := range parts {
		parts[i] = fmt.Sprintf("HEX(RANDOM_BYTES(%d))", randomBytes)
	}
	return fmt.Sprintf("INSERT INTO large WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT i, CONCAT(%s) FROM n",
		mib<<20/largeRowBytes, strings.Join(parts, ", "))
}

// smallCommits are those of all writers.
type smallCommits struct {
	// enough is closed once there are largeSmallMin for each writer.
	enough chan struct{}

	mu  sync.Mutex
	all []commit
}

// write commits one row at a time until done, the one under way included.
func (s *smallCommits) write(ctx context.Context, done <-chan struct{}, db *sql.DB) error {
	for {
		c := commit{began: time.Now()}
		if _, err := db.ExecContext(ctx, "INSERT INTO small (pad) VALUES (REPEAT('x', 200))"); err != nil {
			return fmt.Errorf("commit a small row: %w", err)
		}
		c.ended = time.Now()
		s.mu.Lock()
		if s.all = append(s.all, c); len(s.all) == largeWriters*largeSmallMin {
			close(s.enough)
		}
		s.mu.Unlock()
		select {
		case <-done:
			return nil
		default:
		}
	}
}

// fill computes the figures.
func (p *largePoint) fill(large commit, small []commit) {
	p.CommitMs = large.ms()
	var before []float64
	for _, c := range small {
		switch {
		case c.ended.Before(large.began):
			before = append(before, c.ms())
		case c.began.Before(large.ended):
			p.StallMs = max(p.StallMs, c.ms())
		}
	}
	p.SmallMs = median(before)
}

// open returns a pool with a connection for each writer and for the large one.
func (e endpoint) open() (*sql.DB, error) {
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr = "tcp", net.JoinHostPort(e.host, e.port)
	if e.socket != "" {
		cfg.Net, cfg.Addr = "unix", e.socket
	}
	cfg.User, cfg.Passwd, cfg.DBName = e.user, e.password, benchDatabase
	cfg.Logger = &mysql.NopLogger{} // what breaks is in the report
	db, err := sql.Open("mysql", cfg.FormatDSN())
	if err != nil {
		return nil, fmt.Errorf("use DSN: %w", err)
	}
	db.SetMaxIdleConns(largeWriters + 1)
	return db, nil
}

// largeValues returns one figure of one system's points of one size, by round.
func (r *result) largeValues(system string, mib int, value func(largePoint) float64) map[int]float64 {
	found := map[int]float64{}
	for _, p := range r.Large {
		if p.System == system && p.MiB == mib && p.Error == "" {
			found[p.Round] = value(p)
		}
	}
	return found
}

// largeMedian is the median over the rounds, NaN of none.
func (r *result) largeMedian(system string, mib int, value func(largePoint) float64) float64 {
	var all []float64
	for _, v := range r.largeValues(system, mib, value) {
		all = append(all, v)
	}
	return median(all)
}

// computeLarge fills LargeRatios from Large: quorate against each of the others.
func (r *result) computeLarge() {
	r.LargeRatios = nil
	for _, mib := range largeMiB() {
		for _, against := range largeSystems()[1:] {
			over := func(value func(largePoint) float64) float64 {
				theirs := r.largeValues(against, mib, value)
				var ratios []float64
				for round, ours := range r.largeValues(systemQuorate, mib, value) {
					if t, ok := theirs[round]; ok {
						ratios = append(ratios, ours/t)
					}
				}
				return median(ratios)
			}
			q := largeRatio{MiB: mib, Against: against,
				Commit: over(func(p largePoint) float64 { return p.CommitMs }),
				Stall:  over(func(p largePoint) float64 { return p.StallMs })}
			if !math.IsNaN(q.Commit) { // JSON has none
				r.LargeRatios = append(r.LargeRatios, q)
			}
		}
	}
}

func (r *result) reportLarge(out io.Writer) {
	if len(r.Large) == 0 {
		return
	}
	r.computeLarge()
	fmt.Fprintf(out, "\none large transaction beside %d writers of small ones, in ms; medians over the rounds\n", largeWriters)
	fmt.Fprint(out, "COMMIT: of the large one; stall: the longest small commit meanwhile; small: the median of those before\n")
	rows := [][]string{{"MiB", "system", "COMMIT", "stall", "small", "catch-up s"}}
	for _, mib := range largeMiB() {
		for _, s := range largeSystems() {
			rows = append(rows, []string{fmt.Sprint(mib), s,
				fmt.Sprintf("%.0f", r.largeMedian(s, mib, func(p largePoint) float64 { return p.CommitMs })),
				fmt.Sprintf("%.0f", r.largeMedian(s, mib, func(p largePoint) float64 { return p.StallMs })),
				fmt.Sprintf("%.2f", r.largeMedian(s, mib, func(p largePoint) float64 { return p.SmallMs })),
				fmt.Sprintf("%.2f", r.largeMedian(s, mib, func(p largePoint) float64 { return p.CatchUpSeconds }))})
		}
	}
	table(out, rows)
	rows = [][]string{{"MiB", "ratio", "COMMIT", "stall"}}
	for _, q := range r.LargeRatios {
		rows = append(rows, []string{fmt.Sprint(q.MiB), systemQuorate + " / " + q.Against,
			fmt.Sprintf("%.2f", q.Commit), fmt.Sprintf("%.2f", q.Stall)})
	}
	table(out, rows)
	for _, p := range r.Large {
		if p.Error != "" {
			fmt.Fprintf(out, "failed: %s\n", p.line())
		}
	}
}
