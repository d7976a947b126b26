package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/quorate/quorate/internal/cluster/status"
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

// haproxy runs packaging/haproxy.cfg in front of the cluster, beside the nodes or on a host of its own, and returns the
// addresses where it listens. own: it leads to mysqld's own ports, which hold no client while there is no primary.
func (f *fixture) haproxy(t *testing.T, ctx context.Context, host *otherHost, own bool) (write, read string) {
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
	if own {
		places = append(places, "use_backend primary if { nbsrv(primary) gt 0 }", "", "default_backend any", "default_backend primary")
	}
	for i := range f.Len() {
		_, api, err := net.SplitHostPort(f.APIAddr(i))
		if err != nil {
			t.Fatal(err)
		}
		writes, reads := f.RouterAddr(i), f.ReadAddr(i)
		if own {
			writes, reads = f.MysqldAddr(i), f.MysqldAddr(i)
		}
		node := fmt.Sprintf("10.0.0.%d", i+1)
		places = append(places, node+":6446 check port 7401", writes+" check port "+api,
			node+":6447 check port 7401", reads+" check port "+api)
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

// freeAddress is an address of the nodes' host where nobody listens.
func (f *fixture) freeAddress(t *testing.T) string {
	t.Helper()
	host, _, err := net.SplitHostPort(f.RouterAddr(0))
	if err != nil {
		t.Fatal(err)
	}
	for {
		addr, err := devcluster.FreeAddr(host)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(f.given, addr) {
			f.given = append(f.given, addr)
			return addr
		}
	}
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

// TestHAProxy: with the file in packaging/, writes go on over switchovers, a killed and a frozen primary, and go to
// one server at a time. Reads go only to replicas, and to none that is too far behind. A Prometheus with the files in
// packaging/ sees all of it.
func TestHAProxy(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3, MaxApplyLag: time.Minute})
	ctx := scenarioContext(t)
	p := &proxied{routed: f.newRouted(t, "")}
	p.write, p.read = f.haproxy(t, ctx, nil, false)
	primary := f.heal(t, ctx)
	scraper := f.prometheus(t)
	l := f.startAt(t, 4, f.through(t, p.write))
	l.awaitAcks(t, ctx, 20)
	p.prepare(t, ctx, primary)
	p.awaitReads(t, ctx, f.others(primary)...)
	p.switchover(t, ctx, l)
	p.lag(t, ctx)
	p.failovers(t, ctx, l, func(primary int) {
		next, err := f.WaitPrimary(ctx, primary)
		if err != nil {
			t.Fatal(err)
		}
		p.awaitReads(t, ctx, 3-primary-next)
		if scraper != nil {
			scraper.awaitAlert(t, ctx, "QuorateNodeDown", true)
		}
	})
	if scraper != nil {
		f.heal(t, ctx)
		scraper.awaitAlert(t, ctx, "QuorateNodeDown", false)
		scraper.awaitAlert(t, ctx, "QuorateFailover", true)
		scraper.check(t, ctx, f.Len())
	}
	l.stop(t)
	f.heal(t, ctx)
	f.check(t, ctx)
}

// How long a client of HAProxy may be without an OK. HAProxy looks twice a second; it takes some three seconds to see that a node is
// frozen, and two looks to see that it is dead.
const proxiedGapMax, proxiedFrozenGapMax = 9 * time.Second, 13 * time.Second // of that 5 s for a machine that stands still

// proxied is a cluster behind HAProxy.
type proxied struct {
	*routed
	write, read string
	own         bool // it leads to mysqld's own ports: only HAProxy decides which server a client reads, a second or two late
}

// switchover moves the primary, once.
func (p *proxied) switchover(t *testing.T, ctx context.Context, l *load) {
	t.Helper()
	primary := p.heal(t, ctx)
	next := (primary + 1) % 3
	p.under(t, ctx, l, "switched over", proxiedGapMax, func() {
		p.must(t, ctx, primary, "switchover", "--to", p.Name(next), "--max-pause", "10s")
	})
	p.awaitReads(t, ctx, p.others(next)...)
}

// failovers kills the primary, and freezes the next one. It calls then while each of them is away.
func (p *proxied) failovers(t *testing.T, ctx context.Context, l *load, then func(primary int)) {
	t.Helper()
	for _, c := range []struct {
		what  string
		bound time.Duration
		fails func(int) error
	}{{"killed", proxiedGapMax, p.KillBoth}, {"frozen", proxiedFrozenGapMax, p.PauseAgent}} {
		primary := p.heal(t, ctx)
		p.awaitReads(t, ctx, p.others(primary)...)
		p.under(t, ctx, l, c.what, c.bound, func() {
			if err := c.fails(primary); err != nil {
				t.Fatal(err)
			}
		})
		then(primary)
		if c.what == "frozen" {
			p.resume(t, primary)
		}
	}
}

// portHAProxy: HAProxy in front of mysqld's own port, which the kernel fences, while the primary is moved, killed, and another one freezes.
func (f *fixture) portHAProxy(t *testing.T, ctx context.Context) {
	p := &proxied{routed: f.newRouted(t, ""), own: true}
	p.administrator = "cleo"
	p.write, p.read = f.haproxy(t, ctx, nil, true)
	primary := f.heal(t, ctx)
	l := f.startAt(t, 4, f.through(t, p.write))
	l.awaitAcks(t, ctx, 20)
	p.prepare(t, ctx, primary)
	p.switchover(t, ctx, l)
	p.failovers(t, ctx, l, func(int) {})
	l.stop(t)
	f.heal(t, ctx)
	f.check(t, ctx)
}

// under runs a client that notes which server took each of its writes, while the primary changes. Afterwards writes flow
// again, no server has taken a write after its successor did, and no write is lost.
func (p *proxied) under(t *testing.T, ctx context.Context, l *load, what string, bound time.Duration, do func()) {
	t.Helper()
	c := p.writerAt(t, "HAProxy's port for writes", p.write, p.nextWriter())
	awaitOKs(t, ctx, 10, c)
	do()
	l.awaitAcks(t, ctx, 20)
	if err := devcluster.Poll(ctx, "another server takes writes", func(context.Context) (bool, string, error) {
		servers := c.servers()
		return len(servers) > 1, fmt.Sprint(servers), nil
	}); err != nil {
		t.Fatal(err)
	}
	c.stop()
	t.Logf("the primary is %s: no OK for %v, bound %v", what, c.gap().Round(time.Millisecond), bound)
	if c.gap() > bound {
		t.Errorf("the primary is %s: no OK for %v, want at most %v", what, c.gap(), bound)
	}
	if servers := c.servers(); len(servers) != 2 {
		t.Logf("%d servers took writes: there was another election", len(servers)) // mustBeOnePrimary judges
	}
	if len(c.missed) > 0 {
		t.Errorf("%d own writes were missed: %s", len(c.missed), c.missed[0])
	}
	mustBeOnePrimary(t, []*routedClient{c})
	p.mustHaveAll(t, ctx, []*routedClient{c})
}

// readers are the nodes that answer reads of a few new connections.
func (p *proxied) readers(t *testing.T, ctx context.Context) (nodes []int, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, readHold) // the agent of a replica that may not be read holds who comes
	defer cancel()
	db := openDSN(t, p.through(t, p.read), nil)
	defer db.Close()
	db.SetMaxIdleConns(-1)
	for range 6 {
		var port string
		var readOnly bool
		if err := db.QueryRowContext(ctx, "SELECT @@port, @@super_read_only").Scan(&port, &readOnly); err != nil {
			return nil, err
		}
		if !readOnly && !p.own {
			t.Error("the primary is read")
		}
		for i := range p.Len() {
			if strings.HasSuffix(p.MysqldAddr(i), ":"+port) && !slices.Contains(nodes, i) {
				nodes = append(nodes, i)
			}
		}
	}
	slices.Sort(nodes)
	return nodes, nil
}

