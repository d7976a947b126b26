package e2e

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

const (
	// silentPerPort connections come to each port, silentAtOnce each silentEvery, from silentSources
	// addresses. More addresses would have all of mysqld's places by port 6446: 32 each.
	silentPerPort = 10_000
	silentAtOnce  = 10
	silentEvery   = 10 * time.Millisecond
	silentSources = 8
	// silentGapMax is how long all writes may stand: an election where cores are shared. The silent ones come for
	// longer, and stay at mysqld for 10 s.
	silentGapMax = 8 * time.Second
	// silentLinesMax bounds what all this makes an agent log in a minute.
	silentLinesMax = 400
)

// crowd is connections that say nothing. Who is closed does not come again.
type crowd struct {
	open    atomic.Int64
	mu      sync.Mutex
	conns   []net.Conn
	readers sync.WaitGroup
}

// come has silentPerPort of them come to a port, and returns how many could.
func (c *crowd) come(ctx context.Context, addr string, attack int) (came int) {
	tick := time.NewTicker(silentEvery)
	defer tick.Stop()
	for n := 0; n < silentPerPort && ctx.Err() == nil; n++ {
		if n%silentAtOnce == 0 {
			<-tick.C
		}
		conn, err := attackerAt(attack, 1+n%silentSources).dial(ctx, addr)
		if err != nil {
			continue
		}
		came++
		c.open.Add(1)
		c.mu.Lock()
		c.conns = append(c.conns, conn)
		c.mu.Unlock()
		c.readers.Go(func() {
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
			c.open.Add(-1)
		})
	}
	return came
}

func (c *crowd) leave() {
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.readers.Wait()
}

// silence has many connections that say nothing on each port of the primary, and on the port where a
// replica's mysqld replicates from. Writers go on, and whoever has a right to come gets in.
func (f *attacked) silence(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	replica := f.others(primary)[0]
	think := f.think
	f.think = 0
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
	before := rate(pass)
	l.ResetGap()
	c := &crowd{}
	defer c.leave()
	ports := []string{f.PeerAddr(primary), f.FeedAddr(replica), f.addrs[primary], f.RouterAddr(primary), f.APIAddr(primary)}
	came := make([]int, len(ports))
	coming := rate(func() {
		var all sync.WaitGroup
		for n, addr := range ports {
			all.Go(func() { came[n] = c.come(ctx, addr, 10+n) })
		}
		all.Wait()
	})
	open := c.open.Load()
	staying := rate(pass)
	f.getIn(t, ctx, primary, replica)
	gap := l.Gap()
	c.leave()
	after := rate(pass)
	t.Logf("rows a second: %.0f before, %.0f (%.2f) while %v come and %d of them stay, %.0f (%.2f) while those stay, %.0f after; longest gap %v, reconnects %d",
		before, coming, 2*coming/(before+after), came, open, staying, 2*staying/(before+after), after, gap.Round(time.Millisecond), l.Stats().Reconnects)
	if slices.Min(came) < silentPerPort/2 {
		t.Errorf("only so many could come to each port: %v", came)
	}
	if coming == 0 || staying == 0 || after == 0 || gap > silentGapMax {
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

// getIn: a client, a reader, a health check, a peer and the own mysqld get in beside the silent ones.
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
		return n.Role == status.RoleReplica && n.MysqldPID != pid && n.LagSeconds < 5
	}); err != nil {
		t.Fatal(err)
	}
	t.Logf("a client, a reader, a health check and a peer got in within %v", took.Round(time.Millisecond))
}
