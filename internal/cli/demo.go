package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/testkit/devcluster"
	"github.com/quorate/quorate/internal/testkit/ledger"
)

// Bounds of the demo's waits. A small machine that starts five servers at once
// needs most of the first; the others are far above what is normal.
const (
	demoStartWait    = 3 * time.Minute
	demoFailoverWait = time.Minute
	demoRejoinWait   = 2 * time.Minute
	demoSettleWait   = time.Minute
	// demoFindingsMax is how many lost or diverged rows are printed one by one.
	demoFindingsMax = 10
)

var (
	// errDemoFailed says that the demo ran to its end and the ledger is not right.
	errDemoFailed = errors.New("the servers do not have what the writers were told")
	// errDemoInterrupted says that the user ended the demo.
	errDemoInterrupted = errors.New("interrupted; nothing is left behind")
)

// demoOptions are the flags of `quorate demo`.
type demoOptions struct {
	nodes     int
	loggers   int
	duration  time.Duration
	writers   int
	keep      bool
	json      bool
	dir       string
	mysqlBase string
}

// newDemoCommand returns `quorate demo`.
func newDemoCommand() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a cluster here, kill its primary, check every row",
		Long: `Starts a cluster of stock MySQL servers on loopback, lets writers insert rows through the
read/write ports, kills the agent and the mysqld of the primary (SIGKILL), measures for how
long no write was acknowledged, starts the dead node again, and waits until it has caught up
from the log. At the end it compares every server with what the writers were told: each
acknowledged row is there exactly once, each row of unknown outcome is on all servers or on
none, and the tables are identical.

Afterwards no process and no file is left. With --keep the cluster stays up, and the command
stays in the foreground, until Ctrl-C. After a failure the directory with the logs stays.

Exit code 0: nothing was lost, nothing diverged, and writes went on. 1: else. 2: wrong
usage.`,
		Example: `  quorate demo
  quorate demo --nodes 1 --duration 10s
  quorate demo --loggers 1
  quorate demo --json 2>/dev/null
  quorate demo --keep --mysql-base /opt/mysql`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDemo(cmd, o)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.nodes, "nodes", 3, "number of nodes: 1, 3 or 5")
	f.IntVar(&o.loggers, "loggers", 0, "how many of the nodes have no mysqld: they vote and keep the log")
	durationFlag(cmd, &o.duration, "duration", 20*time.Second, "how long the writers write; the kill is in the middle")
	f.IntVar(&o.writers, "writers", 8, "number of concurrent writers")
	f.BoolVar(&o.keep, "keep", false, "keep the cluster up at the end, until Ctrl-C")
	f.BoolVar(&o.json, "json", false, "print the result as one JSON object on stdout, everything else on stderr")
	f.StringVar(&o.dir, "dir", "", "directory for the cluster, empty or new (default: a temporary one)")
	f.StringVar(&o.mysqlBase, "mysql-base", "", "prefix of the MySQL installation (default: $QUORATE_MYSQL_BASE, then mysqld on PATH)")
	return cmd
}

func (o demoOptions) validate() error {
	switch {
	case o.nodes != 1 && o.nodes != 3 && o.nodes != 5:
		return fmt.Errorf("--nodes must be 1, 3 or 5, not %d", o.nodes)
	case o.loggers < 0 || 2*o.loggers >= o.nodes:
		return fmt.Errorf("--loggers must be less than half of the %d nodes, not %d", o.nodes, o.loggers)
	case o.duration < 2*time.Second:
		return fmt.Errorf("--duration must be at least 2s, not %v", o.duration)
	case o.writers < 1 || o.writers > 200:
		return fmt.Errorf("--writers must be 1 to 200, not %d", o.writers)
	}
	return nil
}

// runDemo builds the demo, runs it and tidies up.
func runDemo(cmd *cobra.Command, o demoOptions) (err error) {
	if err := o.validate(); err != nil {
		return usage(err)
	}
	d := &demo{opts: o, out: newDemoPrinter(cmd, o.json)}
	install, err := install.Discover(o.mysqlBase)
	if err != nil {
		return err
	}
	d.result.MySQLVersion = install.Version.String()
	d.install = install
	d.out.step("MySQL %s found", install.Version)
	if err := d.create(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close(err)) }()
	if err := d.run(cmd.Context()); err != nil {
		if cmd.Context().Err() != nil {
			return errDemoInterrupted
		}
		return err
	}
	if err := d.out.result(d.result); err != nil {
		return err
	}
	if o.keep {
		d.waitKept(cmd.Context())
	}
	if !d.result.OK {
		return errDemoFailed
	}
	return nil
}

// demo is one run.
type demo struct {
	opts    demoOptions
	self    string // the path of this program
	out     *demoPrinter
	install *install.Installation
	cluster *devcluster.Cluster
	result  demoResult
}

