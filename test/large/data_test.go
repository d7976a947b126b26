//go:build large

package large

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/mysql/mysqld/mysqldtest"
)

const (
	// dataGiBDefault is how much data there is, if QUORATE_LARGE_GIB does not say it.
	dataGiBDefault = 20
	// commandBytesMax is what a command may have in memory at any time, without a limit of Go's.
	commandBytesMax = 128 << 20
	// dataTimeout bounds TestData, for each GiB.
	dataTimeout = 6 * time.Minute
)

// stages is what TestData prints.
type stages struct {
	*tabwriter.Writer
	text bytes.Buffer
	gib  int
}

// add writes down a stage; peaks in bytes, 0 = none.
func (s *stages) add(t *testing.T, name string, took time.Duration, command, agent int64) {
	t.Helper()
	mib := func(n int64) string {
		if n == 0 {
			return "-"
		}
		return strconv.FormatInt(n>>20, 10)
	}
	fmt.Fprintf(s, "%s\t%.1f s\t%.2f s\t%s\t%s\t\n", name, took.Seconds(), took.Seconds()/float64(s.gib), mib(command), mib(agent))
	t.Logf("%s: %.1f s", name, took.Seconds())
	if command > commandBytesMax || agent > residentBytesMax {
		t.Errorf("%s: the command had %d MiB in memory, the agent %d MiB, at most %d and %d are allowed", name, command>>20, agent>>20, commandBytesMax>>20, residentBytesMax>>20)
	}
}

