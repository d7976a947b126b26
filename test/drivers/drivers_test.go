package drivers

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/mysql/mysqld/mysqldtest"
	"github.com/quorate/quorate/internal/testkit/devcluster"
	"github.com/quorate/quorate/internal/testkit/mysqlrouter"
)

// driversVariable names the directory with the drivers.
const driversVariable = "QUORATE_DRIVERS"

// suiteTimeout bounds a driver's suite.
const suiteTimeout = 5 * time.Minute

// TestDrivers runs each driver's suite against one cluster.
func TestDrivers(t *testing.T) {
	dir := os.Getenv(driversVariable)
	if dir == "" {
		t.Skip(driversVariable + " is not set: run make drivers")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t)
	own := way{write: addresses(c.Len(), c.RouterAddr), read: addresses(c.Len(), c.ReadAddr)}
	t.Run("quorate", func(t *testing.T) {
		t.Run("upstream", func(t *testing.T) { c.upstream(t, dir, "6446", own) })
		c.suites(t, dir, own)
	})
	t.Run("MySQLRouter", func(t *testing.T) {
		by := c.mysqlRouter(t)
		t.Run("upstream", func(t *testing.T) { c.upstream(t, dir, "split", by) })
		c.suites(t, dir, by)
	})
}

// way is how applications come to the cluster.
type way struct {
	// write and read are the ports' addresses, with commas.
	write, read string
	// split: the port to write at is MySQL Router's that splits reads from writes. Clients use TLS, without which it does not, and
	// give up a connection soon, as it may hold one for ever.
	split bool
}

// suites runs each driver's suite.
func (c *testCluster) suites(t *testing.T, dir string, by way) {
	t.Run("go-sql-driver", func(t *testing.T) { c.serves(t, by); c.report(t, c.goSuite(t, by)) })
	for _, s := range []struct {
		name string
		args []string
	}{
		{"PyMySQL", []string{filepath.Join(dir, "python/bin/python"), "suite.py"}},
		{"mysql2", []string{"node", "suite.mjs"}},
		{"Connector-J", []string{"java", "-cp", filepath.Join(dir, "java", "*"), "Suite.java"}},
	} {
		t.Run(s.name, func(t *testing.T) { c.serves(t, by); c.report(t, c.suite(t, dir, by, s.args...)) })
	}
}

// mysqlRouter starts a stock MySQL Router beside the cluster.
func (c *testCluster) mysqlRouter(t *testing.T) way {
	t.Helper()
	program, err := mysqlrouter.Program()
	if err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	primary, err := c.WaitAllReady(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(ctx, c.binary, "cluster", "set", "--router", "on", "--config", c.ConfigPath(primary)).CombinedOutput(); err != nil {
		t.Fatalf("switch the router on: %v: %s", err, out)
	}
	local, err := c.LocalDSN(primary)
	if err != nil {
		t.Fatal(err)
	}
	const person, password = "routeradmin", "Aa1-for-the-test"
	if _, err := open(t, local).ExecContext(ctx, "CREATE USER "+person+"@'%' IDENTIFIED BY '"+password+"' DEFAULT ROLE quorate_dba"); err != nil {
		t.Fatal(err)
	}
	var r *mysqlrouter.Router
	if err := devcluster.Poll(ctx, "Router is bootstrapped", func(ctx context.Context) (bool, string, error) { // the metadata are written soon
		r, err = mysqlrouter.Bootstrap(ctx, mysqlrouter.Config{
			Program: program, Dir: filepath.Join(t.TempDir(), "router"), Against: c.MysqldAddr(primary), User: person, Password: password,
		})
		return err == nil, fmt.Sprint(err), nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("Router says: %s", r.Log())
		}
		_ = r.Stop()
	})
	return way{write: r.Split, read: r.RO, split: true}
}

// serves waits until each port serves: Router closes a port for some seconds once it has found no server for it.
func (c *testCluster) serves(t *testing.T, by way) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	user, password := c.Application()
	if err := devcluster.Poll(ctx, "all ports serve", func(ctx context.Context) (bool, string, error) {
		for addr := range strings.SplitSeq(by.write+","+by.read, ",") {
			if err := open(t, fmt.Sprintf("%s:%s@tcp(%s)/drivers?timeout=2s&tls=skip-verify", user, password, addr)).PingContext(ctx); err != nil {
				return false, err.Error(), nil
			}
		}
		return true, "", nil
	}); err != nil {
		t.Fatal(err)
	}
}