// awaitReads waits until these nodes are read, and no other.
func (p *proxied) awaitReads(t *testing.T, ctx context.Context, want ...int) {
	t.Helper()
	slices.Sort(want)
	if err := devcluster.Poll(ctx, fmt.Sprintf("nodes %d are read", want), func(ctx context.Context) (bool, string, error) {
		nodes, err := p.readers(t, ctx)
		return err == nil && slices.Equal(nodes, want), fmt.Sprint(nodes, err), nil
	}); err != nil {
		t.Fatal(err)
	}
}

// lag: a replica that applies nothing is not read once it is too far behind, whatever HAProxy knows: the agent of
// its node passes readers on. While no replica may be read, nobody reads. Afterwards readers come back.
func (p *proxied) lag(t *testing.T, ctx context.Context) {
	t.Helper()
	primary, err := p.WaitPrimary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	may := p.others(primary)
	var releases []func()
	for len(may) > 0 {
		lags := may[0]
		may = may[1:]
		releases = append(releases, p.blockApplier(t, ctx, lags))
		if err := p.WaitNode(ctx, lags, "too far behind", func(n status.Node) bool {
			return n.Role == status.RoleReplica && n.Unreadable(readMaxLag) != ""
		}); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			nodes, err := p.readers(t, ctx)
			if err == nil && !slices.Equal(nodes, may) {
				t.Errorf("nodes %d are read, while %d may be", nodes, may)
			}
		}
		if len(may) > 0 {
			p.awaitReads(t, ctx, may...)
		}
	}
	for _, release := range releases {
		release()
	}
	p.awaitReads(t, ctx, p.others(primary)...)
}
