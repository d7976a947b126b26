package netfence

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

const (
	// long is longer than any test. soon is a window that ends during its test.
	long, soon = time.Minute, 700 * time.Millisecond
	// patience bounds the wait for what must happen. silence is for how long nothing may
	// happen.
	patience, silence = 20 * time.Second, 300 * time.Millisecond
	// busy is how late an answer may come after it has left the server.
	busy = 2 * time.Second
)

func bootTime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return time.Duration(ts.Nano())
}

// until returns a window that ends by the boot clock and by the wall clock.
func until(boot, wall time.Duration) Window {
	return Window{Boot: bootTime() + boot, Wall: time.Now().Add(wall)}
}

// echo is a server that sends back what it gets, with the address that it sees.
type echo struct {
	net.Listener
	conns chan net.Conn
}

func newEcho(t *testing.T, address string) *echo {
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	e := &echo{l, make(chan net.Conn, 16)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			e.conns <- conn
			go func() { _, _ = io.Copy(conn, conn) }()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
		close(e.conns)
		for conn := range e.conns {
			conn.Close()
		}
	})
	return e
}

// accepted returns the server's side of the newest connection.
func (e *echo) accepted(t *testing.T) net.Conn {
	select {
	case conn := <-e.conns:
		t.Cleanup(func() { conn.Close() })
		return conn
	case <-time.After(patience):
		t.Fatal("the server has not accepted a connection")
		return nil
	}
}

func open(t *testing.T, c Config) *Fence {
	t.Helper()
	if c.Table == "" {
		c.Table = "quorate_test"
	}
	f, err := Open(c, bootTime)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func set(t *testing.T, f *Fence, s State) {
	t.Helper()
	if err := f.Set(s); err != nil {
		t.Fatal(err)
	}
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// ask sends a word and waits until it comes back.
func ask(conn net.Conn, word string, patience time.Duration) error {
	if _, err := conn.Write([]byte(word)); err != nil {
		return err
	}
	return hear(conn, word, patience)
}

func hear(conn net.Conn, word string, patience time.Duration) error {
	conn.SetReadDeadline(time.Now().Add(patience))
	got := make([]byte, len(word))
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if string(got) != word {
		return fmt.Errorf("got %q, asked %q", got, word)
	}
	return nil
}

func silent(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// families runs a test with a server of each family.
func families(t *testing.T, f func(t *testing.T, server string)) {
	for _, address := range []string{address4, address6} {
		t.Run(address, func(t *testing.T) { f(t, net.JoinHostPort(address, "3306")) })
	}
}

// TestWindowEnds lets a window run out, as it does under a frozen agent. An open connection
// gets no answer, a new one is refused at once, and all goes on after a renewal. Each of the
// two clocks ends the window.
func TestWindowEnds(t *testing.T) {
	families(t, func(t *testing.T, server string) {
		for name, window := range map[string]func() Window{
			"both": func() Window { return until(soon, soon) },
			"wall": func() Window { return until(long, soon) },
			"boot": func() Window { return until(soon, long) },
		} {
			t.Run(name, func(t *testing.T) {
				newEcho(t, server)
				f := open(t, Config{Server: netip.MustParseAddrPort(server)})
				w := window()
				end := time.Now().Add(soon)
				set(t, f, State{Requests: w, Answers: w})
				conn := dial(t, server)
				answers := 0
				var last time.Time // when the request of the last answer was sent
				for {
					asked := time.Now()
					if err := ask(conn, "ping", max(0, time.Until(end))+busy); silent(err) {
						break
					} else if err != nil {
						t.Fatal(err)
					}
					last = asked
					answers++
				}
				if answers < 10 || last.After(end) {
					t.Errorf("%d answers, to the last question of %v after the window's end", answers, last.Sub(end))
				}
				if _, err := net.DialTimeout("tcp", server, patience); !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("a new connection: %v, want it refused", err)
				}
				if err := hear(conn, "ping", silence); !silent(err) {
					t.Errorf("an answer after the window's end: %v", err)
				}
				w = until(long, long)
				set(t, f, State{Requests: w, Answers: w})
				if err := hear(conn, "ping", patience); err != nil {
					t.Errorf("after renewal the connection does not go on: %v", err)
				}
				if err := ask(dial(t, server), "ping", patience); err != nil {
					t.Errorf("after renewal: %v", err)
				}
			})
		}
	})
}

// TestLateOrder sets a window whose end has passed, as an agent does that was frozen between
// reading the clock and the call.
func TestLateOrder(t *testing.T) {
	server := net.JoinHostPort(address4, "3306")
	newEcho(t, server)
	f := open(t, Config{Server: netip.MustParseAddrPort(server)})
	for name, w := range map[string]Window{
		"wall": until(long, -time.Millisecond), "boot": until(-time.Millisecond, long), "none": {}, "nearly": until(19*time.Millisecond, long),
	} {
		set(t, f, State{Requests: w, Answers: w})
		if _, err := net.DialTimeout("tcp", server, patience); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: %v, want it refused", name, err)
		}
	}
}

// TestSlowCallCloses makes a call take longer than the window allows.
func TestSlowCallCloses(t *testing.T) {
	server := net.JoinHostPort(address4, "3306")
	newEcho(t, server)
	f := open(t, Config{Server: netip.MustParseAddrPort(server)})
	var late atomic.Int64
	f.bootTime = func() time.Duration { return bootTime() + time.Duration(late.Swap(int64(time.Second))) }
	w := until(soon, long)
	if err := f.Set(State{Requests: w, Answers: w}); !errors.Is(err, ErrSlow) {
		t.Fatalf("got %v, want ErrSlow", err)
	}
	if _, err := net.DialTimeout("tcp", server, patience); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after a slow call: %v, want the port closed", err)
	}
}

