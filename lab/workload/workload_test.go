package workload

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/quorate/quorate/lab/peers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// report is what sysbench 1.0.20 prints with --report-interval=1 --histogram=on.
const report = `sysbench 1.0.20 (using system LuaJIT 2.1.0-beta3)

Running the test with following options:
Number of threads: 2
Report intermediate results every 1 second(s)
Initializing random number generator from seed (1).

Initializing worker threads...

Threads started!

[ 1s ] thds: 2 tps: 100.00 qps: 606.85 (r/w/o: 0.00/404.23/202.62) lat (ms,95%): 1.42 err/s: 0.00 reconn/s: 0.00
[ 2s ] thds: 2 tps: 300.50 qps: 1803.00 (r/w/o: 0.00/1202.00/601.00) lat (ms,95%): 1.30 err/s: 1.00 reconn/s: 0.00
Latency histogram (values are in milliseconds)
       value  ------------- distribution ------------- count
        1.000 |****************************************  50
        2.000 |************                              45
        4.000 |*                                         4
       90.780 |                                          1

SQL statistics:
    queries performed:
        read:                            0
        write:                           400
        other:                           200
        total:                           600
    transactions:                        100    (49.99 per sec.)
    queries:                             600    (299.93 per sec.)
    ignored errors:                      3      (1.50 per sec.)
    reconnects:                          2      (1.00 per sec.)

General statistics:
    total time:                          2.0000s
    total number of events:              100

Latency (ms):
         min:                                    0.91
         avg:                                    1.63
`

func TestParse(t *testing.T) {
	got, err := parse(report)
	if err != nil {
		t.Fatal(err)
	}
	want := Sample{
		Transactions: 100, Seconds: 2, TPS: 50, QPS: 300, P50MS: 1, P95MS: 2, P99MS: 4, Errors: 3, Reconnects: 2,
		PerSecond: []float64{100, 300.5},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sample (-want +got):\n%s", diff)
	}
	for name, bad := range map[string]string{
		"no transactions": strings.Replace(report, "transactions:                        100", "transactions:                        0", 1),
		"no total":        strings.Replace(report, "total time", "time", 1),
		"no histogram":    strings.ReplaceAll(report, " |", " :"),
		"fatal":           "FATAL: unable to connect\nmore\n",
	} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%s: no error", name)
		} else if name == "fatal" && !strings.Contains(err.Error(), "FATAL: unable to connect") {
			t.Errorf("%s: %v does not say why", name, err)
		}
	}
}

func TestCV(t *testing.T) {
	if got := CV([]float64{90, 110}); got != 10 {
		t.Errorf("CV %v, want 10", got)
	}
}

func TestTimeline(t *testing.T) {
	at := func(begin, latency int, o Outcome) Attempt {
		return Attempt{At: time.Duration(begin) * time.Millisecond, Latency: time.Duration(latency) * time.Millisecond, Outcome: o}
	}
	line := Timeline{
		at(0, 5, Acknowledged), at(100, 5, Acknowledged), at(110, 2000, Unknown), at(120, 3, Failed),
		at(1500, 10, Acknowledged), at(1600, 10, Acknowledged), at(5000, 10, Acknowledged),
	}
	for _, tc := range []struct {
		from, end   int
		start, stop int
		ended       bool
	}{
		{110, 1700, 105, 1510, true},
		{110, 5010, 1610, 5010, true},
		{1550, 3000, 1610, 3000, false}, // a gap that is still open counts
		{5005, 5012, 1610, 5010, true},  // a gap that began before the fault counts, too
		{5011, 9000, 5010, 9000, false}, // and so does a gap without any acknowledgement after it
	} {
		start, stop, ended := line.Gap(time.Duration(tc.from)*time.Millisecond, time.Duration(tc.end)*time.Millisecond)
		if start.Milliseconds() != int64(tc.start) || stop.Milliseconds() != int64(tc.stop) || ended != tc.ended {
			t.Errorf("gap from %d to %d: %v to %v, ended %v; want %+v", tc.from, tc.end, start, stop, ended, tc)
		}
	}
	if diff := cmp.Diff([]float64{2, 2}, line.Series(time.Second, 2*time.Second)); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
	if line.Count(Acknowledged) != 5 || line.Count(Unknown) != 1 || line.Count(Failed) != 1 {
		t.Errorf("counts are wrong: %v", line)
	}
}