// create makes the directory and the cluster in it, not started.
func (d *demo) create() error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the quorate executable: %w", err)
	}
	dir := d.opts.dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "quorate-demo-"); err != nil {
			return fmt.Errorf("create the cluster directory: %w", err)
		}
	}
	d.self = self
	d.cluster, err = devcluster.New(devcluster.Options{
		Binary: self, Dir: dir, Nodes: d.opts.nodes, Loggers: d.opts.loggers, MySQLBase: d.install.BaseDir, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	d.out.step("cluster directory %s", d.cluster.Dir())
	return nil
}

// close stops the cluster. Its files go too, unless the run failed: then the
// logs are worth more than a tidy disk.
func (d *demo) close(failure error) error {
	if failure == nil || errors.Is(failure, errDemoInterrupted) {
		return d.cluster.Close()
	}
	d.out.step("failed; the logs stay in %s", d.cluster.Dir())
	return d.cluster.Stop()
}

// run is the story from the start of the nodes to the check of the ledger.
func (d *demo) run(ctx context.Context) error {
	primary, err := d.start(ctx)
	if err != nil {
		return err
	}
	load, err := d.prepare(ctx, primary)
	if err != nil {
		return err
	}
	writing, stop := context.WithCancel(ctx)
	defer stop()
	// A workload that ends by itself has failed, and ends the demo.
	group, story := errgroup.WithContext(ctx)
	begin := time.Now()
	group.Go(func() error { return load.Run(writing) })
	d.out.step("%d writers write through the ports of all nodes", d.opts.writers)
	group.Go(func() error {
		defer stop()
		if err := d.breakAndMend(story, load); err != nil {
			return err
		}
		return sleep(story, time.Until(begin.Add(d.opts.duration)))
	})
	if err := group.Wait(); err != nil {
		return err
	}
	d.result.DurationSeconds = time.Since(begin).Seconds()
	d.out.step("writers have stopped")
	return d.check(ctx, load)
}

// start brings all nodes up and returns the primary.
func (d *demo) start(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, demoStartWait)
	defer cancel()
	if err := d.cluster.StartAll(ctx); err != nil {
		return -1, err
	}
	d.out.step("nodes %s started", d.names())
	primary, err := d.cluster.WaitAllReady(ctx)
	if err != nil {
		return -1, err
	}
	d.out.step("all nodes are ready, %s is the primary", d.cluster.Name(primary))
	return primary, nil
}

// prepare creates the account and the table, and the workload on it.
func (d *demo) prepare(ctx context.Context, primary int) (*ledger.Workload, error) {
	if err := d.cluster.CreateApplication(ctx, primary, ledger.Database); err != nil {
		return nil, err
	}
	cfg := ledger.Config{Writers: d.opts.writers, Logger: slog.New(slog.DiscardHandler)}
	for i := range d.cluster.Len() {
		cfg.DSNs = append(cfg.DSNs, d.cluster.DSN(i))
	}
	// Through any router: this one is not the primary's, if there is another.
	if err := ledger.CreateTable(ctx, cfg.DSNs[(primary+1)%len(cfg.DSNs)]); err != nil {
		return nil, err
	}
	d.out.step("account created on the primary, table created through the router")
	return ledger.New(cfg)
}

// breakAndMend waits for half of the duration, kills the primary, and sees the
// cluster recover and the dead node rejoin.
func (d *demo) breakAndMend(ctx context.Context, load *ledger.Workload) error {
	if err := sleep(ctx, d.opts.duration/2); err != nil {
		return err
	}
	d.out.step("%d rows acknowledged so far", load.Stats().Acknowledged)
	victim, err := d.cluster.WaitPrimary(ctx) // it may be another one by now
	if err != nil {
		return err
	}
	load.ResetGap()
	killed := time.Now()
	// On a busy machine killed servers take a while to be gone; the other nodes do not
	// wait for that, so the figures do not include it.
	gone := make(chan error, 1)
	go func() { gone <- d.cluster.KillBoth(victim) }()
	d.out.step("SIGKILL to the agent and the mysqld of the primary, %s", d.cluster.Name(victim))
	if d.cluster.Len() > 1 {
		err = d.awaitWrites(ctx, load, killed, victim)
	}
	if err := errors.Join(err, <-gone); err != nil {
		return err
	}
	return d.mend(ctx, load, victim, killed)
}

// awaitWrites waits for a new primary and for its first acknowledged row. No later row can come from
// the dead primary: its agent passes no byte any more.
func (d *demo) awaitWrites(ctx context.Context, load *ledger.Workload, killed time.Time, dead ...int) error {
	ctx, cancel := context.WithTimeout(ctx, demoFailoverWait)
	defer cancel()
	primary, err := d.cluster.WaitPrimary(ctx, dead...)
	if err != nil {
		return err
	}
	took := time.Since(killed)
	d.result.FailoverMs = took.Milliseconds()
	d.out.step("%s is the primary, %s after the kill", d.cluster.Name(primary), shortTime(took))
	before := load.Stats().Acknowledged
	if err := devcluster.Poll(ctx, "writes are acknowledged again", func(context.Context) (bool, string, error) {
		return load.Stats().Acknowledged > before, "none so far", nil
	}); err != nil {
		return err
	}
	gap := load.Gap()
	d.result.WriteGapMs = gap.Milliseconds()
	d.out.step("writes go on: nothing was acknowledged for %s", shortTime(gap))
	return nil
}

