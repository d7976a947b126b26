package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/quorate/quorate/internal/testkit/devcluster"
	"github.com/quorate/quorate/internal/testkit/ledger"
	"github.com/quorate/quorate/internal/testkit/mysqlrouter"
)

// sysbench runs sysbench with one table, again and again: what it is built with cannot connect a second time, so a run ends with the
// server that it was connected to.
type sysbench struct {
	program, addr, user, password string
	// whole and broken count the runs that have ended.
	whole, broken atomic.Int64
}

// sysbenchEvents is how many transactions a run has.
const sysbenchEvents = 100

func (s *sysbench) do(ctx context.Context, what string, more ...string) (out []byte, err error) {
	host, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		return nil, err
	}
	scripts := filepath.Join(filepath.Dir(filepath.Dir(s.program)), "usr/share/sysbench")
	cmd := exec.CommandContext(ctx, s.program, append([]string{
		filepath.Join(scripts, "oltp_read_write.lua"), "--db-driver=mysql", "--mysql-host=" + host, "--mysql-port=" + port, "--mysql-user=" + s.user,
		"--mysql-password=" + s.password, "--mysql-db=" + ledger.Database, "--tables=1", "--table-size=1000", "--auto_inc=off", what,
	}, more...)...)
	cmd.Dir = scripts // they look for each other there
	return cmd.CombinedOutput()
}

func (s *sysbench) run(ctx context.Context) {
	for ctx.Err() == nil {
		if _, err := s.do(ctx, "run", "--threads=4", fmt.Sprintf("--events=%d", sysbenchEvents), "--time=0"); err != nil {
			s.broken.Add(1)
		} else {
			s.whole.Add(1)
		}
	}
}

// goesOn waits until runs that have begun from now on are whole.
func (s *sysbench) goesOn(t *testing.T, ctx context.Context) {
	t.Helper()
	want := s.whole.Load() + 2
	if err := devcluster.Poll(ctx, "sysbench goes on at "+s.addr, func(context.Context) (bool, string, error) {
		return s.whole.Load() >= want, fmt.Sprintf("%d runs whole, %d broken", s.whole.Load(), s.broken.Load()), nil
	}); err != nil {
		t.Fatal(err)
	}
}

// sysbenchRouted: sysbench goes on at Router's port for writes and at quorate's own, beside clients that look for their own writes, across the
// kill of a primary and a switchover. All nodes have the same rows.
func (r *routed) sysbenchRouted(t *testing.T, ctx context.Context) {
	program, err := mysqlrouter.Rival("sysbench", "sysbench")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip(err)
	}
	primary := r.heal(t, ctx)
	user, password := r.Application()
	all := []*sysbench{
		{program: program, user: user, password: password, addr: r.router.RW},
		{program: program, user: user, password: password, addr: r.RouterAddr(next(primary))},
	}
	if out, err := all[0].do(ctx, "prepare"); err != nil {
		t.Fatalf("fill the table: %v: %s", err, out)
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan struct{}, len(all))
	for _, s := range all {
		go func() { s.run(running); ended <- struct{}{} }()
	}
	goOn := func() {
		for _, s := range all {
			s.goesOn(t, ctx)
		}
	}
	goOn()
	r.underLoad(t, ctx, next(primary), func() {
		if err := r.KillBoth(primary); err != nil {
			t.Fatal(err)
		}
		goOn()
	})
	now := r.heal(t, ctx)
	to := next(now)
	r.underLoad(t, ctx, to, func() {
		// A node that has lagged so far is refused, and writes are not touched.
		if err := devcluster.Poll(ctx, "the primary moves to "+r.Name(to), func(ctx context.Context) (bool, string, error) {
			out, err := r.quorate(t, ctx, now, "switchover", "--to", r.Name(to))
			return err == nil, out, nil
		}); err != nil {
			t.Fatal(err)
		}
		goOn()
	})
	stop()
	for _, s := range all {
		<-ended
		t.Logf("sysbench at %s: %d runs of %d transactions, %d more ended with their server, or had to wait for a deadlock", s.addr, s.whole.Load(), sysbenchEvents, s.broken.Load())
	}
	r.sameTable(t, ctx, "sbtest1")
}

// sameTable waits until a table is the same on all nodes.
func (r *routed) sameTable(t *testing.T, ctx context.Context, table string) {
	t.Helper()
	if err := devcluster.Poll(ctx, table+" is the same on all nodes", func(ctx context.Context) (bool, string, error) {
		sums := map[string]bool{}
		for i := range r.Len() {
			var name, sum string
			if err := r.admin(t, i).QueryRowContext(ctx, "CHECKSUM TABLE "+ledger.Database+"."+table).Scan(&name, &sum); err != nil {
				return false, err.Error(), nil
			}
			sums[sum] = true
		}
		return len(sums) == 1, fmt.Sprint(sums), nil
	}); err != nil {
		t.Fatal(err)
	}
}
