package router

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLeaseStopsClientBytes: I5. Bytes that a client sends after the lease has ended do not
// reach mysqld, and the connection is closed.
func TestLeaseStopsClientBytes(t *testing.T) {
	n, m := newPrimary(t, Config{})
	client := dial(t, n)
	expect(t, client, greeting)
	say(t, client, "before")
	expect(t, client, "before")
	seen := m.received.Load()

	n.backend.serving.Store(false) // no change is announced: only the check can notice
	say(t, client, "after")
	if rest := expectEnd(t, client); rest != "" {
		t.Errorf("read %q after the lease", rest)
	}
	eventually(t, "the session ended", func() bool { return n.Stats().Sessions == 0 })
	if got := m.received.Load(); got != seen {
		t.Errorf("mysqld got %d bytes without a lease", got-seen)
	}
	if s := n.Stats(); s.ClosedByLease != 1 {
		t.Errorf("closed by lease = %d, want 1", s.ClosedByLease)
	}
}

// TestServerBytesPassWithoutLease: an OK that mysqld sent was acknowledged, so
// it is passed on; then the connection ends.
func TestServerBytesPassWithoutLease(t *testing.T) {
	n, m := newPrimary(t, Config{})
	client := dial(t, n)
	expect(t, client, greeting)
	n.backend.set(Target{Node: 1, Local: true}, true)
	eventually(t, "the router has looked", n.backend.watched) // else a late check would close the session
	n.backend.serving.Store(false)
	if _, err := io.WriteString(<-m.conns, "OK"); err != nil {
		t.Fatal(err)
	}
	if rest := expectEnd(t, client); rest != "OK" {
		t.Errorf("read %q, want OK and the end", rest)
	}
	eventually(t, "it was counted", func() bool { return n.Stats().ClosedByLease == 1 })
}

func TestIdleSessionsEndWhenNotServingAnyMore(t *testing.T) {
	n, _ := newPrimary(t, Config{})
	client := dial(t, n)
	expect(t, client, greeting)
	n.backend.serving.Store(false)
	n.backend.set(Target{}, false)
	expectEnd(t, client)
}

// TestCloseAll: fencing closes all clients of the local mysqld, own and routed ones, and leaves
// held and forwarded clients alone.
func TestCloseAll(t *testing.T) {
	a, _ := newPrimary(t, Config{})
	b := newNode(t, Config{})
	b.forwardTo(a)
	own, routed := dial(t, a), dial(t, b)
	expect(t, own, greeting)
	expect(t, routed, greeting)

	b.CloseAll() // b's client is not connected to b's mysqld
	say(t, routed, "x")
	expect(t, routed, "x")

	a.CloseAll()
	expectEnd(t, own)
	expectEnd(t, routed)
	got := []int64{a.Stats().ClosedByFence, b.Stats().ClosedByFence}
	if d := cmp.Diff([]int64{2, 0}, got); d != "" {
		t.Errorf("closed by fence (-want +got):\n%s", d)
	}

	a.backend.set(Target{}, false)
	held := dial(t, a)
	eventually(t, "the client is held", func() bool { return a.Stats().Held == 1 })
	a.CloseAll()
	a.backend.set(Target{Node: 1, Local: true}, true)
	expect(t, held, greeting)
}

// TestLeaseWarnings: sessions that are closed together for lack of a lease share one warning,
// and none is left out.
func TestLeaseWarnings(t *testing.T) {
	var said bytes.Buffer
	r := New(Config{Logger: slog.New(slog.NewTextHandler(&said, nil))}, &fakeBackend{})
	closeSome := func(n int) {
		for range n {
			client, server := net.Pipe()
			s := &session{client: client, server: server, Target: Target{Local: true}, cancelDial: func() {}}
			for range 2 { // both directions notice, one session was closed
				if !r.closeWithoutLease(s) {
					t.Fatal("a session goes on without a lease")
				}
			}
		}
	}
	told := r.warnLease(0)
	closeSome(3)
	told = r.warnLease(told)
	told = r.warnLease(told)
	closeSome(2)
	r.warnLease(told)
	var got []string
	for line := range strings.Lines(said.String()) {
		if !strings.Contains(line, "level=WARN") || !strings.Contains(line, "the lease has run out") {
			t.Errorf("said %q", line)
		}
		_, count, _ := strings.Cut(line, "sessions=")
		got = append(got, strings.TrimSpace(count))
	}
	if d := cmp.Diff([]string{"3", "2"}, got); d != "" {
		t.Errorf("sessions (-want +got):\n%s", d)
	}
}