// testCluster is the cluster that the suites use, and break.
type testCluster struct {
	*devcluster.Cluster
	binary string
	mu     sync.Mutex // one thing is broken at a time
	// control is where suites ask for a switchover, or for the primary to be killed.
	control string
}

func newCluster(t *testing.T) *testCluster {
	t.Helper()
	dir, end, err := mysqldtest.OwnTempDir("qdrv-", "agent.log", "node.toml")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	c := &testCluster{binary: filepath.Join(dir, "quorate")}
	if out, err := exec.Command("go", "build", "-o", c.binary, "../../cmd/quorate").CombinedOutput(); err != nil {
		t.Fatalf("build quorate: %v: %s", err, out)
	}
	c.Cluster, err = devcluster.New(devcluster.Options{
		Dir: filepath.Join(dir, "c"), Nodes: 3, Binary: c.binary, Logger: slog.New(slog.DiscardHandler),
		Variables: map[string]string{"local_infile": "ON", "max_allowed_packet": "64M"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := c.StartAll(ctx); err != nil {
		t.Fatal(err)
	}
	primary, err := c.WaitAllReady(ctx)
	for _, database := range []string{"drivers", "drivers2"} { // PyMySQL's own tests take two
		if err == nil {
			err = c.CreateApplication(ctx, primary, database)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	db := open(t, c.DSN(primary)+"drivers?charset=utf8mb4")
	for _, stmt := range []string{
		"CREATE TABLE data (id INT PRIMARY KEY, text VARCHAR(200) CHARACTER SET utf8mb4 NOT NULL)",
		"INSERT INTO data VALUES (1, 'Zürich 日本 🐬')",
	} {
		if _, err := db.ExecContext(ctx, stmt); err != nil {
			t.Fatal(err)
		}
	}
	c.serve(t)
	return c
}

// serve answers the suites' requests.
func (c *testCluster) serve(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := c.act(t.Context(), strings.Trim(r.URL.Path, "/")); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})}
	c.control = "http://" + l.Addr().String()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
}

// act moves the primary in order, or kills it, and starts it again once there is another one.
func (c *testCluster) act(ctx context.Context, what string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	primary, err := c.WaitAllReady(ctx)
	if err != nil {
		return err
	}
	switch what {
	case "switchover":
		if out, err := exec.CommandContext(ctx, c.binary, "switchover", "--max-pause", "10s", "--config", c.ConfigPath(primary)).CombinedOutput(); err != nil {
			return fmt.Errorf("switchover: %w: %s", err, out)
		}
		return nil
	case "kill":
		if err := c.KillBoth(primary); err != nil {
			return err
		}
		if _, err := c.WaitPrimary(ctx, primary); err != nil {
			return err
		}
		return c.StartAll(ctx)
	}
	return fmt.Errorf("nobody knows what %q is", what)
}

// addresses are those of a port on all nodes.
func addresses(n int, of func(int) string) string {
	var all []string
	for i := range n {
		all = append(all, of(i))
	}
	return strings.Join(all, ",")
}

// result is what became of one case.
type result struct {
	name    string // "PORT CASE", or an upstream test's
	err     string // "" = it passed
	skipped bool   // by the upstream suite itself
}

// suite runs a program that prints a line for each case.
func (c *testCluster) suite(t *testing.T, drivers string, by way, args ...string) []result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suiteTimeout)
	defer cancel()
	user, password := c.Application()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "DRIVERS="+drivers, "CONTROL="+c.control, "DB_USER="+user, "DB_PASSWORD="+password,
		"WRITE="+by.write, "READ="+by.read)
	if by.split {
		cmd.Env = append(cmd.Env, "SPLIT=1")
	}
	var errors strings.Builder
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%v: %s", err, errors.String())
	}
	var all []result
	for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		switch word {
		case "ok":
			all = append(all, result{name: rest})
		case "FAIL":
			all = append(all, result{name: rest, err: rest})
		case "skip":
			all = append(all, result{name: rest, skipped: true})
		}
	}
	return all
}

// report says what became of a suite's cases.
func (c *testCluster) report(t *testing.T, all []result) {
	t.Helper()
	passed := 0
	for _, r := range all {
		if r.err != "" {
			t.Errorf("%s: %s", r.name, r.err)
			continue
		}
		passed++
	}
	t.Logf("%d of %d cases passed", passed, len(all))
	if len(all) < 20 {
		t.Errorf("the suite has ended early: %+v", all)
	}
}
