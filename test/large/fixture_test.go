//go:build large

package large

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// binaryVariable tells the tests where TestMain has put the program.
const binaryVariable = "QUORATE_LARGE_BINARY"

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

// buildAndRun builds the program once for all cases.
func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "qlarge-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "quorate")
	build := exec.Command("go", "build", "-o", binary, "../../cmd/quorate")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := errors.Join(build.Run(), os.Setenv(binaryVariable, binary)); err != nil {
		fmt.Fprintln(os.Stderr, "build quorate:", err)
		return 1
	}
	return m.Run()
}

// fixture is one case's cluster.
type fixture struct{ *devcluster.Cluster }

// newDir makes a directory for a test's files.
func newDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(os.Getenv("QUORATE_LARGE_DIR"), "qlarge-")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// newCluster makes a cluster that has not begun.
func newCluster(t *testing.T, dir string, nodes int) *fixture {
	t.Helper()
	c, err := devcluster.New(devcluster.Options{
		Binary: os.Getenv(binaryVariable), Dir: dir, Nodes: nodes, MySQLBase: mysqlBase(t),
		AgentEnv: []string{memoryLimit}, Logger: slog.New(slog.DiscardHandler),
		// So that it is not InnoDB's checkpoints that are measured.
		Variables: map[string]string{"innodb_buffer_pool_size": "512M", "innodb_redo_log_capacity": "1G"},
	})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{c}
	t.Cleanup(func() { f.close(t) })
	return f
}

