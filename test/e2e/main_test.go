package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"golang.org/x/sys/unix"

	_ "github.com/quorate/quorate/internal/agent" // of the program that TestMain builds: go test may not take a result of before it changed
	_ "github.com/quorate/quorate/internal/cli"   // likewise
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/mysql/mysqld/mysqldtest"
	"github.com/quorate/quorate/internal/testkit/devcluster"
	"github.com/quorate/quorate/internal/testkit/faultmount"
	"github.com/quorate/quorate/internal/testkit/ledger"
)

// scenarioTimeout bounds one scenario. Normal is 10 to 20 s on two cores.
const scenarioTimeout = 3 * time.Minute

// How long writers pause after a transaction, on average: if it is enough that they write; if servers are killed, and
// something should be under way; while a test waits for rows; and if a test runs alone, and needs as many rows as
// they can write. Eight clusters share two processors, and 1000 rows cost 3 s of them.
const (
	quiet     = 250 * time.Millisecond
	busy      = 80 * time.Millisecond
	awaited   = 20 * time.Millisecond
	fullSpeed = 0
)

// Variables that tell the tests where TestMain has put the program, and the MySQL whose new
// servers are copies.
const (
	binaryVariable = "QUORATE_E2E_BINARY"
	copiesVariable = "QUORATE_E2E_COPIES"
)

