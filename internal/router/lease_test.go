package router

import (
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLeaseStopsClientBytes: I5. What a client sends after the lease ended
// does not reach mysqld, and the connection is closed.
func TestLeaseStopsClientBytes(t *testing.T) {
	n, m := newPrimary(t, Config{})
	client := dial(t, n)
	expect(t, client, greeting)
	say(t, client, "before")
	expect(t, client, "before")
	seen := m.received.Load()

	n.backend.serving.Store(false) // nobody is told: only the check can notice
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

// TestCloseAll: fencing closes what is connected to the local mysqld, own
// clients and routed ones, and leaves held and forwarded clients alone.
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