// mend restarts the victim and waits until it has applied everything that was
// committed when it was restarted.
func (d *demo) mend(ctx context.Context, load *ledger.Workload, victim int, killed time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, demoRejoinWait)
	defer cancel()
	var committed uint64
	if d.cluster.Len() > 1 {
		primary, err := d.cluster.WaitPrimary(ctx)
		if err != nil {
			return err
		}
		st, err := d.cluster.NodeStatus(ctx, primary)
		if err != nil {
			return err
		}
		committed = st.LogCommit
	}
	name := d.cluster.Name(victim)
	restarted := time.Now()
	if err := d.cluster.Start(ctx, victim); err != nil {
		return err
	}
	d.out.step("%s restarted", name)
	if d.cluster.Len() == 1 {
		if err := d.awaitWrites(ctx, load, killed); err != nil {
			return err
		}
	}
	if err := d.cluster.WaitCaughtUp(ctx, victim, committed); err != nil {
		return err
	}
	d.result.RejoinMs = time.Since(restarted).Milliseconds()
	d.out.step("%s has rejoined from the log, %s after its restart", name, shortTime(time.Since(restarted)))
	return nil
}

// check compares every server with what the writers were told.
func (d *demo) check(ctx context.Context, load *ledger.Workload) error {
	var nodes []ledger.Server
	for _, i := range d.cluster.Full() {
		dsn, err := d.cluster.LocalDSN(i)
		if err != nil {
			return err
		}
		nodes = append(nodes, ledger.Server{Name: d.cluster.Name(i), DSN: dsn})
	}
	verdict, err := ledger.Check(ctx, slog.New(slog.DiscardHandler), nodes, load.History(), demoSettleWait)
	if err != nil {
		return err
	}
	d.out.step("ledger checked on %s: %d rows on each", d.servers(), verdict.Rows)
	for i, f := range slices.Concat(verdict.Lost, verdict.Diverged) {
		if i == demoFindingsMax {
			d.out.step("… and more")
			break
		}
		d.out.bad("%v", f)
	}
	d.result.fill(d.opts, verdict)
	return nil
}

// waitKept leaves the cluster up until the user ends the command.
func (d *demo) waitKept(ctx context.Context) {
	found, cancel := context.WithTimeout(ctx, demoFailoverWait)
	primary, err := d.cluster.WaitPrimary(found)
	cancel()
	if err != nil {
		primary = 0 // its status will show that there is no primary
	}
	d.out.step("the cluster stays up")
	d.out.plain("%s", d.tryThis(d.cluster.Name(primary), d.cluster.ConfigPath(primary), d.cluster.MysqldPID(primary)))
	d.out.plain("the page of node %s: http://%s/; reads from replicas: %s", d.cluster.Name(primary), d.cluster.APIAddr(primary), d.cluster.ReadAddr(primary))
	<-ctx.Done()
}

// tryThis says what to try with the cluster: commands that work in any terminal without a change. node is
// the primary.
func (d *demo) tryThis(node, config string, mysqldPID int) string {
	var text strings.Builder
	text.WriteString("in another terminal:\n")
	for _, line := range [][2]string{
		{"export " + configVariable + "=" + config, "node " + node + ", the primary now"},
		{d.self + " status --watch", "the cluster's state, every second"},
		{d.self + " mysql", "the administrator's client, on " + node},
		{d.clientCommand(), "an application's client"},
		{d.self + " switchover", "moves the primary in order"},
		{fmt.Sprintf("kill -9 %d", mysqldPID), "mysqld of " + node + ": another node takes over"},
		{d.self + " history", "what happened"},
	} {
		fmt.Fprintf(&text, "  %-50s  # %s\n", line[0], line[1])
	}
	return text.String() + "Ctrl-C here stops it, and removes " + d.cluster.Dir()
}

// clientCommand is the command that connects as the application. It uses the client of the MySQL that
// runs, which need not be on PATH.
func (d *demo) clientCommand() string {
	command := d.cluster.ClientCommand(0)
	if argv, err := d.install.ClientArgv(); err == nil {
		command = strings.Join(argv, " ") + strings.TrimPrefix(command, "mysql")
	}
	return command
}

// names lists the nodes. servers lists only the nodes with a mysqld.
func (d *demo) names() string {
	var names []string
	for i := range d.cluster.Len() {
		names = append(names, d.cluster.Name(i))
		if !slices.Contains(d.cluster.Full(), i) {
			names[i] += " (logger)"
		}
	}
	return strings.Join(names, ", ")
}

func (d *demo) servers() string {
	var names []string
	for _, i := range d.cluster.Full() {
		names = append(names, d.cluster.Name(i))
	}
	return strings.Join(names, ", ")
}

// sleep waits for d, or less if ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