// unheard keeps the kernel's answers away from the fence's socket.
func unheard(t *testing.T, f *Fence) (heard func()) {
	t.Helper()
	socket, err := f.File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	nothing := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	if err := unix.SetsockoptSockFprog(int(socket.Fd()), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing[0]}); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := f.socket.RemoveBPF(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNoAnswerIsNotAwaited makes the kernel take a state slowly and without an answer. The call
// ends, and closes what it may have opened.
func TestNoAnswerIsNotAwaited(t *testing.T) {
	server := net.JoinHostPort(address4, "3306")
	newEcho(t, server)
	f := open(t, Config{Server: netip.MustParseAddrPort(server)})
	w := until(long, long)
	heard := unheard(t, f)
	if err := f.Set(State{Requests: w, Answers: w}); !errors.Is(err, ErrSilent) || errors.Is(err, ErrSlow) {
		t.Errorf("got %v, want ErrSilent", err)
	}
	dial(t, server) // the kernel has taken it, in time
	w = until(soon, soon)
	if err := f.Set(State{Requests: w, Answers: w}); !errors.Is(err, ErrSlow) || !errors.Is(err, ErrSilent) {
		t.Errorf("got %v, want ErrSlow and ErrSilent", err)
	}
	if _, err := net.DialTimeout("tcp", server, patience); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after a slow call: %v, want the port closed", err)
	}
	heard()
	set(t, f, State{})
	w = until(long, long)
	set(t, f, State{Requests: w, Answers: w})
	dial(t, server)
}

// TestRenewalKeepsOneHalf looks into a window's sets: a renewal does not touch the half with
// which the kernel compares packets meanwhile. If the window becomes shorter or is closed, the
// old one is removed from both.
func TestRenewalKeepsOneHalf(t *testing.T) {
	f := open(t, Config{Server: netip.MustParseAddrPort(address4 + ":3306")})
	wall := time.Now().Add(long)
	window := func(later time.Duration) Window {
		return Window{Boot: bootTime() + long + later, Wall: wall.Add(later)}
	}
	for _, c := range []struct {
		later time.Duration
		want  [2]time.Duration // when the halves end, relative to wall; 0 = empty
	}{
		{1, [2]time.Duration{0, 1}}, {2 * time.Second, [2]time.Duration{2 * time.Second, 1}},
		{3 * time.Second, [2]time.Duration{2 * time.Second, 3 * time.Second}},
		{time.Second, [2]time.Duration{time.Second, 0}}, {-2 * long, [2]time.Duration{}}, {1, [2]time.Duration{1, 0}},
	} {
		w := window(c.later)
		if c.later < 0 {
			w = Window{}
		}
		set(t, f, State{Requests: w})
		if got := halvesEnd(t, f, wall); got != c.want {
			t.Errorf("renewed by %v: the halves end at %v, want %v", c.later, got, c.want)
		}
	}
	// The kernel takes this, but the agent does not get the answer.
	heard := unheard(t, f)
	if err := f.Set(State{Requests: window(time.Hour)}); !errors.Is(err, ErrSilent) {
		t.Fatalf("got %v, want ErrSilent", err)
	}
	heard()
	if got, want := halvesEnd(t, f, wall), [2]time.Duration{1, time.Hour}; got != want {
		t.Errorf("unheard: the halves end at %v, want %v", got, want)
	}
	set(t, f, State{Requests: window(time.Second)})
	if got, want := halvesEnd(t, f, wall), [2]time.Duration{1, time.Second}; got != want {
		t.Errorf("after a call that failed the halves end at %v, want %v", got, want)
	}
}

