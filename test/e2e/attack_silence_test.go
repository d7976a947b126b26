package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

const (
	// silentPerPort connections come to each port, silentAtOnce each silentEvery, from silentSources
	// addresses. With more addresses they would take all of mysqld's connections through port 6446: 32 each, of 300.
	silentPerPort = 10_000
	silentAtOnce  = 10
	silentEvery   = 10 * time.Millisecond
	silentSources = 8
	// silentBare is how many of them a server that does nothing has open.
	silentBare = 400
	// silentOpenMax is what the ports have room for, about: 1 024 at 7400, 256 each at 7401, 7402 and 7403, 32 of each address at 6446.
	silentOpenMax = 3_000
	// silentSweep is after how many new connections those are closed that the other side has closed.
	silentSweep = 500
	// silentGapMax is how long all writes may stop: an election on shared cores. The silent connections keep coming for
	// longer, and stay at mysqld for 10 s.
	silentGapMax = 8 * time.Second
	// silentLinesMax bounds what all this makes an agent log in a minute.
	silentLinesMax = 400
)

// crowd is a set of connections that send nothing and read nothing. A connection that is closed does not come again. They
// are made by system calls and have no goroutines, because their cost is taken from the writers on the same processors.
type crowd struct{ parts []*arrivals }

// arrivals are the connections of a crowd to one port. came counts the connections that could be opened.
type arrivals struct {
	to   *unix.SockaddrInet4
	came int
	fds  []unix.PollFd
}

// comeToAll opens a crowd's connections to all ports at the same time.
func comeToAll(t *testing.T, ctx context.Context, addrs []string) *crowd {
	t.Helper()
	c := &crowd{}
	var all sync.WaitGroup
	for n, addr := range addrs {
		a := &arrivals{to: sockaddr(t, addr)}
		c.parts = append(c.parts, a)
		all.Go(func() { a.come(ctx, 10+n) })
	}
	all.Wait()
	return c
}

func (c *crowd) came() (n []int) {
	for _, a := range c.parts {
		n = append(n, a.came)
	}
	return n
}

func sockaddr(t *testing.T, addr string) *unix.SockaddrInet4 {
	t.Helper()
	a, err := netip.ParseAddrPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
}

// come opens silentPerPort connections. If the machine is too slow for their pace, they come as fast as they can.
func (a *arrivals) come(ctx context.Context, attack int) {
	tick := time.NewTicker(silentEvery)
	defer tick.Stop()
	began := time.Now()
	for n := 0; n < silentPerPort && ctx.Err() == nil; n++ {
		if n%silentSweep == 0 {
			a.sweep()
		}
		for n >= silentAtOnce*int(time.Since(began)/silentEvery+1) {
			<-tick.C
		}
		if fd, err := connect(attackerAt(attack, 1+n%silentSources), a.to); err == nil {
			a.came++
			a.fds = append(a.fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLRDHUP})
		}
	}
}

func connect(from attacker, to unix.Sockaddr) (fd int, err error) {
	if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return 0, err
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 1}),
		unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte(net.IP(from).To4())}),
		unix.Connect(fd, to),
	)
	if err != nil {
		_ = unix.Close(fd)
	}
	return fd, err
}

// sweep closes the connections that the other side has closed.
func (a *arrivals) sweep() {
	if _, err := unix.Poll(a.fds, 0); err != nil {
		return // by a signal: the next sweep finds them
	}
	a.fds = slices.DeleteFunc(a.fds, func(p unix.PollFd) bool {
		return p.Revents != 0 && unix.Close(int(p.Fd)) == nil
	})
}

// open is how many connections have not been closed.
func (c *crowd) open() (n int) {
	for _, a := range c.parts {
		a.sweep()
		n += len(a.fds)
	}
	return n
}

func (c *crowd) leave() {
	for _, a := range c.parts {
		for _, p := range a.fds {
			_ = unix.Close(int(p.Fd))
		}
		a.fds = nil
	}
}

// bareServers only accept, read and close: with them one measures the attack's own cost on this machine.
type bareServers struct {
	addrs     []string
	listeners []net.Listener
	all       sync.WaitGroup
}

func newBareServers(t *testing.T, n int) *bareServers {
	t.Helper()
	b := &bareServers{}
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		b.listeners = append(b.listeners, l)
		b.addrs = append(b.addrs, l.Addr().String())
		b.all.Go(func() { b.serve(l) })
	}
	t.Cleanup(b.close)
	return b
}

// serve has room for silentBare connections; the next one closes the oldest.
func (b *bareServers) serve(l net.Listener) {
	var newest [silentBare]net.Conn
	for n := 0; ; n++ {
		conn, err := l.Accept()
		if err != nil {
			break
		}
		if old := newest[n%silentBare]; old != nil {
			_ = old.Close()
		}
		newest[n%silentBare] = conn
		b.all.Go(func() {
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		})
	}
	for _, conn := range newest {
		if conn != nil {
			_ = conn.Close()
		}
	}
}