// newFixture starts a cluster with empty tables in it.
func newFixture(t *testing.T, ctx context.Context) *fixture {
	t.Helper()
	f := newCluster(t, newDir(t), 3)
	if err := f.StartAll(ctx); err != nil {
		t.Fatal(err)
	}
	db := f.local(t, f.ready(t, ctx))
	for _, q := range []string{
		"CREATE DATABASE quorate_large",
		"CREATE TABLE quorate_large.t (id INT PRIMARY KEY, b LONGBLOB)",
		"CREATE TABLE quorate_large.ordinary (id INT AUTO_INCREMENT PRIMARY KEY, b LONGBLOB)",
		"CREATE TABLE quorate_large.small (id INT AUTO_INCREMENT PRIMARY KEY)",
	} {
		if _, err := db.ExecContext(ctx, q); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func mysqlBase(t *testing.T) string {
	t.Helper()
	if base := os.Getenv("QUORATE_MYSQL_BASE"); base != "" {
		return base
	}
	base, err := filepath.Abs("../../.mysql")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(base); err != nil {
		t.Fatal("no MySQL in .mysql and QUORATE_MYSQL_BASE is not set: run make mysql")
	}
	return base
}

// close stops the cluster and removes its files; of a failed case the agents'
// logs stay.
func (f *fixture) close(t *testing.T) {
	if !t.Failed() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		return
	}
	if err := f.Stop(); err != nil {
		t.Error(err)
		return // a process may still write there
	}
	for i := range f.Len() {
		if err := os.RemoveAll(f.DataDir(i)); err != nil {
			t.Error(err)
		}
	}
	t.Logf("the agents' logs are in %s", f.Dir())
}

// ready waits until all nodes are, and returns the primary.
func (f *fixture) ready(t *testing.T, ctx context.Context) int {
	t.Helper()
	primary, err := f.WaitAllReady(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return primary
}

// local opens node i's mysqld as the operator, admin as the agent itself.
func (f *fixture) local(t *testing.T, i int) *sql.DB {
	t.Helper()
	dsn, err := f.LocalDSN(i)
	return open(t, dsn, err)
}

func (f *fixture) admin(t *testing.T, i int) *sql.DB {
	t.Helper()
	dsn, err := f.AdminDSN(i)
	return open(t, dsn, err)
}

func open(t *testing.T, dsn string, err error) *sql.DB {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// term returns Raft's term, as node i's agent says.
func (f *fixture) term(t *testing.T, ctx context.Context, i int) uint64 {
	t.Helper()
	st, err := f.NodeStatus(ctx, i)
	if err != nil {
		t.Fatal(err)
	}
	return st.Term
}

// elections counts how often the agents said that Raft's term or leader changed.
func (f *fixture) elections(t *testing.T) (n int) {
	t.Helper()
	for i := range f.Len() {
		text, err := os.ReadFile(f.Logs(i))
		if err != nil {
			t.Fatal(err)
		}
		n += bytes.Count(text, []byte(" msg=raft "))
	}
	return n
}

// awaitEverywhere waits until every mysqld has what is committed now.
func (f *fixture) awaitEverywhere(t *testing.T, ctx context.Context, primary int) {
	t.Helper()
	st, err := f.NodeStatus(ctx, primary)
	if err != nil {
		t.Fatal(err)
	}
	for i := range f.Len() {
		if err := f.WaitCaughtUp(ctx, i, st.LogCommit); err != nil {
			t.Fatal(err)
		}
	}
}

// sameRows compares the rows of all nodes with each other and with what was
// written.
func (f *fixture) sameRows(t *testing.T, ctx context.Context, bytes int64) {
	t.Helper()
	var first string
	for i := range f.Len() {
		var found int64
		var sum string
		if err := f.local(t, i).QueryRowContext(ctx,
			"SELECT SUM(LENGTH(b)), CONCAT(COUNT(*), ' rows ', SUM(LENGTH(b)), ' bytes ', BIT_XOR(CRC32(b) ^ id)) FROM quorate_large.t").
			Scan(&found, &sum); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = sum
			t.Log(sum)
		}
		if found != bytes || sum != first {
			t.Errorf("node %s has %s, node %s %s, written were %d bytes", f.Name(i), sum, f.Name(0), first, bytes)
		}
	}
}

// noStagesLeft waits until no node has a stage beside its log.
func (f *fixture) noStagesLeft(t *testing.T, ctx context.Context) {
	t.Helper()
	if err := devcluster.Poll(ctx, "stages are in the log, or gone", func(context.Context) (bool, string, error) {
		for i := range f.Len() {
			if found, err := filepath.Glob(f.DataDir(i) + "/log/stage.*"); err != nil || len(found) > 0 {
				return false, strings.Join(found, " "), err
			}
		}
		return true, "", nil
	}); err != nil {
		t.Fatal(err)
	}
}

// peakBytes returns the highest resident memory that node i's agent had.
func (f *fixture) peakBytes(t *testing.T, i int) int64 {
	t.Helper()
	n, err := residentPeak(f.AgentPID(i))
	if err != nil {
		t.Fatalf("node %s's agent: %v", f.Name(i), err)
	}
	return n
}

// residentPeak returns the highest resident memory that a process had, in bytes.
func residentPeak(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[0] == "VmHWM:" && fields[2] == "kB" {
			n, err := strconv.ParseInt(fields[1], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("the kernel does not say what it had in memory: %s", text)
}

// smallWriter commits one row at a time.
type smallWriter struct {
	cancel  context.CancelFunc
	ended   chan error
	longest time.Duration // its goroutine's, until ended
}

func (f *fixture) startSmall(t *testing.T, ctx context.Context, primary int) *smallWriter {
	t.Helper()
	db := f.local(t, primary)
	running, cancel := context.WithCancel(ctx)
	w := &smallWriter{cancel: cancel, ended: make(chan error, 1)}
	go func() {
		var err error
		for running.Err() == nil && err == nil {
			began := time.Now()
			_, err = db.ExecContext(ctx, "INSERT INTO quorate_large.small VALUES ()")
			w.longest = max(w.longest, time.Since(began))
		}
		w.ended <- err
	}()
	t.Cleanup(cancel)
	return w
}

// stop ends the writer after the commit under way, and returns its longest one.
func (w *smallWriter) stop(t *testing.T) time.Duration {
	t.Helper()
	w.cancel()
	if err := <-w.ended; err != nil {
		t.Errorf("small commit beside the large one: %v", err)
	}
	return w.longest
}