// halvesEnd returns when the halves of the window of requests end by the wall clock, relative
// to a moment; 0 = that half is empty.
func halvesEnd(t *testing.T, f *Fence, wall time.Time) (ends [2]time.Duration) {
	t.Helper()
	for i, half := range f.sets[0] {
		elements, err := (&nftables.Conn{}).GetSetElements(half)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range elements {
			if e.IntervalEnd && binary.BigEndian.Uint64(e.Key) > 0 {
				ends[i] = time.Duration(binary.BigEndian.Uint64(e.Key)) - time.Duration(wall.UnixNano())
			}
		}
	}
	return ends
}

// TestAnswersAlone keeps requests out and lets answers to earlier requests pass.
func TestAnswersAlone(t *testing.T) {
	families(t, func(t *testing.T, server string) {
		l, err := net.Listen("tcp", server)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		f := open(t, Config{Server: netip.MustParseAddrPort(server)})
		w := until(long, long)
		set(t, f, State{Requests: w, Answers: w})
		conn := dial(t, server)
		there, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer there.Close()
		set(t, f, State{Answers: w})
		if _, err := there.Write([]byte("OK")); err != nil {
			t.Fatal(err)
		}
		if err := hear(conn, "OK", patience); err != nil {
			t.Errorf("an answer does not pass: %v", err)
		}
		if _, err := conn.Write([]byte("more")); err != nil {
			t.Fatal(err)
		}
		if err := hear(there, "more", silence); !silent(err) {
			t.Errorf("a request passes: %v", err)
		}
		set(t, f, State{})
		if _, err := there.Write([]byte("late")); err != nil {
			t.Fatal(err)
		}
		if err := hear(conn, "late", silence); !silent(err) {
			t.Errorf("an answer passes: %v", err)
		}
	})
}

// TestEndsAreSeen closes a connection behind a closed fence: each side hears of it.
func TestEndsAreSeen(t *testing.T) {
	families(t, func(t *testing.T, server string) {
		e := newEcho(t, server)
		f := open(t, Config{Server: netip.MustParseAddrPort(server)})
		w := until(long, long)
		set(t, f, State{Requests: w, Answers: w})
		first, second := dial(t, server), dial(t, server)
		firstThere, secondThere := e.accepted(t), e.accepted(t)
		if firstThere.RemoteAddr().String() != first.LocalAddr().String() {
			first, second = second, first
		}
		set(t, f, State{})
		firstThere.Close()
		first.SetReadDeadline(time.Now().Add(patience))
		if n, err := first.Read(make([]byte, 1)); n > 0 || silent(err) || err == nil {
			t.Errorf("the client does not hear that the server has closed: %d, %v", n, err)
		}
		second.Close()
		// The server's goroutine reads: it sees the end of the stream, and stops copying.
		secondThere.SetReadDeadline(time.Now().Add(patience))
		if n, err := secondThere.Read(make([]byte, 1)); n > 0 || silent(err) || err == nil {
			t.Errorf("the server does not hear that the client has closed: %d, %v", n, err)
		}
	})
}

