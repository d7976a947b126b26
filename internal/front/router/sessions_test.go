package router

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/sys/deadhost/deadhosttest"
)

// seen returns what a router shows of its clients; names has the clients' names by address.
func (n *node) seen(names map[string]string) (all []string) {
	for _, s := range n.Sessions() {
		text := names[s.Client.String()]
		if s.Server == nil {
			text += " waits"
		} else {
			text += fmt.Sprintf(" to %d from %d", s.Target.Node, s.From)
		}
		if s.Since.IsZero() {
			text += " since ever"
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return all
}

// stream is the connection of a routed client, as the transport gives it: it cannot be the key
// of a map.
type stream struct {
	net.Conn
	_ func()
}

// TestSessions: it shows which clients are held, to which node others are connected, and who came through another
// node. Each client is there once.
func TestSessions(t *testing.T) {
	far, m := newPrimary(t, Config{})
	n := newNode(t, Config{})
	n.backend.dialPeer = func(ctx context.Context, _ cluster.NodeID) (net.Conn, error) {
		near, other := net.Pipe()
		far.HandleRouted(stream{Conn: other}, 9)
		return near, nil
	}
	clients := []net.Conn{dial(t, n), dial(t, n)}
	own := dial(t, far)
	expect(t, own, greeting)
	names := map[string]string{"pipe": "stream", own.LocalAddr().String(): "own"}
	for i, c := range clients {
		names[c.LocalAddr().String()] = fmt.Sprint("client", i)
	}
	compare := func(what string, n *node, want ...string) {
		t.Helper()
		eventually(t, what, func() bool { return len(n.Sessions()) == len(want) })
		if d := cmp.Diff(want, n.seen(names)); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
	compare("both are held", n, "client0 waits", "client1 waits")
	compare("one is connected", far, "own to 1 from 0")
	n.backend.set(Target{Node: 4}, true)
	for _, c := range clients {
		expect(t, c, greeting)
	}
	compare("both are passed on", n, "client0 to 4 from 0", "client1 to 4 from 0")
	compare("both came through node 9", far, "own to 1 from 0", "stream to 0 from 9", "stream to 0 from 9")
	known := map[string]bool{}
	for range 3 {
		known[(<-m.conns).RemoteAddr().String()] = true
	}
	for _, s := range far.Sessions() {
		if at := s.Server.String(); !known[at] {
			t.Errorf("the server does not know a client as %s", at)
		}
	}
	clients[0].Close()
	compare("one has gone", n, "client1 to 4 from 0")
}

// TestSessionsOfAttempts: a held client is there once, also during an attempt to connect it. A client whose
// first attempt is under way is shown as waiting, too.
func TestSessionsOfAttempts(t *testing.T) {
	n := newNode(t, Config{})
	dialing, goOn := make(chan struct{}), make(chan struct{})
	n.backend.dialPeer = func(context.Context, cluster.NodeID) (net.Conn, error) {
		dialing <- struct{}{}
		<-goOn
		return nil, fmt.Errorf("no")
	}
	n.backend.set(Target{Node: 4}, true)
	client := dial(t, n)
	for _, what := range []string{"at once", "again"} {
		<-dialing
		if d := cmp.Diff([]string{"it waits"}, n.seen(map[string]string{client.LocalAddr().String(): "it"})); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
		goOn <- struct{}{}
	}
	client.Close()
	eventually(t, "it is gone", func() bool {
		select {
		case <-dialing:
			goOn <- struct{}{}
		default:
		}
		return len(n.Sessions()) == 0
	})
}

// TestSessionsWhileClientsComeAndGo is for the race detector.
func TestSessionsWhileClientsComeAndGo(t *testing.T) {
	far, _ := newPrimary(t, Config{})
	n := newNode(t, Config{})
	n.forwardTo(far)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 50 {
			conn, err := net.Dial("tcp", n.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			fmt.Fprint(conn, "x")
			buf := make([]byte, 1)
			conn.Read(buf)
			conn.Close()
		}
	}()
	for looking := true; looking; {
		select {
		case <-done:
			looking = false
		default:
		}
		for _, s := range append(n.Sessions(), far.Sessions()...) {
			if s.Client == nil || s.Since.IsZero() || s.From != 0 && s.From != 9 {
				t.Fatalf("%+v", s)
			}
		}
	}
}

// TestHostOfAClientDies: an answer is under way to a client whose host has died. mysqld would keep the session's locks for about
// 15 minutes, because the kernel sends no keepalive meanwhile.
func TestHostOfAClientDies(t *testing.T) {
	n, m := newPrimary(t, Config{})
	client, other := dial(t, n), dial(t, n)
	expect(t, client, greeting)
	expect(t, other, greeting)
	deadhosttest.Die(t, client.(*net.TCPConn))
	for range 2 {
		if _, err := io.WriteString(<-m.conns, "an answer"); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the session of the dead host ended", func() bool {
		n.closeDead(100 * time.Millisecond)
		return n.Stats().Sessions < 2
	})
	expect(t, other, "an answer")
	say(t, other, "still here")
	expect(t, other, "still here")
}