func TestDecide(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want Outcome
	}{
		{nil, Acknowledged},
		{context.DeadlineExceeded, Unknown},
		{notSent{context.DeadlineExceeded}, Failed},
		{fmt.Errorf("wrapped: %w", driver.ErrBadConn), Failed},
		{&mysql.MySQLError{Number: 1290}, Failed},
		{&mysql.MySQLError{Number: 3101}, Unknown},
	} {
		if got := decide(tc.err); got != tc.want {
			t.Errorf("%v: %v, want %v", tc.err, got, tc.want)
		}
	}
}

// TestProberTriesAll: an attempt that no endpoint took was made at every endpoint, and counts as failed, not
// as unknown. The prober goes on meanwhile.
func TestProberTriesAll(t *testing.T) {
	var dialed [2]atomic.Int64
	dial := func(_ context.Context, _, addr string) (net.Conn, error) {
		dialed[addr[0]-'a'].Add(1)
		return nil, errors.New("connection refused")
	}
	endpoints := []peers.Endpoint{{Node: "a", Addr: "a:1"}, {Node: "b", Addr: "b:1"}}
	p, err := NewProber(dial, endpoints, endpoints[1])
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	deadline := time.Now().Add(10 * time.Second)
	for len(p.Timeline()) < 10 && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	line := p.Timeline()
	if len(line) < 10 {
		t.Fatalf("%d attempts, want 10", len(line))
	}
	ids := map[int64]bool{}
	for _, a := range line {
		if a.Outcome != Failed || !strings.Contains(a.Err, "refused") {
			t.Errorf("attempt %+v, want a failed one", a)
		}
		ids[a.ID] = true
	}
	if len(ids) != len(line) {
		t.Errorf("%d attempts have %d ids", len(line), len(ids))
	}
	if a, b := dialed[0].Load(), dialed[1].Load(); a != int64(len(line)) || b != a {
		t.Errorf("dialed %d and %d times in %d attempts", a, b, len(line))
	}
}

// proberOfOne is a prober of a single endpoint.
func proberOfOne(t *testing.T, dial Dial) *Prober {
	t.Helper()
	at := peers.Endpoint{Node: "a", Addr: "a:1"}
	p, err := NewProber(dial, []peers.Endpoint{at}, at)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestProberGoesOnWhenAllHang: connections that hang time out, and several attempts are under way at once.
func TestProberGoesOnWhenAllHang(t *testing.T) {
	var under, most atomic.Int64
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		n := under.Add(1)
		defer under.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	p := proberOfOne(t, dial)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	deadline := time.Now().Add(10 * time.Second)
	for most.Load() < 5 && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if most.Load() < 5 {
		t.Errorf("at most %d attempts under way, want 5", most.Load())
	}
	for _, a := range p.Timeline() {
		if a.Outcome != Failed || a.Latency < AttemptTimeout-50*time.Millisecond {
			t.Errorf("attempt %+v, want one that failed after %v", a, AttemptTimeout)
		}
	}
}

// TestProberBacksOff: if nothing is acknowledged for long, the prober makes only a tenth of the attempts, so that
// attempts that hang do not take all sessions of a server.
func TestProberBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		p := proberOfOne(t, dial)
		ctx, stop := context.WithTimeout(t.Context(), 12*time.Second)
		defer stop()
		if err := p.Run(ctx); err != nil {
			t.Fatal(err)
		}
		before, after := 0, 0
		for _, a := range p.Timeline() {
			switch {
			case a.At < backOffAfter:
				before++
			case a.At > backOffAfter+AttemptTimeout:
				after++
			}
		}
		if before < workersDefault || after < 80 || after > 91 {
			t.Errorf("%d attempts in the first %v, want %d at least; %d in 9 s later, want 90", before, backOffAfter, workersDefault, after)
		}
	})
}