// TestLargeStreamWaits fences a connection in the middle of many bytes: all of them come,
// in order, after renewal.
func TestLargeStreamWaits(t *testing.T) {
	server := net.JoinHostPort(address4, "3306")
	newEcho(t, server)
	f := open(t, Config{Server: netip.MustParseAddrPort(server)})
	w := until(long, long)
	set(t, f, State{Requests: w, Answers: w})
	conn := dial(t, server)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<21) // 32 MiB, more than the sockets hold
	done := make(chan error, 1)
	go func() { _, err := conn.Write(sent); done <- err }()
	got := make([]byte, len(sent))
	conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.ReadFull(conn, got[:len(sent)/4]); err != nil {
		t.Fatal(err)
	}
	set(t, f, State{})
	read := len(sent) / 4
	for err := error(nil); err == nil; { // what has passed the fence before
		if read == len(sent) {
			t.Fatal("all of the stream has passed before it was fenced, or the fence")
		}
		conn.SetReadDeadline(time.Now().Add(silence))
		var n int
		n, err = conn.Read(got[read:])
		read += n
	}
	conn.SetReadDeadline(time.Now().Add(patience))
	set(t, f, State{Requests: w, Answers: w})
	if _, err := io.ReadFull(conn, got[read:]); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("the stream is not what was sent: %v", err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestRedirect: while the window is open, new connections to the router's port go to the
// server, with the client's own address; else the router gets them.
func TestRedirect(t *testing.T) {
	families(t, func(t *testing.T, server string) {
		host, _, _ := net.SplitHostPort(server)
		for _, listen := range []string{net.JoinHostPort(host, "6446"), "[::]:6446", "0.0.0.0:6446"} {
			at := netip.MustParseAddrPort(listen)
			if strings.Contains(server, "[") && at.Addr().Is4() {
				continue // see TestRules
			}
			t.Run(listen, func(t *testing.T) {
				direct, router := newEcho(t, server), newEcho(t, listen)
				f := open(t, Config{Server: netip.MustParseAddrPort(server), Router: at})
				w := until(long, long)
				via := net.JoinHostPort(host, "6446")
				set(t, f, State{Requests: w, Answers: w, Redirected: w, Redirect: w})
				redirected := dial(t, via)
				if err := ask(redirected, "ping", patience); err != nil {
					t.Fatal(err)
				}
				there := direct.accepted(t)
				if got, want := there.RemoteAddr().String(), redirected.LocalAddr().String(); got != want {
					t.Errorf("the server sees a client at %s, it is at %s", got, want)
				}
				set(t, f, State{Requests: w, Answers: w, Redirected: w}) // held by the router from here on
				if err := ask(dial(t, via), "ping", patience); err != nil {
					t.Fatal(err)
				}
				router.accepted(t)
				if err := ask(redirected, "ping", patience); err != nil {
					t.Errorf("a redirected connection ends with the window for new ones: %v", err)
				}
				for side, conn := range map[string]net.Conn{"client": redirected, "server": there} {
					outOfWindow(t, conn)
					if err := ask(redirected, "ping", patience); err != nil {
						t.Errorf("a stray packet of the %s ends a redirected connection: %v", side, err)
					}
				}
				for _, closed := range []State{{}, {Redirected: w}, {Requests: w, Answers: w}} {
					set(t, f, closed)
					if err := ask(redirected, "late", silence); !silent(err) {
						t.Errorf("a redirected connection is not fenced by %+v: %v", closed, err)
					}
				}
				if _, err := there.Write([]byte("OK")); err != nil {
					t.Fatal(err)
				}
				if err := hear(redirected, "OK", patience); err != nil {
					t.Errorf("the last answer of a primary of before does not pass: %v", err)
				}
				set(t, f, State{Requests: w, Answers: w, Redirected: w})
				if err := hear(redirected, "latelatelate", patience); err != nil {
					t.Errorf("a redirected connection does not go on after renewal: %v", err)
				}
				set(t, f, State{})
				if err := ask(dial(t, via), "ping", patience); err != nil {
					t.Errorf("the router's own port is fenced: %v", err)
				}
			})
		}
	})
}

// TestOnlyItsOwnPort leaves other ports, other addresses and loopback alone.
func TestOnlyItsOwnPort(t *testing.T) {
	open(t, Config{Server: netip.MustParseAddrPort(address4 + ":3306"), Router: netip.MustParseAddrPort("0.0.0.0:6446")})
	for _, address := range []string{address4 + ":3307", other4 + ":3306", "127.0.0.1:3306", "[" + address6 + "]:3306"} {
		newEcho(t, address)
		if err := ask(dial(t, address), "ping", patience); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func tables(t *testing.T) (names []string) {
	t.Helper()
	all, err := (&nftables.Conn{}).ListTables()
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range all {
		names = append(names, table.Name)
	}
	return names
}

// TestLife: a flush by another process does not remove the table; the end of the last
// descriptor does.
func TestLife(t *testing.T) {
	other := &nftables.Conn{}
	other.AddTable(&nftables.Table{Name: "of_others", Family: nftables.TableFamilyINet})
	if err := other.Flush(); err != nil {
		t.Fatal(err)
	}
	f := open(t, Config{Server: netip.MustParseAddrPort(address4 + ":3306")})
	inherited, err := f.File()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Table: "quorate_test", Server: netip.MustParseAddrPort(address4 + ":3306")}, bootTime); err == nil {
		t.Error("a second fence has the first one's table")
	}
	if got := strings.Join(tables(t), " "); got != "of_others quorate_test" {
		t.Errorf("tables: %s", got)
	}
	other.FlushRuleset()
	if err := other.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(tables(t), " "); got != "quorate_test" {
		t.Errorf("tables after nft flush ruleset and the agent's end: %q", got)
	}
	if _, err := net.DialTimeout("tcp", address4+":3306", patience); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the table fences no more, though mysqld lives: %v", err)
	}
	inherited.Close()
	for end := time.Now().Add(patience); len(tables(t)) > 0; { // the kernel removes it in the background
		if time.Now().After(end) {
			t.Fatalf("tables after the last descriptor was closed: %q", tables(t))
		}
	}
}

