package peers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/quorate/quorate/lab/netlab"
	"github.com/quorate/quorate/lab/result"
)

func TestMain(m *testing.M) {
	if FindInstallations("", "").MySQL == nil { // like other packages' tests: the prefix that `make mysql` makes
		base, err := filepath.Abs("../../.mysql")
		if err := errors.Join(err, os.Setenv("QUORATE_MYSQL_BASE", base)); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

// installations returns the programs of this machine, with quorate built from this tree.
func installations(t *testing.T, system string) Installations {
	t.Helper()
	in := FindInstallations(os.Getenv(EnvRivals), "")
	if os.Getenv(EnvRivals) == "" {
		rivals := FindInstallations(mustAbs(t, "../../.rivals"), "")
		in.MariaDB, in.MySQLRouter = rivals.MariaDB, rivals.MySQLRouter
	}
	if system == Quorate && in.MySQL != nil {
		in.Quorate = filepath.Join(t.TempDir(), "quorate")
		if out, err := exec.Command("go", "build", "-C", "../..", "-o", in.Quorate, "./cmd/quorate").CombinedOutput(); err != nil {
			t.Fatalf("build quorate: %v: %s", err, out)
		}
	}
	return in
}

func mustAbs(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

// shortDir is a directory whose path leaves room for sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "qlab")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove directory: %v", err)
		}
	})
	return dir
}

// network returns the lab's fastest network, or loopback if the test does not run as root.
func network(t *testing.T, system string) Net {
	t.Helper()
	if os.Geteuid() != 0 {
		if system == MGR || system == MGRAfter || system == MGRMulti || system == Router {
			t.Skip("Group Replication takes no address of 127.0.0.0/8, and network namespaces need root")
		}
		return NewLoopback(77)
	}
	topology, err := netlab.Preset("same-rack")
	if err != nil {
		t.Fatal(err)
	}
	n, err := netlab.New(topology, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Up(t.Context()); errors.Is(err, os.ErrPermission) {
		t.Skipf("needs network namespaces: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("close network: %v", err)
		}
	})
	return n
}

func deploy(t *testing.T, o Options) *Deployment {
	t.Helper()
	o.Install = installations(t, o.System)
	o.Dir = filepath.Join(shortDir(t), "d")
	if o.Network == nil {
		o.Network = network(t, o.System)
	}
	if dir := os.Getenv("QUORATE_LAB_TEMPLATES"); dir != "" {
		o.Templates = dir
	}
	began := time.Now()
	d, err := Deploy(t.Context(), o)
	if errors.Is(err, ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatalf("%v; of node a %s", err, tail(filepath.Join(o.Dir, "a", "log")))
	}
	t.Logf("%s is up after %.1f s", o.System, time.Since(began).Seconds())
	t.Cleanup(func() {
		for _, n := range d.nodes {
			if t.Failed() {
				t.Logf("of node %s %s", n.name, tail(n.log()))
			}
		}
		before := d.Nodes()
		if err := d.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		for _, n := range before {
			for component, pid := range n.Processes {
				if f, err := stat(pid); err == nil && string(f[0]) != "Z" {
					t.Errorf("%s of node %s is still there: %d", component, n.Name, pid)
				}
			}
		}
	})
	return d
}

