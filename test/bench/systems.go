package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"github.com/go-sql-driver/mysql"
	"golang.org/x/sync/errgroup"

	"github.com/quorate/quorate/internal/devcluster"
)

// The systems, by the names that the report uses.
const (
	systemQuorate    = "quorate"
	systemDirect     = "quorate-direct"
	systemStandalone = "standalone"
	systemAsync      = "async"
)

func systemNames() []string {
	return []string{systemQuorate, systemDirect, systemStandalone, systemAsync}
}

const (
	nodes = 3
	// readyWait bounds the wait for a healthy system.
	readyWait = 3 * time.Minute
	// catchUpWait bounds the wait for replicas at the end of a turn.
	catchUpWait = 5 * time.Minute
)

// endpoint is what sysbench connects to: a socket, or a port on loopback.
type endpoint struct {
	socket, host, port, user, password string
}

// usage is CPU time used so far.
type usage struct{ agents, servers time.Duration }

// system is one thing to compare.
type system interface {
	name() string
	// ready waits until the system is healthy and returns where clients connect.
	ready(ctx context.Context) (endpoint, error)
	// servers returns a DSN for each server, the writable one first.
	servers(ctx context.Context) ([]string, error)
	cpu() (usage, error)
}

// group is a rival: one server, or one with asynchronous replicas.
type group struct {
	label string
	all   []*server
}

// newGroup initialises and starts count servers; the others replicate from the
// first. A group that fails to start is closed.
func (b *bench) newGroup(ctx context.Context, label string, count int) (g *group, err error) {
	started := &group{label: label, all: make([]*server, count)}
	defer func() {
		if err != nil {
			err = errors.Join(err, started.Close())
		}
	}()
	g = started
	starting, startCtx := errgroup.WithContext(ctx)
	for i := range g.all {
		starting.Go(func() error {
			dir := filepath.Join(b.dir, fmt.Sprintf("%s%d", label, i))
			s, err := newServer(startCtx, b.install, dir, i+1, b.opts.variables)
			if err != nil {
				return err
			}
			g.all[i] = s
			return s.start(startCtx)
		})
	}
	if err := starting.Wait(); err != nil {
		return nil, err
	}
	source := g.all[0]
	if err := source.exec(ctx,
		"CREATE DATABASE "+benchDatabase,
		fmt.Sprintf("CREATE USER %s@'%%' IDENTIFIED BY '%s'", benchUser, source.password),
		fmt.Sprintf("GRANT ALL ON %s.* TO %s@'%%'", benchDatabase, benchUser),
		fmt.Sprintf("CREATE USER replica@'%%' IDENTIFIED BY '%s'", source.password),
		"GRANT REPLICATION SLAVE ON *.* TO replica@'%'",
	); err != nil {
		return nil, err
	}
	for _, r := range g.all[1:] {
		// Without TLS, as quorate's own feed: 9.x would demand it by default.
		if err := r.exec(ctx, "SET GLOBAL super_read_only = ON", fmt.Sprintf(`CHANGE REPLICATION SOURCE TO
			SOURCE_HOST='127.0.0.1', SOURCE_PORT=%d, SOURCE_USER='replica', SOURCE_PASSWORD='%s',
			SOURCE_AUTO_POSITION=1, SOURCE_SSL=0, GET_SOURCE_PUBLIC_KEY=1, SOURCE_CONNECT_RETRY=1`,
			source.port, source.password), "START REPLICA"); err != nil {
			return nil, err
		}
	}
	b.say("%s: %d server(s) are up", label, count)
	return g, nil
}

func (g *group) name() string { return g.label }

func (g *group) ready(context.Context) (endpoint, error) {
	s := g.all[0]
	return endpoint{host: "127.0.0.1", port: strconv.Itoa(s.port), user: benchUser, password: s.password}, nil
}

func (g *group) servers(context.Context) ([]string, error) {
	var dsns []string
	for _, s := range g.all {
		cfg := mysql.NewConfig()
		cfg.Net, cfg.Addr, cfg.User = "unix", s.socket(), "root"
		dsns = append(dsns, cfg.FormatDSN())
	}
	return dsns, nil
}

func (g *group) cpu() (u usage, err error) {
	for _, s := range g.all {
		d, err := cpuTime(s.process.Pid())
		if err != nil {
			return usage{}, err
		}
		u.servers += d
	}
	return u, nil
}

// Close kills the servers.
func (g *group) Close() error {
	var errs []error
	for _, s := range g.all {
		if s != nil {
			errs = append(errs, s.close())
		}
	}
	return errors.Join(errs...)
}

// quorate is a cluster, used through the primary's router or directly on the
// primary's mysqld.
type quorate struct {
	cluster *devcluster.Cluster
	label   string
	// direct is "", "socket" or "tcp".
	direct string
}

// newCluster starts a cluster in b.dir/name and creates the application's
// account with every right on database.
func (b *bench) newCluster(ctx context.Context, name, database string) (*devcluster.Cluster, error) {
	return b.newClusterOf(ctx, devcluster.Options{Dir: filepath.Join(b.dir, name)}, database)
}

