package netfence

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// primary and replica are the windows of a node in these roles.
func primary() State {
	w := until(long, long)
	return State{Requests: w, Answers: w, Redirected: w, Redirect: w}
}

func replica() State {
	w := until(long, long)
	return State{Requests: w, Answers: w}
}

// fullServer listens, and has one connection more than its queue takes.
func fullServer(t *testing.T, address string) net.Listener {
	t.Helper()
	at := netip.MustParseAddrPort(address)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "server")
	defer file.Close()
	if err := errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.Bind(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	l, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	dial(t, address)
	return l
}

// notAccepted returns how many connections this namespace's listeners had no room for.
func notAccepted(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/net/netstat")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitN(string(text), "\n", 3)
	names, values := strings.Fields(lines[0]), strings.Fields(lines[1])
	for i, name := range names {
		if name == "ListenDrops" {
			return values[i]
		}
	}
	t.Fatal("no ListenDrops")
	return ""
}

// refusedOrRouter fails if a client of the router's port has reached the server, which belongs
// to a replica now: only the router may answer.
func refusedOrRouter(t *testing.T, conn net.Conn, err error) {
	t.Helper()
	if errors.Is(err, syscall.ECONNREFUSED) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	if _, err := conn.Write([]byte("who")); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 3)
	if _, err := conn.Read(said); err != nil {
		t.Fatal(err)
	}
	if string(said) != "who" { // the router is an echo
		t.Errorf("a client of the router's port, from %v, is at the replica's server", conn.LocalAddr())
	}
}

// TestRedirectedSYNComesAgain: a server with a full queue drops the first packet of a
// redirected connection. The client's kernel sends it again when the node is a replica, and
// connection tracking still redirects it.
func TestRedirectedSYNComesAgain(t *testing.T) {
	server, via := address4+":3306", address4+":6446"
	direct := fullServer(t, server)
	newEcho(t, "0.0.0.0:6446")
	f := open(t, Config{Server: netip.MustParseAddrPort(server), Router: netip.MustParseAddrPort("0.0.0.0:6446")})
	set(t, f, primary())
	before := notAccepted(t)
	type result struct {
		conn net.Conn
		err  error
	}
	dialled := make(chan result, 1)
	go func() {
		conn, err := net.DialTimeout("tcp", via, patience)
		dialled <- result{conn, err}
	}()
	for end := time.Now().Add(patience); notAccepted(t) == before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the server has dropped nothing")
		}
	}
	set(t, f, State{})
	set(t, f, replica())
	greeted := make(chan struct{})
	go func() {
		defer close(greeted)
		for {
			conn, err := direct.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("mysqld"))
			defer conn.Close()
		}
	}()
	r := <-dialled
	refusedOrRouter(t, r.conn, r.err)
	direct.Close()
	<-greeted
}

// TestRedirectedPortIsUsedAgain: the server resets a redirected connection, and the client
// connects from the same port when the node is a replica. Connection tracking still has the old
// connection.
func TestRedirectedPortIsUsedAgain(t *testing.T) {
	families(t, func(t *testing.T, server string) {
		host, _, _ := net.SplitHostPort(server)
		direct, err := net.Listen("tcp", server)
		if err != nil {
			t.Fatal(err)
		}
		defer direct.Close()
		newEcho(t, "[::]:6446")
		f := open(t, Config{Server: netip.MustParseAddrPort(server), Router: netip.MustParseAddrPort("[::]:6446")})
		set(t, f, primary())
		from := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(host), Port: 45678}}
		conn, err := from.Dial("tcp", net.JoinHostPort(host, "6446"))
		if err != nil {
			t.Fatal(err)
		}
		there, err := direct.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if err := there.(*net.TCPConn).SetLinger(0); err != nil {
			t.Fatal(err)
		}
		there.Close()
		conn.SetReadDeadline(time.Now().Add(patience))
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("got %v, want a reset", err)
		}
		conn.Close()
		set(t, f, State{})
		set(t, f, replica())
		accepted := make(chan struct{})
		go func() {
			defer close(accepted)
			if conn, err := direct.Accept(); err == nil {
				_, _ = conn.Write([]byte("mysqld"))
				conn.Close()
			}
		}()
		conn, err = from.Dial("tcp", net.JoinHostPort(host, "6446"))
		refusedOrRouter(t, conn, err)
		direct.Close()
		<-accepted
	})
}

// TestForgottenConnection: connection tracking forgets a redirected connection, as after
// "conntrack -F". On the primary it goes on with the client's next request, which is redirected
// again. On a replica the server gets nothing of it.
func TestForgottenConnection(t *testing.T) {
	families(t, func(t *testing.T, server string) {
		for name, state := range map[string]func() State{"primary": primary, "replica": replica} {
			t.Run(name, func(t *testing.T) {
				e := newEcho(t, server)
				f := open(t, Config{Server: netip.MustParseAddrPort(server), Router: netip.MustParseAddrPort("[::]:6446")})
				set(t, f, primary())
				host, _, _ := net.SplitHostPort(server)
				conn := dial(t, net.JoinHostPort(host, "6446"))
				e.accepted(t)
				if err := ask(conn, "ping", patience); err != nil {
					t.Fatal(err)
				}
				set(t, f, state())
				if err := netlink.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
					t.Fatal(err)
				}
				err := ask(conn, "pong", patience)
				if name == "primary" && err != nil || name == "replica" && !errors.Is(err, syscall.ECONNRESET) {
					t.Error(err)
				}
			})
		}
	})
}
