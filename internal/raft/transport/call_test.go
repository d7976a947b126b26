package transport

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/cluster"
)

func dialCall(t testing.TB, from *node) net.Conn {
	t.Helper()
	conn, err := from.DialCall(t.Context(), nodeB)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestCall: both directions are open until the handler returns.
func TestCall(t *testing.T) {
	a, b := pair(t)
	near := dialCall(t, a)
	far := within(t, b.calls, "the call")
	if far.from != nodeA {
		t.Errorf("from node %d", far.from)
	}
	for _, c := range []struct{ from, to net.Conn }{{near, far.conn}, {far.conn, near}} {
		if _, err := c.from.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 5)
		if _, err := io.ReadFull(c.to, buf); err != nil || string(buf) != "hello" {
			t.Fatalf("%q, %v", buf, err)
		}
	}
	close(far.done)
	expectClosed(t, near)
}

func TestCallsOfAPeerAreBounded(t *testing.T) {
	a, b, log := loggingPair(t)
	var served []bulkStream
	for range callStreamsMax {
		dialCall(t, a)
		served = append(served, within(t, b.calls, "a call"))
	}
	expectClosed(t, dialCall(t, a))
	saysRefused(t, log, classCall)
	if got := b.Stats().Peers[0]; got.CallStreams != callStreamsMax || got.CallRefused != 1 {
		t.Errorf("%d streams, %d refused", got.CallStreams, got.CallRefused)
	}
	for _, s := range served {
		close(s.done)
	}
}

// loggingPair is pair, and also returns b's log.
func loggingPair(t *testing.T) (a, b *node, log *lockedBuffer) {
	t.Helper()
	a = newNode(t, nodeA, nodeB)
	b, log = logging(t, nodeB, nodeA)
	introduce(a, b)
	a.start(t)
	b.start(t)
	a.expect(t, nodeB, "up")
	b.expect(t, nodeA, "up")
	return a, b, log
}

// saysRefused fails unless the log has one line about a stream of node a that was one too many.
func saysRefused(t *testing.T, log *lockedBuffer, c class) {
	t.Helper()
	want := `msg="refused a stream: its peer has as many as it may" remote=127.0.0.1:`
	if text := log.String(); strings.Count(text, want) != 1 || !strings.Contains(text, fmt.Sprintf(" peer=a class=%v\n", c)) {
		t.Errorf("no line about the %v stream that was refused: %s", c, text)
	}
}

func TestDialCallErrors(t *testing.T) {
	a := newNode(t, nodeA, nodeB)
	defer func() { _ = a.listener.Close() }()
	if _, err := a.DialCall(t.Context(), 9); !errors.Is(err, ErrUnknownPeer) {
		t.Errorf("unknown peer: %v", err)
	}
}

// TestDialCallSays: an operator reads why a node cannot be asked: an agent that hangs, or does not run, or a host that is away.
// A program can still tell.
func TestDialCallSays(t *testing.T) {
	for _, protected := range []bool{false, true} {
		a, b := newNode(t, nodeA, nodeB), newNode(t, nodeB, nodeA)
		if protected {
			secured(t, cluster.PeersRequire, a, b)
		}
		introduce(a, b)
		defer func() { _ = a.listener.Close() }()
		a.tune.handshakeTimeout /= 100
		at := a.peer(nodeB).Addr
		says := func(want string, is error) {
			t.Helper()
			if _, err := a.DialCall(t.Context(), nodeB); err == nil || err.Error() != want || !errors.Is(err, is) {
				t.Errorf("protected %t: %v, want %q", protected, err, want)
			}
		}
		says("the host of node b answers at "+at+", and its agent does not: it hangs; see its log there (journalctl -u quorate)", os.ErrDeadlineExceeded)
		_ = b.listener.Close()
		says("no agent runs at "+at+` (connection refused): "systemctl start quorate" on the host of node b`, errRefused)
	}
	away := (&peer{Peer: Peer{Name: "b", Addr: "10.0.0.2:7400"}}).unasked(fmt.Errorf("dial peer: %w", &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}))
	if want := "the host of node b does not answer at 10.0.0.2:7400: i/o timeout"; away.Error() != want || !errors.Is(away, os.ErrDeadlineExceeded) {
		t.Errorf("%v, want %q", away, want)
	}
}