func TestArguments(t *testing.T) {
	s := Sysbench{Tables: 2, Rows: 10}
	at := []peers.Endpoint{{Node: "a", Addr: "10.0.0.1:3306", User: "u", Password: "p", Database: "d"}, {Node: "b", Addr: "10.0.0.2:3306"}}
	got, err := s.arguments(at)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"--mysql-host=10.0.0.1,10.0.0.2", "--mysql-port=3306", "--tables=2", "--table-size=10", "--auto_inc=off"}
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("arguments %q lack %s", got, w)
		}
	}
	at[1].Addr = "10.0.0.2:3307"
	if _, err := s.arguments(at); err == nil {
		t.Error("two ports: no error")
	}
	if _, err := s.arguments(nil); err == nil {
		t.Error("no endpoint: no error")
	}
}

// fakeServer accepts every login, and answers every statement with OK.
func fakeServer(t *testing.T) (addr string, kill func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var conns []net.Conn
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			serving.Go(func() { serveOK(conn) })
		}
	})
	kill = sync.OnceFunc(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		serving.Wait()
	})
	t.Cleanup(kill)
	return l.Addr().String(), kill
}

func serveOK(conn net.Conn) {
	// Protocol 10, version, thread, 8 bytes of salt, capabilities (4.1, secure), charset,
	// status, capabilities (plugins), length of the salt, 10 bytes, the rest of it, plugin.
	greeting := "\x0a9.7.4\x00\x01\x00\x00\x00saltsalt\x00\x00\x82\xff\x02\x00\x08\x00\x15" +
		strings.Repeat("\x00", 10) + "saltsaltsalt\x00mysql_native_password\x00"
	packet := func(seq byte, payload string) error {
		_, err := conn.Write(append([]byte{byte(len(payload)), 0, 0, seq}, payload...))
		return err
	}
	err := packet(0, greeting)
	for ok := byte(2); err == nil; ok = 1 { // the answer to the login, then to commands
		header := make([]byte, 4)
		if _, err = io.ReadFull(conn, header); err == nil {
			_, err = io.CopyN(io.Discard, conn, int64(header[0])|int64(header[1])<<8)
		}
		if err == nil {
			err = packet(ok, "\x00\x00\x00\x02\x00\x00\x00")
		}
	}
}

// TestProberNoticesDeadConnections: when a server has died, only an attempt or two fail because of
// that, and not one for each connection that was open. Such failures are no part of a failover.
func TestProberNoticesDeadConnections(t *testing.T) {
	a, killA := fakeServer(t)
	b, _ := fakeServer(t)
	endpoints := []peers.Endpoint{{Node: "a", Addr: a, User: "u"}, {Node: "b", Addr: b, User: "u"}}
	p, err := NewProber((&net.Dialer{}).DialContext, endpoints, endpoints[0])
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	acknowledged := func(node string) int {
		n := 0
		for _, at := range p.Timeline() {
			if at.Outcome == Acknowledged && at.Node == node {
				n++
			}
		}
		return n
	}
	await := func(node string) {
		for deadline := time.Now().Add(20 * time.Second); acknowledged(node) < 2*workersDefault; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d acknowledged by %s", acknowledged(node), node)
			}
		}
	}
	await("a")
	killA()
	await("b")
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	lost := p.Timeline().Count(Unknown) + p.Timeline().Count(Failed)
	if lost > 5 {
		t.Errorf("%d attempts were lost to dead connections: %+v", lost, p.Timeline().Errors())
	}
}