func (b *bareServers) close() {
	for _, l := range b.listeners {
		_ = l.Close()
	}
	b.all.Wait()
}

// TestAttackSilence is a part of TestAttack that measures, and so runs alone.
func TestAttackSilence(t *testing.T) {
	f := newAttacked(t, false)
	f.scenario(t, "Silence", f.silence)
}

// silence opens many silent connections to each port of the primary, and to the port from which a
// replica's mysqld replicates. Before that, with QUORATE_E2E_LONG=1, it opens as many to servers that do nothing with
// them. Writers go on, and everybody who has a right to connect gets in.
func (f *attacked) silence(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	replica := f.others(primary)[0]
	think := f.think
	f.think = fullSpeed
	defer func() { f.think = think }()
	l := f.start(t, 8)
	l.awaitAcks(t, ctx, 500)
	rate := func(until func()) float64 {
		acked, began := l.Stats().Acknowledged, time.Now()
		until()
		return float64(l.Stats().Acknowledged-acked) / time.Since(began).Seconds()
	}
	pass := func() { time.Sleep(4 * time.Second) }
	marks := []mark{f.mark(t, primary), f.mark(t, replica)}
	vitals := f.vitals(t, ctx, f.all())
	ports := []string{f.PeerAddr(primary), f.FeedAddr(replica), f.addrs[primary], f.RouterAddr(primary), f.APIAddr(primary)}

	var c *crowd
	come := func(to []string) (coming float64) {
		return rate(func() { c = comeToAll(t, ctx, to) })
	}
	if long() { // it is reported only
		first := rate(pass)
		bare := newBareServers(t, len(ports))
		t.Logf("rows a second: %.0f, and %.0f while as many come to bare servers", first, come(bare.addrs))
		c.leave()
		bare.close()
	}
	before := rate(pass)
	l.ResetGap()
	coming := come(ports)
	defer c.leave()
	came, open := c.came(), 0
	if err := devcluster.Poll(ctx, "those for whom there is no room are closed", func(context.Context) (bool, string, error) {
		open = c.open()
		return open <= silentOpenMax, fmt.Sprint(open, " are open"), nil
	}); err != nil {
		t.Error(err)
	}
	staying := max(rate(pass), rate(pass)) // an election may be in one of them
	f.getIn(t, ctx, primary, replica)
	gap := l.Gap()
	c.leave()
	after := rate(pass)

	without := (before + after) / 2
	t.Logf("rows a second: %.0f before, %.0f (%.2f) while %v come and %d of them stay, %.0f (%.2f) while those stay, %.0f after; longest gap %v, reconnects %d",
		before, coming, coming/without, came, open, staying, staying/without, after, gap.Round(time.Millisecond), l.Stats().Reconnects)
	if slices.Min(came) < silentPerPort/2 {
		t.Errorf("only so many could come to each port: %v", came)
	}
	if coming == 0 || staying < without/2 || after == 0 || gap > silentGapMax {
		t.Errorf("writes do not go on, or wait: for %v", gap)
	}
	l.stop(t)
	f.same(t, ctx, f.all(), vitals, replica)
	for _, m := range marks {
		if n := len(f.since(t, m, "")); n > silentLinesMax {
			t.Errorf("%s has logged %d lines", f.Name(m.node), n)
		}
		f.logged(t, ctx, m, "closed a connection that had not logged in: too many of them", silentLinesMax)
	}
	f.check(t, ctx)
}

// getIn: a client, a reader, a health check, a peer and the node's own mysqld can connect beside the silent connections.
func (f *attacked) getIn(t *testing.T, ctx context.Context, primary, replica int) {
	t.Helper()
	began := time.Now()
	if err := devcluster.Poll(ctx, "a client gets in", func(ctx context.Context) (bool, string, error) {
		err := openDSN(t, f.DSN(primary), nil).PingContext(ctx)
		return err == nil, "", nil
	}); err != nil {
		t.Fatal(err)
	}
	f.firstFile(t, ctx, primary, "cdc")
	res, err := http.Get("http://" + f.APIAddr(primary) + "/health")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	told := attackerAt(16, 1).hears(t, ctx, f.PeerAddr(primary), f.member(t, replica), f.claimOf(t, replica).hello(classCall, f.claimOf(t, primary).NodeID))
	if told.code != 0 || res.StatusCode != http.StatusOK {
		t.Errorf("a member is told %d, %s, a health check %s", told.code, told.text, res.Status)
	}
	took := time.Since(began)
	pid := f.MysqldPID(replica)
	f.must(t, ctx, primary, "restart-mysqld", f.Name(replica))
	if err := f.WaitNode(ctx, replica, "fed again", func(n status.Node) bool {
		return n.Role == status.RoleReplica && n.MysqldPID != pid && !n.LagUnknown && n.LagSeconds < 5
	}); err != nil {
		t.Fatal(err)
	}
	t.Logf("a client, a reader, a health check and a peer got in within %v", took.Round(time.Millisecond))
}
