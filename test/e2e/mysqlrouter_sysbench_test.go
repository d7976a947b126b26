package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/quorate/quorate/internal/testkit/devcluster"
	"github.com/quorate/quorate/internal/testkit/ledger"
	"github.com/quorate/quorate/internal/testkit/mysqlrouter"
)

// sysbench runs sysbench with one table, again and again: the client library in sysbench cannot connect again, so a
// run ends when the server ends to which it was connected.
type sysbench struct {
	program, addr, user, password string
	// dir is where it runs. script is the script of a run, with more options; events is its number of transactions,
	// threads that of its threads.
	dir, script     string
	threads, events int
	options         []string
	// whole and broken count the runs that have ended.
	whole, broken atomic.Int64
	said          atomic.Value // the output of the last run that broke
}

// sysbenchRate is how many transactions a second each sysbench begins: enough that some are under way whenever a server
// is killed. Without a bound they take both processors from the tests beside.
const sysbenchRate = 40

func (s *sysbench) do(ctx context.Context, what string, more ...string) (out []byte, err error) {
	host, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		return nil, err
	}
	scripts := filepath.Join(filepath.Dir(filepath.Dir(s.program)), "usr/share/sysbench")
	cmd := exec.CommandContext(ctx, s.program, append([]string{
		filepath.Join(scripts, s.script+".lua"), "--db-driver=mysql", "--mysql-host=" + host, "--mysql-port=" + port, "--mysql-user=" + s.user,
		"--mysql-password=" + s.password, "--mysql-db=" + ledger.Database, "--tables=1", "--table-size=1000", "--auto_inc=off", what,
	}, slices.Concat(s.options, more)...)...)
	cmd.Dir = s.dir // its certificates are looked for there
	return cmd.CombinedOutput()
}

func (s *sysbench) run(ctx context.Context) {
	for ctx.Err() == nil {
		if out, err := s.do(ctx, "run", fmt.Sprintf("--threads=%d", s.threads), fmt.Sprintf("--events=%d", s.events), fmt.Sprintf("--rate=%d", sysbenchRate), "--time=0"); err != nil {
			s.broken.Add(1)
			s.said.Store(string(out))
		} else {
			s.whole.Add(1)
		}
	}
}

// goesOn waits until runs that begin from now on end without an error.
func (s *sysbench) goesOn(t *testing.T, ctx context.Context) {
	t.Helper()
	want := s.whole.Load() + 2
	if err := devcluster.Poll(ctx, "sysbench goes on at "+s.addr, func(context.Context) (bool, string, error) {
		return s.whole.Load() >= want, fmt.Sprintf("%d runs whole, %d broken, the last by %v", s.whole.Load(), s.broken.Load(), s.said.Load()), nil
	}); err != nil {
		t.Fatal(err)
	}
}

// newSysbench returns sysbench for an address; nil if sysbench is not installed.
func (r *routed) newSysbench(t *testing.T, addr, script string, threads, events int, options ...string) *sysbench {
	t.Helper()
	program, err := mysqlrouter.Rival("sysbench", "sysbench")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	s := &sysbench{program: program, addr: addr, dir: t.TempDir(), script: script, threads: threads, events: events, options: options}
	s.user, s.password = r.Application()
	return s
}

// fill makes the table again.
func (s *sysbench) fill(t *testing.T, ctx context.Context) {
	t.Helper()
	for _, what := range []string{"cleanup", "prepare"} {
		if out, err := s.do(ctx, what); err != nil {
			t.Fatalf("sysbench %s: %v: %s", what, err, out)
		}
	}
}

// startAll starts them. goOn waits until each goes on, stop ends them.
func startAll(t *testing.T, ctx context.Context, all []*sysbench) (goOn, stop func()) {
	t.Helper()
	running, cancel := context.WithCancel(ctx)
	t.Cleanup(cancel)
	ended := make(chan struct{}, len(all))
	for _, s := range all {
		go func() { s.run(running); ended <- struct{}{} }()
	}
	goOn = func() {
		t.Helper()
		for _, s := range all {
			s.goesOn(t, ctx)
		}
	}
	goOn()
	return goOn, func() {
		cancel()
		for _, s := range all {
			<-ended
			t.Logf("%s at %s: %d runs of %d transactions, %d more ended with their server, or had to wait for a deadlock", s.script, s.addr, s.whole.Load(), s.events, s.broken.Load())
		}
	}
}

// sysbenchReads runs sysbench where reads are spread: at Router's split port, and at a node's 6447. At the split port it uses TLS, and no
// transactions: Router sends those, and clients without TLS, to the primary alone.
func (r *routed) sysbenchReads(t *testing.T, ctx context.Context, node int) (goOn, stop func()) {
	t.Helper()
	split := r.newSysbench(t, r.router.Split, "oltp_read_write", 1, 5, "--skip_trx=on", "--db-ps-mode=disable", "--mysql-ssl=on")
	if split == nil {
		return func() {}, func() {}
	}
	for name, of := range map[string]string{"cacert.pem": "ca.pem", "client-cert.pem": "router-cert.pem", "client-key.pem": "router-key.pem"} {
		if err := os.Symlink(filepath.Join(r.Dir(), "router", "data", of), filepath.Join(split.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	reads := r.newSysbench(t, r.ReadAddr(node), "oltp_read_only", 1, 5)
	uuids := r.dataIdentity(t, ctx)
	primary := r.heal(t, ctx)
	r.awaitServer(t, ctx, r.router.RW, func(uuid string) bool { return uuid == uuids[primary].UUID }) // sysbench does not try again
	r.newSysbench(t, r.router.RW, "oltp_read_write", 1, 5).fill(t, ctx)
	return startAll(t, ctx, []*sysbench{split, reads})
}

// sysbenchRouted: sysbench goes on at Router's port for writes and at quorate's own, beside clients that look for their own writes, across the
// kill of a primary and a switchover. All nodes have the same rows.
func (r *routed) sysbenchRouted(t *testing.T, ctx context.Context) {
	primary := r.heal(t, ctx)
	routed := r.newSysbench(t, r.router.RW, "oltp_read_write", 4, 20)
	if routed == nil {
		t.Skip("no sysbench in .rivals or QUORATE_RIVALS: run make rivals")
	}
	routed.fill(t, ctx)
	own := r.newSysbench(t, r.RouterAddr(next(primary)), "oltp_read_write", 4, 20)
	goOn, stop := startAll(t, ctx, []*sysbench{routed, own})
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
