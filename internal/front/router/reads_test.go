package router

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
)

// readFrom makes clients of n read from other nodes, in this order.
func readFrom(n *node, others map[cluster.NodeID]*node, order ...cluster.NodeID) {
	n.backend.dialPeer = func(_ context.Context, id cluster.NodeID) (net.Conn, error) {
		if others[id] == nil {
			return nil, errors.New("it is dead")
		}
		near, far := net.Pipe()
		others[id].HandleRouted(far, 9)
		return near, nil
	}
	for _, id := range order[1:] {
		n.backend.more = append(n.backend.more, Target{Node: id})
	}
	n.backend.set(Target{Node: order[0]}, true)
}

// A client goes to the next node if a node is dead or does not take it.
func TestNextNodeIsTried(t *testing.T) {
	refuses, _ := newPrimary(t, Config{ReadOnly: true})
	refuses.backend.serving.Store(false)
	takes, _ := newPrimary(t, Config{ReadOnly: true})
	n := newNode(t, Config{ReadOnly: true})
	readFrom(n, map[cluster.NodeID]*node{3: refuses, 4: takes}, 2, 3, 4)
	client := dial(t, n)
	expect(t, client, greeting)
	say(t, client, "select 1")
	expect(t, client, "select 1")
	if s := n.Stats(); s.DialErrors != 2 || takes.Stats().Routed != 1 {
		t.Errorf("%+v", s)
	}
	got := []int{n.sessionsWith(2), n.sessionsWith(3), n.sessionsWith(4)}
	if d := cmp.Diff([]int{0, 0, 1}, got); d != "" {
		t.Errorf("sessions (-want +got):\n%s", d)
	}
	client.Close()
	eventually(t, "it counts no more", func() bool { return n.sessionsWith(4) == 0 })
}

// Sessions end if they must leave their node, this one or another, and the others go on.
func TestSessionsLeaveANode(t *testing.T) {
	far, _ := newPrimary(t, Config{ReadOnly: true})
	n, _ := newPrimary(t, Config{ReadOnly: true})
	here := dial(t, n)
	expect(t, here, greeting)
	readFrom(n, map[cluster.NodeID]*node{4: far}, 4)
	there := dial(t, n)
	expect(t, there, greeting)
	for _, c := range []struct {
		leaves cluster.NodeID
		ends   net.Conn
		stays  net.Conn
	}{{1, here, there}, {4, there, nil}} {
		n.backend.mu.Lock()
		n.backend.leaves = map[cluster.NodeID]bool{c.leaves: true}
		n.backend.mu.Unlock()
		n.backend.set(Target{Node: 4}, true)
		expectEnd(t, c.ends)
		if c.stays != nil {
			say(t, c.stays, "x")
			expect(t, c.stays, "x")
		}
	}
	eventually(t, "both count", func() bool { return n.Stats().ClosedByChange == 2 }) // a client hears first
}

// A client that may read nowhere waits, and then gets an error that says for what.
func TestReadersAreHeld(t *testing.T) {
	n := newNode(t, Config{ReadOnly: true, HoldTimeout: 20 * time.Millisecond})
	code, message := errorPacket(t, expectEnd(t, dial(t, n)))
	if code != codeConnHost || !strings.HasPrefix(message, "quorate: waited 20ms, no replica may be read: ") || !strings.HasSuffix(message, ": see `quorate status`") {
		t.Errorf("error %d %q", code, message)
	}
	here := newNode(t, Config{ReadOnly: true, Refuse: true})
	here.backend.set(Target{Node: 2}, true)
	if _, message := errorPacket(t, expectEnd(t, dial(t, here))); message != "quorate: another node is one to read from, and this one passes no clients on (router.forward)" {
		t.Errorf("error %q", message)
	}
}

// A router that passes nobody on does not pass a client on when this node has refused it.
func TestRefuseTriesNoOther(t *testing.T) {
	n, _ := newPrimary(t, Config{ReadOnly: true, Refuse: true})
	n.backend.dialPeer = func(context.Context, cluster.NodeID) (net.Conn, error) {
		t.Error("a client was passed on")
		return nil, errors.New("no")
	}
	n.backend.mu.Lock()
	n.backend.more = []Target{{Node: 2}}
	n.backend.mu.Unlock()
	n.backend.serving.Store(false)
	client := dial(t, n)
	eventually(t, "it was tried", func() bool { return n.Stats().DialErrors > 0 && n.Stats().Held == 1 })
	n.backend.serving.Store(true)
	expect(t, client, greeting)
}