func TestMain(m *testing.M) {
	faultmount.ServeChild()
	if err := turns.open(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if os.Getenv(namespaceVariable) != "" {
		os.Exit(m.Run()) // the parent has built the program
	}
	os.Exit(buildAndRun(m))
}

// buildAndRun builds the program once for all tests. It removes the files of tests that failed, or that
// were ended, except the logs; with QUORATE_E2E_KEEP=1 it removes nothing.
func buildAndRun(m *testing.M) int {
	keep := []string{"agent.log", "node.toml"}
	if os.Getenv("QUORATE_E2E_KEEP") != "" {
		keep = []string{"*"}
	}
	dir, end, err := mysqldtest.OwnTempDir("qe2e-", keep...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer end()
	if err := room(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binary := filepath.Join(dir, "quorate")
	build := exec.Command("go", "build", "-o", binary, "../../cmd/quorate")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build quorate:", err)
		return 1
	}
	if err := os.Setenv(binaryVariable, binary); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if base := findMySQL(); base != "" {
		copies := filepath.Join(dir, "mysql")
		if err := errors.Join(mysqldtest.Prefix(copies, base), os.Setenv(copiesVariable, copies)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return m.Run()
}

// room returns an error if the disk is so full that nodes keep no data of before a rebuild, and raise alarms.
func room(dir string) error {
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil || disk.Bavail >= disk.Blocks/9 {
		return err
	}
	return fmt.Errorf("less than one part in 9 of the disk of %s is free: make room (the build cache may be large: go clean -cache), or set TMPDIR to another disk", dir)
}

// findMySQL returns the MySQL installation to test with, "" where there is none.
func findMySQL() string {
	if base := os.Getenv(install.EnvBaseDir); base != "" {
		return base
	}
	base, err := filepath.Abs("../../.mysql")
	if err != nil {
		return ""
	}
	if _, err := os.Stat(base); err != nil {
		return ""
	}
	return base
}

// mysqlBase returns findMySQL's installation. Without one the test is skipped, and fails in CI.
func mysqlBase(t *testing.T) string {
	t.Helper()
	if base := findMySQL(); base != "" {
		return base
	}
	if os.Getenv("CI") != "" {
		t.Fatal("no MySQL in .mysql and QUORATE_MYSQL_BASE is not set: run make mysql")
	}
	t.Skip("no MySQL in .mysql and QUORATE_MYSQL_BASE is not set: run make mysql")
	return ""
}

// copiedMySQL returns mysqlBase's installation, except that --initialize copies a directory
// that was made before.
func copiedMySQL(t *testing.T) string {
	t.Helper()
	mysqlBase(t)
	return os.Getenv(copiesVariable)
}

// fixture is a running cluster and what was written to it.
type fixture struct {
	*devcluster.Cluster
	history []ledger.Attempt
	writers uint32        // next writer's number
	think   time.Duration // of the writers, after a transaction: normally quiet
	loads   []*load       // at work
	eager   bool          // they are not quiet while nodes heal
	joining func()        // told once a node has joined
	given   []string      // free addresses
}

// calm is the election timeout of clusters in which only the test's actions may cause an election: the machine may stand
// still for seconds. A killed process is still noticed at once.
const calm = 5 * time.Second

// steady tries at most three times: a machine that stands still may cause an election, but a defect shows each time.
func steady(t *testing.T, try func() (wrong string)) {
	t.Helper()
	for n := 1; ; n++ {
		wrong := try()
		if wrong == "" {
			return
		}
		if n == 3 {
			t.Fatal(wrong)
		}
		t.Logf("try %d: %s", n, wrong)
	}
}

// newFixture starts a cluster with the ledger's table in it. It is closed when
// t ends.
func newFixture(t *testing.T, opts devcluster.Options) *fixture {
	t.Helper()
	f := newCluster(t, opts)
	ctx := scenarioContext(t)
	if err := f.StartAll(ctx); err != nil {
		t.Fatal(err)
	}
	f.createTable(t, ctx)
	return f
}

// newCluster makes a cluster that has not begun. Its servers are copies, unless opts names a
// MySQL.
func newCluster(t *testing.T, opts devcluster.Options) *fixture {
	t.Helper()
	if opts.Binary = os.Getenv(binaryVariable); opts.MySQLBase == "" {
		opts.MySQLBase = copiedMySQL(t)
		variables := map[string]string{"innodb_redo_log_capacity": "32M"} // each start makes its spare files
		maps.Copy(variables, opts.Variables)
		opts.Variables = variables
	}
	opts.Logger = slog.New(slog.DiscardHandler)
	dir, err := os.MkdirTemp("", "qe2e-") // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	opts.Dir = dir
	c, err := devcluster.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeCluster(t, c) })
	return &fixture{Cluster: c, think: quiet}
}

// createTable makes the ledger's table, once all nodes are well.
func (f *fixture) createTable(t *testing.T, ctx context.Context) {
	t.Helper()
	if err := devcluster.Poll(ctx, "the ledger's table is made", func(ctx context.Context) (bool, string, error) {
		primary := f.heal(t, ctx)
		err := f.CreateApplication(ctx, primary, ledger.Database)
		if err == nil {
			err = ledger.CreateTable(ctx, f.DSN((primary+1)%f.Len()))
		}
		return err == nil, fmt.Sprint(err), nil
	}); err != nil {
		t.Fatal(err)
	}
}

// closeCluster stops the cluster. The logs of a failed test stay.
func closeCluster(t *testing.T, c *devcluster.Cluster) {
	if !t.Failed() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		return
	}
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
	t.Logf("the logs of the cluster are in %s", c.Dir())
	if os.Getenv("QUORATE_E2E_KEEP") != "" {
		return
	}
	for i := range c.Len() {
		if err := os.RemoveAll(c.DataDir(i)); err != nil {
			t.Error(err)
		}
	}
}

func scenarioContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), scenarioTimeout)
	t.Cleanup(cancel)
	return ctx
}

// scenario runs one sub-test on the shared cluster; the ones after a failed
// one are not run, because they would find a broken cluster.
func (f *fixture) scenario(t *testing.T, name string, run func(t *testing.T, ctx context.Context)) {
	t.Helper()
	if t.Failed() {
		t.Logf("%s: not run after the failure", name)
		return
	}
	t.Run(name, func(t *testing.T) { run(t, scenarioContext(t)) })
}