func open(t *testing.T, d *Deployment, e Endpoint) *sql.DB {
	t.Helper()
	cfg, err := mysql.ParseDSN(e.DSN())
	if err != nil {
		t.Fatal(err)
	}
	cfg.Logger = &mysql.NopLogger{}
	dial := d.opts.Network.DialContext(clientNode)
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) { return dial(ctx, network, addr) }
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func mustExec(t *testing.T, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// writeEverywhere writes a row through each writer, and fails unless all servers get all rows.
func writeEverywhere(t *testing.T, d *Deployment, tag string) {
	t.Helper()
	ctx := t.Context()
	writers, err := d.Writers(ctx)
	if err != nil || len(writers) == 0 {
		t.Fatalf("writers: %v, %v", writers, err)
	}
	for i, w := range writers {
		db := open(t, d, w)
		if i == 0 {
			mustExec(t, db, "CREATE TABLE IF NOT EXISTS t (id VARCHAR(40) PRIMARY KEY)")
			if _, err := d.CatchUp(ctx); err != nil {
				t.Fatal(err)
			}
		}
		mustExec(t, db, "INSERT INTO t VALUES (?)", fmt.Sprint(tag, i))
	}
	wantRows(t, d, tag, len(writers))
}

// wantRows fails unless every running server has so many rows of tag once it has caught up.
func wantRows(t *testing.T, d *Deployment, tag string, rows int) {
	t.Helper()
	if _, err := d.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, n := range d.Nodes() {
		if n.Processes[componentMysqld]+n.Processes[componentMariadbd] == 0 {
			continue
		}
		if got := count(t, d, n.Name, tag); got != rows {
			t.Errorf("node %s has %d rows of %s, want %d", n.Name, got, tag, rows)
		}
	}
}

func count(t *testing.T, d *Deployment, node, tag string) (rows int) {
	t.Helper()
	db, err := d.Admin(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+Database+".t WHERE id LIKE ?", tag+"%").Scan(&rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

// envLong is the environment variable with which tests also do what takes a minute or more, such as a group that must
// find out that a member has died.
const envLong = "QUORATE_LAB_LONG"

// TestSystems deploys every system and goes through what a Deployment offers.
func TestSystems(t *testing.T) {
	t.Parallel()
	templates := shortDir(t)
	for _, tc := range []struct {
		o    Options
		then []func(*testing.T, *Deployment)
		long []func(*testing.T, *Deployment) // with envLong
	}{
		{o: Options{System: Standalone}, then: steps(killAll)},
		{o: Options{System: Async, Workers: 1}, then: steps(holdApply, killReplica, failOver)},
		{o: Options{System: SemiSync}, then: steps(holdApply, killReplica, failOver, stopInOrder)},
		{o: Options{System: Quorate}, then: steps(holdApply, killReplica, killPrimary, killAll)},
		{o: Options{System: Galera, Writers: WritersAll}, then: steps(holdApply, killReplica, killAll)},
		{o: Options{System: MGR, PaxosSingleLeader: true}, then: steps(holdApply, freeze), long: steps(killAll)},
		{o: Options{System: Router}, long: steps(killPrimary)},
		{o: Options{System: MGRAfter}, long: steps(killReplica)},
		{o: Options{System: MGRMulti, Compress: true}},
	} {
		t.Run(tc.o.System, func(t *testing.T) {
			tc.o.Templates = templates
			d := deploy(t, tc.o)
			writeEverywhere(t, d, "first")
			judgePrimary(t, d)
			judgeUsage(t, d)
			if os.Getenv(envLong) != "" {
				tc.then = append(tc.then, tc.long...)
			}
			for _, then := range tc.then {
				then(t, d)
			}
		})
	}
}

func steps(all ...func(*testing.T, *Deployment)) []func(*testing.T, *Deployment) { return all }

func judgePrimary(t *testing.T, d *Deployment) {
	t.Helper()
	primary, err := d.Primary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := "a"
	if d.opts.Writers == WritersAll {
		want = ""
	}
	if primary != want {
		t.Errorf("primary is %q, want %q", primary, want)
	}
	if len(d.Endpoints()) == 0 {
		t.Error("no endpoints")
	}
	facts := d.Facts()
	if len(facts.Versions) == 0 || len(facts.Settings) == 0 {
		t.Errorf("facts are empty: %+v", facts)
	}
	for _, s := range facts.Settings {
		if s.Why == "" {
			t.Errorf("setting %s has no reason", s.Name)
		}
	}
}

func judgeUsage(t *testing.T, d *Deployment) {
	t.Helper()
	waits, err := d.Waits()
	if err != nil {
		t.Fatal(err)
	}
	threads := map[Part]int64{}
	for thread, n := range waits {
		threads[thread.Part] += n
	}
	for _, n := range d.Nodes() {
		for component := range n.Processes {
			if threads[Part{n.Name, component}] <= 0 {
				t.Errorf("%s of node %s has never waited", component, n.Name)
			}
		}
	}
	counts, err := d.Counts(t.Context())
	if counted := d.opts.System == Quorate; counted && (err != nil || counts.Messages <= 0) || !counted && !errors.Is(err, ErrNotCounted) {
		t.Errorf("%+v, %v", counts, err)
	} else if counted {
		for _, stage := range result.Stages() {
			if counts.Stages[stage].Count == 0 {
				t.Errorf("there is no histogram of %s", stage)
			}
		}
	}
	all, err := d.CPU()
	if err != nil {
		t.Fatal(err)
	}
	cpu := map[string]time.Duration{}
	for part, used := range all {
		cpu[part.Component] += used
	}
	want := componentMysqld
	if d.opts.System == Galera {
		want = componentMariadbd
	}
	if cpu[want] <= 0 {
		t.Errorf("CPU %v has nothing of %s", cpu, want)
	}
	if d.opts.System == Quorate && cpu[componentAgent] <= 0 {
		t.Errorf("CPU %v has nothing of agents", cpu)
	}
	if d.opts.System == Router && cpu[componentRouter] <= 0 {
		t.Errorf("CPU %v has nothing of the router", cpu)
	}
}

// holdApply stops a replica's appliers and writes. The lag must be seen, and be gone after the
// appliers were started again.
func holdApply(t *testing.T, d *Deployment) {
	const node, rows = "b", 20
	ctx := t.Context()
	writers, err := d.Writers(ctx)
	if err != nil || len(writers) == 0 {
		t.Fatalf("writers: %v, %v", writers, err)
	}
	if err := d.StopApply(ctx, node); err != nil {
		t.Fatal(err)
	}
	db := open(t, d, writers[0])
	for i := range rows {
		mustExec(t, db, "INSERT INTO t VALUES (?)", fmt.Sprint("held", i))
	}
	lags, err := d.Lag(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if lags[node].Transactions < rows-5 || lags["a"].Transactions != 0 {
		t.Errorf("lag is %v, want about %d on node %s and none on a", lags, rows, node)
	}
	if err := d.StartApply(ctx, node); err != nil {
		t.Fatal(err)
	}
	wantRows(t, d, "held", rows)
	if lags, err = d.Lag(ctx); err != nil || lags[node].Transactions != 0 {
		t.Errorf("after it caught up the lag is %v, %v", lags, err)
	}
}

// kill kills a node. Its processes must be gone, and its CPU time must still be counted.
func kill(t *testing.T, d *Deployment, node string) {
	t.Helper()
	before, err := d.CPU()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Kill(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	for _, n := range d.Nodes() {
		if n.Name == node && len(n.Processes) > 0 {
			t.Fatalf("node %s was killed and has %v", node, n.Processes)
		}
	}
	after, err := d.CPU()
	if err != nil {
		t.Fatal(err)
	}
	for part, used := range before {
		if after[part] < used {
			t.Errorf("CPU of %v went from %v to %v", part, used, after[part])
		}
	}
}

// restart starts nodes again, and waits until the system is whole.
func restart(t *testing.T, d *Deployment, nodes ...string) {
	t.Helper()
	began := time.Now()
	for _, node := range nodes {
		if err := d.Restart(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %v back after %.1f s", d.opts.System, nodes, time.Since(began).Seconds())
}

// killReplica kills b and writes. Once b is back it must have the row.
func killReplica(t *testing.T, d *Deployment) {
	t.Helper()
	kill(t, d, "b")
	writeOne(t, d, "without-b")
	restart(t, d, "b")
	wantRows(t, d, "without-b", 1)
}

// killPrimary kills a. The system must go on by itself.
func killPrimary(t *testing.T, d *Deployment) {
	t.Helper()
	began := time.Now()
	kill(t, d, "a")
	writeOne(t, d, "without-a")
	t.Logf("%s: written without a %.1f s after its death", d.opts.System, time.Since(began).Seconds())
	if steps, err := d.Failover(t.Context(), "a"); err != nil || len(steps) > 0 {
		t.Errorf("failover by hand: %v, %v", steps, err)
	}
	restart(t, d, "a")
	wantRows(t, d, "without-a", 1)
}

// failOver kills the source, and the script promotes another server. The old source comes back
// as a replica.
func failOver(t *testing.T, d *Deployment) {
	t.Helper()
	kill(t, d, "a")
	if primary, err := d.Primary(t.Context()); err != nil || primary != "" {
		t.Errorf("primary is %q, %v after its death", primary, err)
	}
	steps, err := d.Failover(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: failover in %d steps: %q", d.opts.System, len(steps), steps)
	writeOne(t, d, "promoted")
	restart(t, d, "a")
	wantRows(t, d, "promoted", 1)
	if primary, err := d.Primary(t.Context()); err != nil || primary == "a" || primary == "" {
		t.Errorf("primary is %q, %v after the failover", primary, err)
	}
}

// TestVariants deploys the variants that TestSystems does not.
func TestVariants(t *testing.T) {
	t.Parallel()
	t.Run("quorate", func(t *testing.T) {
		d := deploy(t, Options{System: Quorate, Loggers: 1, Learners: 1, Compress: true, Workers: 1})
		writeEverywhere(t, d, "first")
		var kinds []string
		for _, n := range d.Nodes() {
			kinds = append(kinds, n.Name+" "+n.Kind)
		}
		if diff := cmp.Diff([]string{"a full", "b full", "c logger", "d learner"}, kinds); diff != "" {
			t.Errorf("nodes (-want +got):\n%s", diff)
		}
		if db, err := d.Admin(t.Context(), "c"); err == nil {
			t.Errorf("the logger has a server: %v", db)
		}
	})
	t.Run("semisync", func(t *testing.T) {
		// A source that waits for two replicas does not acknowledge with one.
		d := deploy(t, Options{System: SemiSync, Acks: 2, Compress: true})
		writeEverywhere(t, d, "first")
		kill(t, d, "b")
		writers, err := d.Writers(t.Context())
		if err != nil || len(writers) != 1 {
			t.Fatalf("writers: %v, %v", writers, err)
		}
		db := open(t, d, writers[0])
		waited := make(chan error, 1)
		go func() {
			_, err := db.ExecContext(t.Context(), "INSERT INTO t VALUES ('two')")
			waited <- err
		}()
		root, err := d.Admin(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		const waiters = "SELECT COUNT(*) FROM performance_schema.processlist WHERE STATE LIKE 'Waiting for semi-sync ACK%'"
		err = poll(t.Context(), "the write waits", func(ctx context.Context) error {
			var n int
			if err := root.QueryRowContext(ctx, waiters).Scan(&n); err != nil || n == 0 {
				return errors.Join(err, errors.New("nobody waits"))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		restart(t, d, "b")
		if err := <-waited; err != nil {
			t.Errorf("the write failed: %v", err)
		}
		wantRows(t, d, "two", 1)
	})
}

// TestCities: writes move to the other city by a switchover. If the primary's city is gone for good, they go on there
// after an operator's steps.
func TestCities(t *testing.T) {
	t.Parallel()
	templates := shortDir(t)
	for name, o := range map[string]Options{"site-majority": {Durability: siteMajority}, "sites": {Sites: 2}} {
		t.Run(name, func(t *testing.T) {
			o.System, o.Templates = Quorate, templates
			d := deploy(t, o)
			writeEverywhere(t, d, "first")
			for _, node := range d.City("a") {
				kill(t, d, node)
			}
			steps, err := d.Failover(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("steps: %q", steps)
			if want := map[string]int{"site-majority": 3, "sites": 1}[name]; len(steps) != want {
				t.Errorf("%d steps, want %d", len(steps), want)
			}
			writeOne(t, d, "second")
			wantRows(t, d, "first", 3)
			wantRows(t, d, "second", 1)
			if primary, err := d.Primary(t.Context()); err != nil || cityOf(primary) != west {
				t.Errorf("the primary is %q, %v", primary, err)
			}
		})
		t.Run(name+" in order", func(t *testing.T) {
			o.System, o.Templates = Quorate, templates
			d := deploy(t, o)
			writeEverywhere(t, d, "first")
			if err := d.Switchover(t.Context(), true); err != nil {
				t.Fatal(err)
			}
			if err := d.WaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
			writeEverywhere(t, d, "second")
			wantRows(t, d, "first", 3)
			if primary, err := d.Primary(t.Context()); err != nil || cityOf(primary) != west {
				t.Errorf("the primary is %q, %v", primary, err)
			}
		})
	}
}

// freeze stops b for a moment.
func freeze(t *testing.T, d *Deployment) {
	t.Helper()
	if err := d.Freeze("b"); err != nil {
		t.Fatal(err)
	}
	if err := d.Thaw("b"); err != nil {
		t.Fatal(err)
	}
	if err := d.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// stopInOrder stops a replica as its service manager would, and starts it again.
func stopInOrder(t *testing.T, d *Deployment) {
	t.Helper()
	if err := d.Stop(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	restart(t, d, "c")
}

// killAll kills every node. Once the system was started again and has recovered, everything that was
// acknowledged must be there.
func killAll(t *testing.T, d *Deployment) {
	t.Helper()
	writeOne(t, d, "before-outage")
	var nodes []string
	for _, n := range d.Nodes() {
		nodes = append(nodes, n.Name)
		kill(t, d, n.Name)
	}
	began := time.Now()
	starting, ctx := errgroup.WithContext(t.Context())
	for _, node := range nodes {
		starting.Go(func() error { return d.Restart(ctx, node) })
	}
	if err := starting.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %v take connections after %.1f s", d.opts.System, nodes, time.Since(began).Seconds())
	steps, err := d.Recover(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: whole after %.1f s with %d steps: %q", d.opts.System, time.Since(began).Seconds(), len(steps), steps)
	wantRows(t, d, "before-outage", 1)
	writeEverywhere(t, d, "after-outage")
}

// writeOne writes a row through whichever endpoint takes it.
func writeOne(t *testing.T, d *Deployment, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := poll(ctx, "a row is written", func(ctx context.Context) error {
		var errs []error
		for _, e := range d.Endpoints() {
			db := open(t, d, e)
			try, cancel := context.WithTimeout(ctx, 20*time.Second)
			_, err := db.ExecContext(try, "INSERT IGNORE INTO t VALUES (?)", id)
			cancel()
			if err == nil {
				return nil
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	if err != nil {
		t.Fatal(err)
	}
}
