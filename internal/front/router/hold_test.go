package router

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster"
)

func TestHeldUntilThereIsAPrimary(t *testing.T) {
	n, _ := newPrimary(t, Config{})
	n.backend.set(Target{}, false)
	client := dial(t, n)
	eventually(t, "the client is held", func() bool { return n.Stats().Held == 1 })
	n.backend.set(Target{Node: 1, Local: true}, true)
	expect(t, client, greeting)
	eventually(t, "the place is free", func() bool { return n.Stats().Held == 0 })
}

func TestHeldClientThatSpeaksFirstLosesNothing(t *testing.T) {
	n, _ := newPrimary(t, Config{})
	n.backend.set(Target{}, false)
	client := dial(t, n)
	say(t, client, "early bird")
	eventually(t, "the client is held", func() bool { return n.Stats().Held == 1 })
	n.backend.set(Target{Node: 1, Local: true}, true)
	expect(t, client, greeting+"early bird")
}

func TestHoldTimeout(t *testing.T) {
	n := newNode(t, Config{HoldTimeout: 20 * time.Millisecond})
	code, message := errorPacket(t, expectEnd(t, dial(t, n)))
	if code != codeConnHost || message != "quorate: waited 20ms, no primary: see `quorate status`" {
		t.Errorf("error %d %q", code, message)
	}
	if s := n.Stats(); s.HoldTimeouts != 1 {
		t.Errorf("hold timeouts = %d, want 1", s.HoldTimeouts)
	}
}

// TestNodeRefuses: the node for a client is known, and is full. It would be wrong to say that there is none.
func TestNodeRefuses(t *testing.T) {
	refused := func(config Config) *node {
		n := newNode(t, config)
		n.backend.dialPeer = func(context.Context, cluster.NodeID) (net.Conn, error) { return nil, errors.New("it is full") }
		n.backend.set(Target{Node: 2}, true)
		return n
	}
	n := refused(Config{HoldTimeout: 20 * time.Millisecond})
	_, message := errorPacket(t, expectEnd(t, dial(t, n)))
	if message != "quorate: waited 20ms, the node for this client has too many clients, or cannot be reached: see `quorate status`" {
		t.Error(message)
	}
	if s := n.Stats(); s.HoldTimeouts != 1 {
		t.Errorf("hold timeouts = %d, want 1", s.HoldTimeouts)
	}
	n = refused(Config{HoldMax: 1})
	oldest := dial(t, n)
	eventually(t, "the client is held", func() bool { return n.Stats().Held == 1 })
	dial(t, n)
	_, message = errorPacket(t, expectEnd(t, oldest))
	if message != "quorate: the node for this client has too many clients, or cannot be reached, and 1 connections wait already" {
		t.Error(message)
	}
}

// TestRefuse: a node that passes no clients on holds them while there is no primary, and
// refuses them once another node is the primary.
func TestRefuse(t *testing.T) {
	n := newNode(t, Config{Refuse: true})
	held := dial(t, n)
	eventually(t, "the client is held", func() bool { return n.Stats().Held == 1 })
	n.backend.set(Target{Node: 2}, true)
	for who, client := range map[string]net.Conn{"held": held, "new": dial(t, n)} {
		code, message := errorPacket(t, expectEnd(t, client))
		if code != codeConnHost || message != "quorate: another node is the primary, and this one passes no clients on (router.forward)" {
			t.Errorf("%s client: error %d %q", who, code, message)
		}
	}
	here, _ := newPrimary(t, Config{Refuse: true})
	expect(t, dial(t, here), greeting)
}

func TestHoldMax(t *testing.T) {
	n := newNode(t, Config{HoldMax: 1})
	oldest := dial(t, n)
	eventually(t, "the client is held", func() bool { return n.Stats().Held == 1 })
	first := dial(t, n)
	code, message := errorPacket(t, expectEnd(t, oldest))
	if code != codeConnCount || message != "quorate: no primary, and 1 connections wait already" {
		t.Errorf("error %d %q", code, message)
	}
	// A client that hangs up while it is held leaves its place.
	first.Close()
	eventually(t, "the place is free", func() bool { return n.Stats().Held == 0 })
	dial(t, n)
	eventually(t, "the next client is held", func() bool { return n.Stats().Held == 1 })
	// Where nobody may wait, none does.
	n = newNode(t, Config{HoldMax: -1})
	if code, message = errorPacket(t, expectEnd(t, dial(t, n))); code != codeConnCount || message != "quorate: no primary" {
		t.Errorf("where nobody may wait: error %d %q", code, message)
	}
}

func TestHeldClientResets(t *testing.T) {
	n := newNode(t, Config{})
	client := dial(t, n)
	eventually(t, "the client is held", func() bool { return n.Stats().Held == 1 })
	client.(*net.TCPConn).SetLinger(0) // Close sends RST
	client.Close()
	eventually(t, "the place is free", func() bool { return n.Stats().Held == 0 })
}

func TestConnMax(t *testing.T) {
	n, _ := newPrimary(t, Config{ConnMax: 1})
	first := dial(t, n)
	expect(t, first, greeting)
	code, _ := errorPacket(t, expectEnd(t, dial(t, n)))
	if code != codeConnCount {
		t.Errorf("code %d, want %d", code, codeConnCount)
	}
	near, far := net.Pipe()
	go n.HandleRouted(far, 9)
	if got := expectEnd(t, near); got != string([]byte{statusRefused}) {
		t.Errorf("status %q, want refused", got)
	}
	first.Close()
	eventually(t, "the place is free", func() bool { return n.Stats().Open == 0 })
	expect(t, dial(t, n), greeting)
}

// TestFenceDuringDial: a fence that comes while the local mysqld is being
// dialled ends that attempt, not the client.
func TestFenceDuringDial(t *testing.T) {
	n, m := newPrimary(t, Config{})
	dialing := make(chan struct{})
	first := true
	n.backend.dialLocal = func(ctx context.Context) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", m.listener.Addr().String())
		if first {
			first = false
			close(dialing)
			<-ctx.Done() // the fence; the connection is there already
		}
		return conn, err
	}
	n.backend.set(Target{Node: 1, Local: true}, true) // orders the assignment before its use
	client := dial(t, n)
	<-dialing
	n.CloseAll()
	if s := n.Stats(); s.ClosedByFence != 1 {
		t.Errorf("closed by fence = %d, want 1", s.ClosedByFence)
	}
	expect(t, client, greeting) // from the second attempt
	say(t, client, "x")
	expect(t, client, "x")
}