// heal starts every agent that does not run, waits until all nodes are ready
// and returns the primary. Writers are quiet meanwhile, so that nodes need not apply their rows.
func (f *fixture) heal(t *testing.T, ctx context.Context) int {
	t.Helper()
	for _, l := range f.loads {
		if !f.eager {
			l.SetPause(max(quiet, l.pause))
			defer l.SetPause(l.pause)
		}
	}
	if err := f.StartAll(ctx); err != nil {
		t.Fatal(err)
	}
	primary, err := f.WaitAllReady(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return primary
}

// others returns the nodes other than i.
func (f *fixture) others(i int) (nodes []int) {
	for n := range f.Len() {
		if n != i {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// load is a set of writers at work.
type load struct {
	*ledger.Workload
	fixture     *fixture
	first, last uint32 // its writers' numbers
	pause       time.Duration
	stopOnce    sync.Once
	cancel      context.CancelFunc
	ended       chan error
}

// start lets writers write through the ports of the given nodes (all, if none
// are given) until stop.
func (f *fixture) start(t *testing.T, writers int, nodes ...int) *load {
	t.Helper()
	if len(nodes) == 0 {
		for i := range f.Len() {
			nodes = append(nodes, i)
		}
	}
	var dsns []string
	for _, i := range nodes {
		dsns = append(dsns, f.DSN(i))
	}
	return f.startAt(t, writers, dsns...)
}

// startAt is start with writers that connect elsewhere.
func (f *fixture) startAt(t *testing.T, writers int, dsns ...string) *load {
	t.Helper()
	cfg := ledger.Config{Writers: writers, FirstWriter: f.writers, Pause: f.think, Logger: slog.New(slog.DiscardHandler), DSNs: dsns}
	w, err := ledger.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{Workload: w, fixture: f, first: f.writers, last: f.writers + uint32(writers) - 1, pause: f.think,
		cancel: cancel, ended: make(chan error, 1)}
	f.writers += uint32(writers)
	f.loads = append(f.loads, l)
	go func() { l.ended <- w.Run(ctx) }()
	t.Cleanup(func() { l.stop(t) })
	return l
}

// stop ends the writers and adds what they were told to the history.
func (l *load) stop(t *testing.T) {
	t.Helper()
	l.stopOnce.Do(func() {
		l.cancel()
		if err := <-l.ended; err != nil {
			t.Error(err)
		}
		l.fixture.history = append(l.fixture.history, l.History()...)
		l.fixture.loads = slices.DeleteFunc(l.fixture.loads, func(o *load) bool { return o == l })
	})
}

// rest lets the writers write only as much as is needed to see that they can.
func (l *load) rest() {
	l.pause = max(quiet, l.pause)
	l.SetPause(l.pause)
}

// awaitAcks waits for n more acknowledged rows.
func (l *load) awaitAcks(t *testing.T, ctx context.Context, n int64) {
	t.Helper()
	l.SetPause(min(awaited, l.pause))
	defer l.SetPause(l.pause)
	want := l.Stats().Acknowledged + n
	if err := devcluster.Poll(ctx, fmt.Sprintf("%d rows are acknowledged", want), func(context.Context) (bool, string, error) {
		s := l.Stats()
		return s.Acknowledged >= want, fmt.Sprintf("%+v", s), nil
	}); err != nil {
		t.Fatal(err)
	}
}

// mustHaveNoOK stops writers that worked while there was no majority: every OK
// that one of them got is wrong.
func (l *load) mustHaveNoOK(t *testing.T) {
	t.Helper()
	l.stop(t)
	s := l.Stats()
	if s.Acknowledged != 0 {
		t.Errorf("%d rows were acknowledged without a majority", s.Acknowledged)
	}
	if s.Unknown == 0 {
		t.Errorf("no writer had a transaction under way (%+v): the test has tested nothing", s)
	}
}

// rowsOn returns how many of the load's rows node i has.
func (l *load) rowsOn(t *testing.T, ctx context.Context, i int) (n int) {
	t.Helper()
	db := l.fixture.local(t, i)
	if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+ledger.Table+" WHERE writer BETWEEN ? AND ?",
		l.first, l.last).Scan(&n); err != nil {
		t.Fatalf("node %s: %v", l.fixture.Name(i), err)
	}
	return n
}

// check compares every server with the history.
func (f *fixture) check(t *testing.T, ctx context.Context) {
	t.Helper()
	f.checkNodes(t, ctx, f.Full()...)
}

// checkNodes compares some servers with the history.
func (f *fixture) checkNodes(t *testing.T, ctx context.Context, on ...int) {
	t.Helper()
	var nodes []ledger.Server
	for _, i := range on {
		dsn, err := f.LocalDSN(i)
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, ledger.Server{Name: f.Name(i), DSN: dsn})
	}
	res, err := ledger.Check(ctx, slog.New(slog.DiscardHandler), nodes, f.history, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for n, finding := range slices.Concat(res.Lost, res.Diverged) {
		if n == 10 {
			break
		}
		t.Errorf("%v", finding)
	}
	if !res.OK() {
		t.Fatalf("lost %d, diverged %d, of %d acknowledged rows", len(res.Lost), len(res.Diverged), res.Acknowledged)
	}
	t.Logf("%d rows on each node; %d acknowledged, %d of %d of unknown outcome are there",
		res.Rows, res.Acknowledged, res.UnknownPresent, res.Unknown)
}

// local opens node i's mysqld through its socket as the operator.
func (f *fixture) local(t *testing.T, i int) *sql.DB {
	t.Helper()
	dsn, err := f.LocalDSN(i)
	return openDSN(t, dsn, err)
}

// admin opens node i's mysqld through its socket as the agent itself.
func (f *fixture) admin(t *testing.T, i int) *sql.DB {
	t.Helper()
	dsn, err := f.AdminDSN(i)
	return openDSN(t, dsn, err)
}

func openDSN(t *testing.T, dsn string, err error) *sql.DB {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Logger = &mysql.NopLogger{} // the tests break connections on purpose
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// awaitWaiting waits until a session of node i's mysqld waits for an ACK.
func (f *fixture) awaitWaiting(t *testing.T, ctx context.Context, i int) {
	t.Helper()
	db := f.admin(t, i)
	if err := devcluster.Poll(ctx, "a session waits for an ACK", func(ctx context.Context) (bool, string, error) {
		var n int
		err := db.QueryRowContext(ctx,
			"SELECT COUNT(*) FROM performance_schema.processlist WHERE STATE LIKE 'Waiting for semi-sync ACK%'").Scan(&n)
		return n > 0, "none does", err
	}); err != nil {
		t.Fatal(err)
	}
}

// pause stops agents and returns when the kernel has stopped them.
func (f *fixture) pause(t *testing.T, ctx context.Context, nodes ...int) {
	t.Helper()
	for _, i := range nodes {
		if err := f.PauseAgent(i); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if f.AgentPID(i) != 0 {
				_ = f.ResumeAgent(i) // for a test that failed in between
			}
		})
	}
	if err := devcluster.Poll(ctx, "the agents are stopped", func(context.Context) (bool, string, error) {
		for _, i := range nodes {
			if !f.AgentPaused(i) {
				return false, f.Name(i), nil
			}
		}
		return true, "", nil
	}); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) resume(t *testing.T, nodes ...int) {
	t.Helper()
	for _, i := range nodes {
		if err := f.ResumeAgent(i); err != nil {
			t.Fatal(err)
		}
	}
}

// status returns node i's own status.
func (f *fixture) status(t *testing.T, ctx context.Context, i int) status.Node {
	t.Helper()
	var st status.Node
	if err := devcluster.Poll(ctx, f.Name(i)+" tells its status", func(ctx context.Context) (_ bool, _ string, err error) {
		if f.AgentPID(i) == 0 {
			return false, "", devcluster.ErrAgentExited
		}
		st, err = f.NodeStatus(ctx, i)
		return err == nil, fmt.Sprint(err), nil
	}); err != nil {
		t.Fatal(err)
	}
	return st
}

// atOnce runs f for all nodes at the same time.
func atOnce(t *testing.T, nodes []int, f func(int) error) {
	t.Helper()
	errs := make([]error, len(nodes))
	var wg sync.WaitGroup
	for n, i := range nodes {
		wg.Go(func() { errs[n] = f(i) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}
