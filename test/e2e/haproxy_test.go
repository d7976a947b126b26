package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/quorate/quorate/internal/sys/subprocess"
	"github.com/quorate/quorate/internal/testkit/devcluster"
	"github.com/quorate/quorate/internal/testkit/mysqlrouter"
)

// haproxyProgram finds HAProxy where make rivals puts it, then in PATH; "" = there is none.
func haproxyProgram() string {
	if program, err := mysqlrouter.Rival("haproxy", "haproxy"); err == nil {
		return program
	}
	program, err := exec.LookPath("haproxy")
	if err != nil {
		return ""
	}
	return program
}

// haproxy runs packaging/haproxy.cfg in front of the cluster, and returns where it listens: beside the nodes, or on a host
// of its own.
func (f *fixture) haproxy(t *testing.T, ctx context.Context, host *otherHost) (write, read string) {
	t.Helper()
	program := haproxyProgram()
	if program == "" {
		t.Skip("haproxy is not installed")
	}
	text, err := os.ReadFile("../../packaging/haproxy.cfg")
	if err != nil {
		t.Fatal(err)
	}
	write, read, start := applicationsAddress+":3306", applicationsAddress+":3307", host.start
	if host == nil {
		write, read, start = f.freeAddress(t), f.freeAddress(t), subprocess.Start
	}
	places := []string{"bind :3306", "bind " + write, "bind :3307", "bind " + read}
	for i := range f.Len() {
		_, api, err := net.SplitHostPort(f.APIAddr(i))
		if err != nil {
			t.Fatal(err)
		}
		node := fmt.Sprintf("10.0.0.%d", i+1)
		places = append(places, node+":6446 check port 7401", f.RouterAddr(i)+" check port "+api,
			node+":6447 check port 7401", f.ReadAddr(i)+" check port "+api)
	}
	cfg := filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(cfg, []byte(strings.NewReplacer(places...).Replace(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(ctx, program, "-c", "-f", cfg).CombinedOutput(); err != nil || strings.Contains(string(out), "WARNING") {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command(program, "-db", "-f", cfg)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	p, err := start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := devcluster.Poll(ctx, "haproxy listens", func(context.Context) (bool, string, error) {
		conn, err := net.Dial("tcp", read)
		if err != nil {
			return false, err.Error(), nil
		}
		return true, "", conn.Close()
	}); err != nil {
		t.Fatal(err)
	}
	return write, read
}

// freeAddress is one of the nodes' host where nobody listens.
func (f *fixture) freeAddress(t *testing.T) string {
	t.Helper()
	host, _, err := net.SplitHostPort(f.RouterAddr(0))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// through is node 0's DSN with another address.
func (f *fixture) through(t *testing.T, addr string) string {
	t.Helper()
	cfg, err := mysql.ParseDSN(f.DSN(0))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Addr = addr
	return cfg.FormatDSN()
}

// TestHAProxy: with the file in packaging/, writes go on over switchovers, a killed and a frozen primary, and reads
// go to replicas alone.
func TestHAProxy(t *testing.T) {
	t.Parallel()
	f := newFixture(t, devcluster.Options{Nodes: 3})
	ctx := scenarioContext(t)
	write, read := f.haproxy(t, ctx, nil)
	primary := f.heal(t, ctx)
	l := f.startAt(t, 4, f.through(t, write))
	l.awaitAcks(t, ctx, 20)
	db := openDSN(t, f.through(t, read), nil)
	db.SetMaxIdleConns(0)
	reads := func(want int) {
		t.Helper()
		if err := devcluster.Poll(ctx, fmt.Sprintf("%d replicas are read", want), func(ctx context.Context) (bool, string, error) {
			seen := map[int]bool{}
			for range 4 {
				var port int
				var readOnly bool
				if err := db.QueryRowContext(ctx, "SELECT @@port, @@super_read_only").Scan(&port, &readOnly); err != nil {
					return false, err.Error(), nil
				}
				if !readOnly {
					t.Error("the primary is read")
				}
				seen[port] = true
			}
			return len(seen) == want, fmt.Sprint(seen), nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	reads(2)
	next := (primary + 1) % 3
	f.must(t, ctx, primary, "switchover", "--to", f.Name(next), "--max-pause", "10s")
	l.awaitAcks(t, ctx, 20)
	reads(2)
	for _, c := range []struct {
		what  string
		fails func(int) error
	}{{"killed", f.KillBoth}, {"frozen", f.PauseAgent}} {
		primary = f.heal(t, ctx)
		if err := c.fails(primary); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		l.awaitAcks(t, ctx, 1)
		first := time.Since(began)
		l.awaitAcks(t, ctx, 20)
		t.Logf("the primary is %s: the next OK came after %v", c.what, first.Round(time.Millisecond))
		reads(1)
		if c.what == "frozen" {
			f.resume(t, primary)
		}
	}
	l.stop(t)
	f.heal(t, ctx)
	f.check(t, ctx)
}
