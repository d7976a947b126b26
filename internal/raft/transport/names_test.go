package transport

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// nameServer is what a node asks for the addresses of names.
type nameServer struct {
	at    string
	dead  atomic.Bool
	fails error
	// slow is how long each answer takes.
	slow time.Duration
}

func (s *nameServer) lookup(ctx context.Context, host string) ([]net.IPAddr, error) {
	if ip := net.ParseIP(host); ip != nil {
		return []net.IPAddr{{IP: ip}}, nil
	}
	if s.dead.Load() && s.fails != nil {
		return nil, s.fails
	}
	wait := time.After(s.slow)
	if s.dead.Load() {
		wait = nil
	}
	select {
	case <-wait:
		return []net.IPAddr{{IP: net.ParseIP(s.at)}}, nil
	case <-ctx.Done():
		return nil, &net.DNSError{Err: ctx.Err().Error(), Name: host, IsTimeout: errors.Is(ctx.Err(), context.DeadlineExceeded), UnwrapErr: ctx.Err()}
	}
}

// named replaces the address of a peer by a name with the same port.
func (n *node) named(t testing.TB, of *node, s *nameServer) {
	t.Helper()
	_, port, err := net.SplitHostPort(of.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n.lookup = s.lookup
	id := of.cfg.Identity.Node
	n.SetPeers([]Peer{{ID: id, Name: names(id), Addr: net.JoinHostPort(names(id)+".test", port)}})
}

// TestPeerIsDialledWithoutNameServers: a peer whose name was found once is dialled there while its name is not found
// any more. A refusal there says nothing: another host may have the address by now.
func TestPeerIsDialledWithoutNameServers(t *testing.T) {
	for name, fails := range map[string]error{"silent": nil, "no such host": &net.DNSError{Err: "no such host", Name: "b.test", IsNotFound: true}} {
		t.Run(name, func(t *testing.T) {
			a, b := newNode(t, nodeA, nodeB), newNode(t, nodeB, nodeA)
			log, server := &lockedBuffer{}, &nameServer{at: "127.0.0.1", fails: fails}
			a.cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
			a.named(t, b, server)
			b.setAddr(nodeA, a.Addr().String())
			a.start(t)
			b.start(t)
			a.expect(t, nodeB, "up")
			b.expect(t, nodeA, "up")
			server.dead.Store(true)
			stream := func() bool {
				conn, err := a.DialRoute(t.Context(), nodeB)
				if err != nil {
					return false // this machine is busy
				}
				_ = conn.Close()
				_ = within(t, b.routes, "the stream").Close()
				return true
			}
			for range 3 {
				await(t, stream)
			}
			if p, text := a.peer(nodeB), "is not found: it is dialled"; !p.lost.Load() || strings.Count(log.String(), text) != 1 {
				t.Errorf("%d lines say that the name is not found, want 1:\n%s", strings.Count(log.String(), text), log.String())
			}

			b.stop()
			a.expect(t, nodeB, "lost")
			await(t, func() bool {
				return strings.Contains(a.DialError(nodeB), "connection refused. That may be no address of it")
			})
			b = newNodeAt(t, b.Addr().String(), nodeB, nodeA)
			b.setAddr(nodeA, a.Addr().String())
			b.start(t)
			a.expect(t, nodeB, "up") // and no "refused" before

			server.dead.Store(false)
			await(t, func() bool {
				return stream() && (fails == nil || strings.Count(log.String(), "is found again") == 1) // a lookup that got no answer is still under way
			})
		})
	}
}

// TestPeerIsFoundBySlowNameServers: a node that has just started finds a peer by a name server that takes longer than
// a dial may, as where the first of two name servers is dead. An address that has changed is found, too.
func TestPeerIsFoundBySlowNameServers(t *testing.T) {
	a, b := newNode(t, nodeA, nodeB), newNode(t, nodeB, nodeA)
	a.tune.dialTimeout = 300 * time.Millisecond
	log, server := &lockedBuffer{}, &nameServer{at: "127.0.0.1", slow: 500 * time.Millisecond}
	a.cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	a.named(t, b, server)
	b.setAddr(nodeA, a.Addr().String())
	p := a.peer(nodeB)
	p.at.Store(&[]net.IPAddr{{IP: net.ParseIP("127.0.0.2")}}) // where nobody listens
	a.start(t)
	b.start(t)
	a.expect(t, nodeB, "up")
	for range 20 {
		conn, err := a.DialRoute(t.Context(), nodeB)
		if err != nil {
			continue // this machine is busy
		}
		_ = conn.Close()
		_ = within(t, b.routes, "the stream").Close()
	}
	if lost, found := strings.Count(log.String(), "is not found: it is dialled"), strings.Count(log.String(), "is found again"); lost != 1 || found != 0 {
		t.Errorf("the log has the trouble %d times and its end %d times, want 1 and 0:\n%s", lost, found, log.String())
	}

	c := newNode(t, nodeC, nodeB)
	c.tune.dialTimeout = 300 * time.Millisecond
	b.SetPeers([]Peer{peerOf(a), peerOf(c)})
	c.named(t, b, server)
	c.start(t)
	c.expect(t, nodeB, "up")
}

// TestAddressesEndWithTheDial: a dial that is given up does not wait for a name, and no address from before is said to
// be needed.
func TestAddressesEndWithTheDial(t *testing.T) {
	a, b := newNode(t, nodeA, nodeB), newNode(t, nodeB)
	defer func() { _ = b.listener.Close() }()
	a.tune.dialTimeout = patience
	server := &nameServer{}
	server.dead.Store(true)
	a.named(t, b, server)
	p := a.peer(nodeB)
	p.at.Store(&[]net.IPAddr{{IP: net.ParseIP("127.0.0.1")}})
	a.start(t)
	await(t, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return p.finding != nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if conn, err := a.DialRoute(ctx, nodeB); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, %v", conn, err)
	}
	if p.lost.Load() {
		t.Error("a dial that was given up counts as trouble")
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := a.dial(ctx, Peer{ID: nodeB, Addr: "elsewhere.test:1"}, classCall); err == nil || !strings.HasPrefix(err.Error(), "dial peer: lookup elsewhere.test: ") {
		t.Errorf("a dial to another address of the peer: %v", err)
	}
}