// TestNotAllowed opens a fence without CAP_NET_ADMIN.
func TestNotAllowed(t *testing.T) {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends, because it has lost capabilities
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var have [2]unix.CapUserData
		if err := unix.Capset(&header, &have[0]); err != nil {
			done <- err
			return
		}
		_, err := Open(Config{Table: "quorate_test", Server: netip.MustParseAddrPort(address4 + ":3306")}, bootTime)
		done <- err
	}()
	if err := <-done; !errors.Is(err, ErrNotAllowed) {
		t.Errorf("got %v, want ErrNotAllowed", err)
	}
	if got := tables(t); len(got) > 0 {
		t.Errorf("tables: %q", got)
	}
}

// TestRules shows the rules.
func TestRules(t *testing.T) {
	datadriven.RunTest(t, "testdata/rules", func(t *testing.T, d *datadriven.TestData) string {
		var server, router string
		d.ScanArgs(t, "server", &server)
		c := Config{Server: netip.MustParseAddrPort(server)}
		if d.HasArg("router") {
			d.ScanArgs(t, "router", &router)
			c.Router = netip.MustParseAddrPort(router)
		}
		var b strings.Builder
		for _, ch := range rules(c, &nftables.Table{}).chains {
			fmt.Fprintf(&b, "chain %s", ch.Name)
			if ch.Hooknum != nil {
				fmt.Fprintf(&b, " (%s, hook %d, priority %d)", ch.Type, *ch.Hooknum, *ch.Priority)
			}
			b.WriteByte('\n')
			for _, r := range ch.rules {
				for i, e := range r {
					lead := "    "
					if i == 0 {
						lead = "  - "
					}
					fmt.Fprintf(&b, "%s%s\n", lead, shown(e))
				}
			}
		}
		return b.String()
	})
}

// shown returns an expression's name with the fields that are set.
func shown(e expr.Any) string {
	v := reflect.ValueOf(e).Elem()
	text := v.Type().Name()
	for i := range v.NumField() {
		if !v.Field(i).IsZero() {
			text += fmt.Sprintf(" %s=%v", v.Type().Field(i).Name, v.Field(i))
		}
	}
	return text
}

func TestWindowElements(t *testing.T) {
	wall := time.Unix(1_700_000_000, 5)
	for _, c := range []struct {
		left, want time.Duration
	}{
		{-time.Second, 0}, {0, 0}, {20 * time.Millisecond, 0}, {21 * time.Millisecond, time.Millisecond},
		{160 * time.Millisecond, 140 * time.Millisecond}, {800 * time.Millisecond, 700 * time.Millisecond},
		{800*time.Millisecond + 700*time.Microsecond, 700 * time.Millisecond},
	} {
		now := 5 * time.Hour
		got := Window{Boot: now + c.left, Wall: wall}.elements(now)
		switch {
		case c.want == 0 && got != nil, c.want > 0 && (len(got) != 2 || got[0].Timeout != c.want || !got[1].IntervalEnd):
			t.Errorf("%v left: %+v, want a timeout of %v", c.left, got, c.want)
		}
	}
	if got := (Window{Boot: time.Hour}).elements(0); got != nil {
		t.Errorf("no end on the wall clock: %+v", got)
	}
}

func TestExtends(t *testing.T) {
	at := func(boot, wall time.Duration) Window { return Window{boot, time.Unix(1_700_000_000, 0).Add(wall)} }
	for _, c := range []struct {
		w, before Window
		want      bool
	}{
		{Window{}, Window{}, true}, {at(1, 1), Window{}, true}, {at(1, 1), at(1, 1), true}, {at(2, 2), at(1, 1), true},
		{Window{}, at(1, 1), false}, {at(1, 2), at(2, 1), false}, {at(2, 1), at(1, 2), false},
	} {
		if got := c.w.extends(c.before); got != c.want {
			t.Errorf("%+v after %+v: %t", c.w, c.before, got)
		}
	}
}

func BenchmarkSet(b *testing.B) {
	f, err := Open(Config{Table: "quorate_test", Server: netip.MustParseAddrPort(address4 + ":3306")}, bootTime)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	for b.Loop() {
		w := until(long, long)
		if err := f.Set(State{Requests: w, Answers: w, Redirected: w, Redirect: w}); err != nil {
			b.Fatal(err)
		}
	}
}
