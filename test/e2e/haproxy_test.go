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

	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// haproxy runs packaging/haproxy.cfg in front of the cluster, and returns where it listens.
func (f *fixture) haproxy(t *testing.T, ctx context.Context) (write, read string) {
	t.Helper()
	program, err := exec.LookPath("haproxy")
	if err != nil {
		t.Skip("haproxy is not installed")
	}
	text, err := os.ReadFile("../../packaging/haproxy.cfg")
	if err != nil {
		t.Fatal(err)
	}
	host, _, err := net.SplitHostPort(f.RouterAddr(0))
	if err != nil {
		t.Fatal(err)
	}
	var free []string
	for range 2 {
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		free = append(free, l.Addr().String())
	}
	places := []string{"bind :3306", "bind " + free[0], "bind :3307", "bind " + free[1]}
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
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := devcluster.Poll(ctx, "haproxy listens", func(context.Context) (bool, string, error) {
		conn, err := net.Dial("tcp", free[1])
		if err != nil {
			return false, err.Error(), nil
		}
		return true, "", conn.Close()
	}); err != nil {
		t.Fatal(err)
	}
	return free[0], free[1]
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
	write, read := f.haproxy(t, ctx)
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
