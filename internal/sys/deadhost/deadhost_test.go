package deadhost

import (
	"net"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/sys/deadhost/deadhosttest"
)

// pair returns both ends of a TCP connection.
func pair(t *testing.T) (server, client *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s.(*net.TCPConn), c.(*net.TCPConn)
}

// until waits until cond holds; the kernel's timers are not the test's to set.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what, "does not come")
		}
	}
}

func TestSilent(t *testing.T) {
	const after = 500 * time.Millisecond
	server, client := pair(t)
	if Silent(server, 0) {
		t.Error("an idle connection is silent")
	}
	deadhosttest.Die(t, client)
	if _, err := server.Write([]byte("an answer that nobody acknowledges")); err != nil {
		t.Fatal(err)
	}
	until(t, "the silence of a host that has died", func() bool { return Silent(server, after) })
	_ = server.Close()
	if Silent(server, after) {
		t.Error("a closed connection is silent")
	}
	if a, _ := net.Pipe(); Silent(a, 0) {
		t.Error("a pipe is silent")
	}
}

// A client that reads nothing acknowledges what its kernel has taken, and each probe of its closed window.
func TestSlowClientIsNotSilent(t *testing.T) {
	server, _ := pair(t)
	if err := server.SetWriteDeadline(time.Now().Add(2 * time.Second)); err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 1<<20)
	for {
		if _, err := server.Write(block); err != nil {
			break // the window has been closed for a while, and was probed
		}
	}
	if Silent(server, 0) {
		t.Error("a client that reads nothing is silent")
	}
}

func TestKeepAliveEndsWithAfter(t *testing.T) {
	c := KeepAlive()
	if got := c.Idle + time.Duration(c.Count)*c.Interval; got != After {
		t.Errorf("an idle connection is ended after %v, another one after %v", got, After)
	}
}