// TestData adopts a server with much data in place, takes a full backup of it beside a writer, and restores that as another
// cluster. Each stage's data are removed once the next one does not need them: at most 2.7 times the data are there.
func TestData(t *testing.T) {
	gib := dataGiBDefault
	if text := os.Getenv("QUORATE_LARGE_GIB"); text != "" {
		var err error
		if gib, err = strconv.Atoi(text); err != nil || gib < 1 {
			t.Fatalf("QUORATE_LARGE_GIB is %q, and must be a number of GiB", text)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(gib)*dataTimeout)
	defer cancel()
	dir := newDir(t)
	server, repo := filepath.Join(dir, "s"), filepath.Join(dir, "repo")
	t.Cleanup(func() {
		for _, d := range []string{server, repo} {
			_ = os.RemoveAll(d)
		}
		if !t.Failed() {
			_ = os.RemoveAll(dir)
		}
	})
	s := &stages{gib: gib}
	s.Writer = tabwriter.NewWriter(&s.text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(s, "stage\ttook\tper GiB\tcommand's peak MiB\tagent's peak MiB\t")
	p, sum := fillServer(t, ctx, server, gib)
	f := newCluster(t, filepath.Join(dir, "c"), 1)
	f.adopt(t, ctx, s, p)
	f.holds(t, ctx, 1, sum) // all of them once they are restored
	f.backup(t, ctx, s, repo)
	f.close(t)
	r := newCluster(t, filepath.Join(dir, "r"), 1)
	r.restore(t, ctx, s, repo)
	began := time.Now()
	r.holds(t, ctx, gib, sum)
	s.add(t, "all rows read", time.Since(began), 0, r.peakBytes(t, 0))
	r.close(t)
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d GiB\n%s", gib, s.text.String())
}

// fillServer makes a server that is shut down, with a table of random rows for each GiB, and returns the sum of one of
// them. They compress to a half. They have the same rows, too far from each other for a compression to notice.
func fillServer(t *testing.T, ctx context.Context, dir string, gib int) (p *mysqldtest.Plain, sum string) {
	t.Helper()
	in, err := install.Discover(mysqlBase(t))
	if err != nil {
		t.Fatal(err)
	}
	if p, err = mysqldtest.NewPlain(in, dir, "innodb_redo_log_capacity=1G", "innodb_buffer_pool_size=512M"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	if err := p.Start(ctx); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	db := open(t, p.DSN(), nil)
	db.SetMaxOpenConns(1) // one session
	statements := []string{"CREATE DATABASE quorate_large", "CREATE TABLE quorate_large.small (id INT AUTO_INCREMENT PRIMARY KEY)",
		"SET sql_log_bin = 0", "ALTER INSTANCE DISABLE INNODB REDO_LOG"}
	for i := range gib {
		from := "(" + rows(1<<30) + ") AS r (id, b)"
		if i > 0 {
			from = "quorate_large.t0"
		}
		statements = append(statements, fmt.Sprintf("CREATE TABLE quorate_large.t%d (id INT PRIMARY KEY, b LONGBLOB)", i),
			fmt.Sprintf("INSERT INTO quorate_large.t%d SELECT id, b FROM %s", i, from))
	}
	for _, q := range append(statements, "ALTER INSTANCE ENABLE INNODB REDO_LOG") {
		if _, err := db.ExecContext(ctx, q); err != nil {
			t.Fatalf("%.60s: %v", q, err)
		}
	}
	if err := db.QueryRowContext(ctx, fmt.Sprintf(sumQuery, 0)).Scan(&sum); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d GiB were made in %.0f s: each table has %s", gib, time.Since(began).Seconds(), sum)
	return p, sum
}

const sumQuery = "SELECT CONCAT(COUNT(*), ' rows, ', SUM(LENGTH(b)), ' bytes ', BIT_XOR(CRC32(b) ^ id)) FROM quorate_large.t%d"

// holds wants the first tables to be as they were made.
func (f *fixture) holds(t *testing.T, ctx context.Context, tables int, sum string) {
	t.Helper()
	db := f.local(t, 0)
	for i := range tables {
		var got string
		if err := db.QueryRowContext(ctx, fmt.Sprintf(sumQuery, i)).Scan(&got); err != nil || got != sum {
			t.Errorf("table %d has %s (%v), want %s", i, got, err, sum)
		}
	}
}

// command runs the program, and returns how long it took and the most that it had in memory. That is looked at while it
// runs: what the kernel says at its end is the most of it and of the mysqld that it started.
func (f *fixture) command(t *testing.T, ctx context.Context, args ...string) (took time.Duration, peak int64) {
	t.Helper()
	cmd := exec.CommandContext(ctx, os.Getenv(binaryVariable), append(args, "--config", f.ConfigPath(0))...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if n, err := residentPeak(cmd.Process.Pid); err == nil { // it may just have ended
			peak = n
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("quorate %s: %v: %s", strings.Join(args, " "), err, &out)
			}
			if peak == 0 {
				t.Fatalf("quorate %s: nothing is known of its memory", strings.Join(args, " "))
			}
			return time.Since(began), peak
		case <-tick.C:
		}
	}
}

// begin starts the node, and returns how long it takes to the first row that is acknowledged.
func (f *fixture) begin(t *testing.T, ctx context.Context) time.Duration {
	t.Helper()
	began := time.Now()
	if err := f.StartAll(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := f.local(t, f.ready(t, ctx)).ExecContext(ctx, "INSERT INTO quorate_large.small VALUES ()"); err != nil {
		t.Fatal(err)
	}
	return time.Since(began)
}

func (f *fixture) adopt(t *testing.T, ctx context.Context, s *stages, p *mysqldtest.Plain) {
	t.Helper()
	took, peak := f.command(t, ctx, "adopt", p.Data())
	s.add(t, "adopt", took, peak, 0)
	took = f.begin(t, ctx)
	s.add(t, "start, to the first write", took, 0, f.peakBytes(t, 0))
}

// backup takes a full backup while rows are written, and the log behind it.
func (f *fixture) backup(t *testing.T, ctx context.Context, s *stages, repo string) {
	t.Helper()
	if err := os.Mkdir(repo, 0o700); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(f.ConfigPath(0))
	if err == nil {
		err = os.WriteFile(f.ConfigPath(0), fmt.Appendf(text, "[backup]\ndirectory = %q\n", repo), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	small := f.startSmall(t, ctx, 0)
	took, peak := f.command(t, ctx, "backup", "--new")
	t.Logf("the longest commit beside the backup took %.1f s", small.stop(t).Seconds())
	s.add(t, "backup", took, peak, f.peakBytes(t, 0))
	took, peak = f.command(t, ctx, "archive", "--once")
	s.add(t, "archive", took, peak, f.peakBytes(t, 0))
}

// restore makes the node of the newest backup, and of the log behind it: it has all the rows that were written beside it.
func (f *fixture) restore(t *testing.T, ctx context.Context, s *stages, repo string) {
	t.Helper()
	took, peak := f.command(t, ctx, "restore", "--latest", "--directory", repo)
	s.add(t, "restore", took, peak, 0)
	took = f.begin(t, ctx)
	s.add(t, "start, to the first write", took, 0, f.peakBytes(t, 0))
}
