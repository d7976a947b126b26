package e2e

import (
	"bufio"
	"context"
	"embed"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/testkit/devcluster"
	"github.com/quorate/quorate/internal/testkit/ledger"
)

// driversVariable names the directory that scripts/get-drivers.sh fills. Tests that need its programs are skipped
// without it: make drivers runs them.
const driversVariable = "QUORATE_DRIVERS"

//go:embed testdata/Debezium.java testdata/Canal.java
var javaPrograms embed.FS

// newCaptured returns a cluster whose writers pause, and the directory of the tools that read from it.
func newCaptured(t *testing.T, think time.Duration) (f *readersFixture, drivers string) {
	t.Helper()
	if drivers = os.Getenv(driversVariable); drivers == "" {
		t.Skip(driversVariable + " is not set: run make drivers")
	}
	beside(t)
	f = newReadersFixture(t)
	f.think = think
	return f, drivers
}

// TestDebezium: Debezium takes its snapshot at a replica while writers write, and streams from there while the primary is killed with its agent,
// while the table gets a column, and while the node that it reads from is killed. It has each row once, in order.
func TestDebezium(t *testing.T) {
	f, drivers := newCaptured(t, busy)
	ctx := scenarioContext(t)
	primary := f.heal(t, ctx)
	f.toolAccount(t, ctx, primary)
	l := f.start(t, 4)
	l.awaitAcks(t, ctx, 300)
	at := next(primary)
	d := f.java(t, filepath.Join(drivers, "debezium"), "Debezium", t.TempDir(), ledger.Table, "tool", readerPassword,
		balance(t, f.addrs[at], f.addrs[next(at)], f.addrs[primary]))
	d.streams(t, ctx)
	if err := f.KillBoth(primary); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WaitPrimary(ctx, primary); err != nil {
		t.Fatal(err)
	}
	l.awaitAcks(t, ctx, 100)
	execAll(t, ctx, f.local(t, f.heal(t, ctx)), "ALTER TABLE "+ledger.Table+" ADD COLUMN more INT")
	l.awaitAcks(t, ctx, 100)
	if err := f.KillBoth(at); err != nil {
		t.Fatal(err)
	}
	l.awaitAcks(t, ctx, 100)
	l.stop(t)
	now := f.heal(t, ctx)
	f.check(t, ctx)
	d.finish(t, ctx, f.ledgerIDs(t, ctx, now))
}

// TestCanal: Canal follows a replica by GTID while writers write. The primary is killed with its agent, and so is the
// node from which Canal reads. It has each row once, in order.
func TestCanal(t *testing.T) {
	f, drivers := newCaptured(t, busy)
	ctx := scenarioContext(t)
	primary := f.heal(t, ctx)
	f.toolAccount(t, ctx, primary)
	var from string
	if err := f.local(t, primary).QueryRowContext(ctx, "SELECT REPLACE(@@gtid_executed, '\n', '')").Scan(&from); err != nil {
		t.Fatal(err)
	}
	l := f.start(t, 4)
	l.awaitAcks(t, ctx, 100)
	at := next(primary)
	c := f.java(t, filepath.Join(drivers, "canal"), "Canal", from, ledger.Table, "tool", readerPassword,
		balance(t, f.addrs[at], f.addrs[next(at)], f.addrs[primary]))
	c.streams(t, ctx)
	if err := f.KillBoth(primary); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WaitPrimary(ctx, primary); err != nil {
		t.Fatal(err)
	}
	l.awaitAcks(t, ctx, 100)
	f.heal(t, ctx)
	if err := f.KillBoth(at); err != nil {
		t.Fatal(err)
	}
	l.awaitAcks(t, ctx, 100)
	l.stop(t)
	now := f.heal(t, ctx)
	f.check(t, ctx)
	c.finish(t, ctx, f.ledgerIDs(t, ctx, now))
}

// balance is a load balancer: a connection goes to the first of the addresses that accepts it.
func balance(t *testing.T, addrs ...string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer client.Close()
				for _, addr := range addrs {
					if server, err := net.Dial("tcp", addr); err == nil {
						go func() { _, _ = io.Copy(server, client); _ = server.Close() }()
						_, _ = io.Copy(client, server)
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// javaTool is a program in testdata that prints the changes that it receives.
type javaTool struct {
	changes
	cmd   *exec.Cmd
	input io.Closer
	read  chan struct{} // its output has ended
}

// java starts a program with the jars of a directory.
func (f *readersFixture) java(t *testing.T, jars, name string, args ...string) *javaTool {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, name+".java")
	text, err := javaPrograms.ReadFile("testdata/" + name + ".java")
	if err == nil {
		err = os.WriteFile(program, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	d := &javaTool{changes: changes{name: name}, read: make(chan struct{})}
	d.cmd = exec.Command("java", append([]string{"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", filepath.Join(jars, "*"), program}, args...)...)
	d.cmd.Dir = dir
	errs, err := os.Create(filepath.Join(dir, "errors"))
	if err != nil {
		t.Fatal(err)
	}
	d.cmd.Stderr = errs
	input, err := d.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := d.cmd.StdoutPipe()
	if err == nil {
		err = d.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	d.input = input
	go func() { defer close(d.read); d.take(t, output) }()
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill() // if it has not ended
		<-d.read
		_ = d.cmd.Wait()
		_ = errs.Close()
		if text, err := os.ReadFile(errs.Name()); t.Failed() && err == nil {
			t.Logf("%s says: %s", name, text[max(0, len(text)-30000):])
		}
	})
	return d
}

// take reads the program's output: "run", "ended …", and "op key gtid" for each change. op r is a row of the snapshot.
func (d *javaTool) take(t *testing.T, output io.Reader) {
	for lines := bufio.NewScanner(output); lines.Scan(); {
		what, rest, _ := strings.Cut(lines.Text(), " ")
		d.mu.Lock()
		var id int64
		switch _, err := fmt.Sscan(rest, &id); {
		case what == "run":
			d.runs++
		case what == "ended" || what == "end":
			t.Logf("%s: %s", d.name, lines.Text())
		case err == nil && what == "r":
			d.first++
			d.rows = append(d.rows, id)
		case err == nil && what == "c":
			d.rows = append(d.rows, id)
		default:
			t.Errorf("%s: %q", d.name, lines.Text())
		}
		d.mu.Unlock()
	}
}

// streams waits until the program has rows that are not from the snapshot.
func (d *javaTool) streams(t *testing.T, ctx context.Context) {
	t.Helper()
	if err := devcluster.Poll(ctx, d.name+" streams", func(context.Context) (bool, string, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.rows) > d.first, fmt.Sprintf("%d rows in %d runs", len(d.rows), d.runs), nil
	}); err != nil {
		t.Fatal(err)
	}
}

func (d *javaTool) finish(t *testing.T, ctx context.Context, want []int64) {
	t.Helper()
	if err := d.await(ctx, len(want)); err != nil {
		t.Error(err)
	}
	if err := d.input.Close(); err != nil {
		t.Error(err)
	}
	<-d.read
	d.check(t, want)
}