// newClusterOf is newCluster with options: it fills in the others.
func (b *bench) newClusterOf(ctx context.Context, opts devcluster.Options, database string) (c *devcluster.Cluster, err error) {
	vars := sharedVariables()
	// performance_schema=ON is guarded, so it is quorate's own setting already.
	delete(vars, "performance_schema")
	maps.Copy(vars, b.opts.variables)
	opts.Binary, opts.MySQLBase, opts.Nodes = b.opts.binary, b.install.BaseDir, nodes
	opts.Variables, opts.Logger = vars, slog.New(slog.DiscardHandler)
	c, err = devcluster.New(opts)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	if err := c.StartAll(ctx); err != nil {
		return nil, err
	}
	primary, err := c.WaitAllReady(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.CreateApplication(ctx, primary, database); err != nil {
		return nil, err
	}
	b.say("quorate: %d nodes are up, %s is the primary", nodes, c.Name(primary))
	return c, nil
}

func (q *quorate) name() string { return q.label }

// primary waits until the whole cluster is healthy and returns the primary.
func (q *quorate) primary(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	return q.cluster.WaitAllReady(ctx)
}

func (q *quorate) ready(ctx context.Context) (endpoint, error) {
	i, err := q.primary(ctx)
	if err != nil {
		return endpoint{}, err
	}
	var e endpoint
	e.user, e.password = q.cluster.Application()
	addr := q.cluster.RouterAddr(i)
	switch q.direct {
	case "tcp":
		addr = q.cluster.MysqldAddr(i)
	case "socket":
		e.socket, err = q.socket(i)
		return e, err
	}
	if e.host, e.port, err = net.SplitHostPort(addr); err != nil {
		return endpoint{}, fmt.Errorf("read the address of node %s: %w", q.cluster.Name(i), err)
	}
	return e, nil
}

// socket returns the Unix socket of node i's mysqld.
func (q *quorate) socket(i int) (string, error) {
	dsn, err := q.cluster.LocalDSN(i)
	if err != nil {
		return "", err
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return "", fmt.Errorf("read the DSN of node %s: %w", q.cluster.Name(i), err)
	}
	return cfg.Addr, nil
}

func (q *quorate) servers(ctx context.Context) ([]string, error) {
	primary, err := q.primary(ctx)
	if err != nil {
		return nil, err
	}
	var dsns []string
	for n := range q.cluster.Len() {
		dsn, err := q.cluster.LocalDSN((primary + n) % q.cluster.Len())
		if err != nil {
			return nil, err
		}
		dsns = append(dsns, dsn)
	}
	return dsns, nil
}

func (q *quorate) cpu() (u usage, err error) {
	for i := range q.cluster.Len() {
		for pid, sum := range map[int]*time.Duration{
			q.cluster.AgentPID(i): &u.agents, q.cluster.MysqldPID(i): &u.servers,
		} {
			d, err := cpuTime(pid)
			if err != nil {
				return usage{}, err
			}
			*sum += d
		}
	}
	return u, nil
}

// startSystems starts the selected systems, all to be up at the same time, and
// returns how to close them.
func (b *bench) startSystems(ctx context.Context) (all []system, closeAll func() error, err error) {
	var closers []io.Closer
	closeAll = func() error {
		var errs []error
		for _, c := range closers {
			errs = append(errs, c.Close())
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll())
		}
	}()
	var cluster *devcluster.Cluster
	for _, name := range b.selectedSystems() {
		switch name {
		case systemQuorate, systemDirect:
			if cluster == nil {
				if cluster, err = b.newCluster(ctx, "q", benchDatabase); err != nil {
					return nil, nil, err
				}
				closers = append(closers, stopper{cluster})
			}
			q := &quorate{cluster: cluster, label: name}
			if name == systemDirect {
				q.direct = b.opts.direct
			}
			all = append(all, q)
		default:
			count := 1
			if name == systemAsync {
				count = nodes
			}
			g, err := b.newGroup(ctx, name, count)
			if err != nil {
				return nil, nil, err
			}
			closers = append(closers, g)
			all = append(all, g)
		}
	}
	return all, closeAll, nil
}

// stopper closes a cluster but leaves its files: bench.dir is removed as a
// whole, or kept for its logs.
type stopper struct{ *devcluster.Cluster }

// Close kills the cluster's processes.
func (s stopper) Close() error { return s.Stop() }

func (b *bench) selectedSystems() []string {
	if s := split(b.opts.systems); len(s) > 0 {
		return s
	}
	return systemNames()
}

// catchUp waits until every replica has what the writable server has. It
// returns how long that took.
func catchUp(ctx context.Context, dsns []string) (time.Duration, error) {
	began := time.Now()
	var set string
	if err := queryRow(ctx, dsns[0], "SELECT @@GLOBAL.gtid_executed", nil, &set); err != nil {
		return 0, err
	}
	waiting, waitCtx := errgroup.WithContext(ctx)
	for _, dsn := range dsns[1:] {
		waiting.Go(func() error {
			var timedOut int
			err := queryRow(waitCtx, dsn, "SELECT WAIT_FOR_EXECUTED_GTID_SET(?, ?)", []any{set, catchUpWait.Seconds()}, &timedOut)
			if err == nil && timedOut != 0 {
				err = fmt.Errorf("a replica has not caught up after %v", catchUpWait)
			}
			return err
		})
	}
	err := waiting.Wait()
	return time.Since(began), err
}

// queryRow reads one row over a connection of its own.
func queryRow(ctx context.Context, dsn, statement string, args []any, dest ...any) error {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return fmt.Errorf("use DSN: %w", err)
	}
	defer db.Close()
	if err := db.QueryRowContext(ctx, statement, args...).Scan(dest...); err != nil {
		return fmt.Errorf("run %q: %w", statement, err)
	}
	return nil
}
