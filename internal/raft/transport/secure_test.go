package transport

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/raft/nodekey"
	"github.com/quorate/quorate/internal/raft/nodekey/nodekeytest"
)

func newKey(t testing.TB) *nodekey.Key {
	t.Helper()
	k, err := nodekey.New()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// secured gives nodes keys, which the others know, before they start.
func secured(t testing.TB, s cluster.PeerSecurity, nodes ...*node) {
	t.Helper()
	for _, n := range nodes {
		n.key.Store(newKey(t))
		n.security.Store(&s)
	}
	for _, n := range nodes {
		for _, o := range nodes {
			if p := n.Transport.peer(o.cfg.Identity.Node); p != nil {
				p.Key = o.key.Load().Name()
			}
		}
	}
}

// protected tells for each connection that a peer has made to n whether it is TLS.
func (n *node) protected(id cluster.NodeID) (is []bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, in := range n.Transport.peer(id).inbound {
		if in != nil {
			_, plain := in.conn.(*net.TCPConn)
			is = append(is, !plain)
		}
	}
	return is
}

// awaitProtected waits until both connections that a peer has made to n are TLS, or both are not.
func (n *node) awaitProtected(t testing.TB, id cluster.NodeID, want bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		is := n.protected(id)
		if len(is) == 2 && is[0] == want && is[1] == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("protected: %v", is)
		}
	}
}

// TestSecured: over TLS, appends of all sizes arrive in their order, and a status and a route arrive whole.
func TestSecured(t *testing.T) {
	a, b := pair(t, func(a, b *node) { secured(t, cluster.PeersRequire, a, b) })
	for i := range uint64(200) {
		size := []int{0, 100, entryCopyBytesMax + 1, recordBytes, 300 << 10}[i%5]
		if i == 77 {
			size = 20 << 20
		}
		a.Send([]*pb.Message{appendMessage(i, numbered(i, size), numbered(i, 10))})
		m := within(t, b.raft, "an append")
		if m.GetCommit() != i || len(m.GetEntries()) != 2 || len(m.GetEntries()[0].GetData()) != len(numbered(i, size)) {
			t.Fatalf("message %d came as %d with %d entries", i, m.GetCommit(), len(m.GetEntries()))
		}
	}
	for i := range uint64(2000) { // faster than the reader takes them, so that Send cannot write all of them itself
		a.Send([]*pb.Message{appendMessage(i, numbered(i, 20<<10))})
		for len(b.raft) < int(i)-50 {
			time.Sleep(time.Millisecond)
		}
	}
	for i := range uint64(2000) {
		if m := within(t, b.raft, "an append"); m.GetCommit() != i {
			t.Fatalf("message %d came as %d", i, m.GetCommit())
		}
	}
	a.SendStatus([]byte("fine"))
	if s := within(t, b.statuses, "the status"); s != "fine" {
		t.Errorf("status %q", s)
	}
	b.awaitProtected(t, nodeA, true)
	near, err := a.DialRoute(t.Context(), nodeB)
	if err != nil {
		t.Fatal(err)
	}
	far := within(t, b.routes, "the route")
	big := bytes.Repeat([]byte("quorate"), 1<<18)
	go func() { _, _ = near.Write(big); _ = near.Close() }()
	if got, err := io.ReadAll(far); err != nil || !bytes.Equal(got, big) {
		t.Errorf("%d of %d bytes, %v", len(got), len(big), err)
	}
	_ = far.Close()
}

// TestKeysThatDoNotFit: node a dials node b, and one of them does not know the other's key. Node a hears why, and
// neither node hears who the other one is.
func TestKeysThatDoNotFit(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(a, b *node)
		by      string
	}{
		{"b does not know a's key", func(a, b *node) { b.Transport.peer(nodeA).Key = newKey(t).Name() }, "b"},
		{"b knows no key of a", func(a, b *node) { b.Transport.peer(nodeA).Key = "" }, "b"},
		{"another one answers at b's address", func(a, b *node) { a.Transport.peer(nodeB).Key = newKey(t).Name() }, "a"},
		{"a knows no key of b", func(a, b *node) { a.Transport.peer(nodeB).Key = "" }, "a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := newNode(t, nodeA, nodeB), newNode(t, nodeB, nodeA)
			introduce(a, b)
			secured(t, cluster.PeersRequire, a, b)
			c.prepare(a, b)
			a.check = func(Identity) error { t.Error("a hears who b is"); return nil }
			b.check = func(Identity) error { t.Error("b hears who a is"); return nil }
			b.setAddr(nodeA, "127.0.0.1:1") // b does not dial
			a.start(t)
			b.start(t)
			shown := map[string]cluster.Key{"a": b.key.Load().Name(), "b": a.key.Load().Name()}[c.by]
			if r := within(t, a.rejected, "a refusal"); r.Code != CodeKey || r.By != c.by || r.Key != shown {
				t.Errorf("code %d by %q, of key %s: %v", r.Code, r.By, r.Key, r)
			}
		})
	}
}

// TestDoubtfulAnswers: a node introduces itself, and a peer's address answers with another key than the peer's, or
// closes a connection without TLS. Such a peer counts as silent, and the reason is told.
func TestDoubtfulAnswers(t *testing.T) {
	for _, c := range []struct {
		name, says string
		prepare    func(a *node)
	}{
		{"another key", "is not the key of node \"b\": that node is known here by q1:", func(a *node) { a.Transport.peer(nodeB).Key = newKey(t).Name() }},
		{"no TLS", "if it requires TLS", func(a *node) { a.security.Store(new(cluster.PeersPlain)) }},
	} {
		a, b := newNode(t, nodeA, nodeB), newNode(t, nodeB, nodeA)
		introduce(a, b)
		secured(t, cluster.PeersRequire, a, b)
		c.prepare(a)
		b.start(t)
		i := a.Introduce(t.Context())
		if len(i.Rejections) > 0 || !slices.Equal(i.Silent, []string{"b"}) || !strings.Contains(i.Doubts["b"], c.says) {
			t.Errorf("%s: %+v", c.name, i)
		}
		a.Unlisten()
	}
}

// TestNextKey: a peer may come with either of its two keys, but not with the key of another member.
func TestNextKey(t *testing.T) {
	a, b := pair(t, func(a, b *node) {
		secured(t, cluster.PeersRequire, a, b)
		b.Transport.peer(nodeA).Key, b.Transport.peer(nodeA).NextKey = newKey(t).Name(), a.key.Load().Name()
	})
	a.Send([]*pb.Message{appendMessage(1, numbered(1, 10))})
	within(t, b.raft, "an append")
	// Another member cannot say that it is a.
	c := newNode(t, nodeC, nodeB)
	introduce(b, c)
	secured(t, cluster.PeersRequire, c)
	c.Transport.peer(nodeB).Key = b.key.Load().Name()
	b.SetPeers([]Peer{b.Transport.peer(nodeA).Peer, {ID: nodeC, Name: "c", Addr: "127.0.0.1:1", Key: c.key.Load().Name()}})
	c.cfg.Identity = identity(nodeA)
	if _, _, err := c.connect(t.Context(), c.Transport.peer(nodeB).Peer, classControl); err == nil {
		t.Error("c is a")
	} else if r, ok := errors.AsType[*RejectedError](err); !ok || r.Code != CodeKey {
		t.Error(err)
	}
}

// TestPlainAgainstRequire: where TLS is required, a connection without TLS is told nothing.
func TestPlainAgainstRequire(t *testing.T) {
	a, b := newNode(t, nodeA, nodeB), newNode(t, nodeB, nodeA)
	introduce(a, b)
	secured(t, cluster.PeersRequire, b)
	b.start(t)
	conn, err := net.Dial("tcp", b.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write(encodeHello(hello{class: classControl, target: nodeB, id: identity(nodeA), speaks: a.speaks})); err != nil {
		t.Fatal(err)
	}
	if told, _ := io.ReadAll(conn); len(told) > 0 {
		t.Errorf("told %q", told)
	}
	if got := b.Stats().HandshakesRejected; got != 1 {
		t.Errorf("%d rejections are counted", got)
	}
}

// TestStraddlingHandshakes: the security or a key changes in the middle of a handshake. A connection that was let in
// by the old rules is closed.
func TestStraddlingHandshakes(t *testing.T) {
	for _, c := range []struct {
		name   string
		is     cluster.PeerSecurity
		change func(b *node)
	}{
		{"without TLS", cluster.PeersBoth, func(b *node) { b.SetSecurity(cluster.PeersRequire) }},
		{"with a key that is taken away", cluster.PeersRequire, func(b *node) { b.know(nodeA, newKey(t).Name(), "") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := newNode(t, nodeA, nodeB), newNode(t, nodeB, nodeA)
			introduce(a, b)
			secured(t, c.is, a, b)
			if c.is == cluster.PeersBoth {
				a.key.Store(nil)
			}
			b.setAddr(nodeA, "127.0.0.1:1") // b does not dial
			change := sync.OnceFunc(func() { c.change(b) })
			b.check = func(Identity) error { change(); return nil }
			b.start(t)
			conn, err := a.DialRoute(t.Context(), nodeB)
			if err != nil {
				t.Fatal(err)
			}
			closed := make(chan struct{})
			go func() { _, _ = io.ReadAll(conn); close(closed) }()
			select {
			case far := <-b.routes:
				_ = far.Close()
				t.Error("it is served")
			case <-closed:
			}
			<-closed
		})
	}
}

// quiet is a connection that notes whether anything was written after the handshake.
type quiet struct {
	net.Conn
	shaken, wrote bool
}

func (c *quiet) Write(b []byte) (int, error) {
	c.wrote = c.wrote || c.shaken
	return c.Conn.Write(b)
}

// TestCloseSaysNothing: closing a TLS connection sends no goodbye, because it would have to wait until the other
// side takes that.
func TestCloseSaysNothing(t *testing.T) {
	a, b := newNode(t, nodeA, nodeB), newNode(t, nodeB, nodeA)
	defer a.Unlisten()
	defer b.Unlisten()
	secured(t, cluster.PeersRequire, a, b)
	near, far := net.Pipe()
	dialled, accepted := &quiet{Conn: near}, &quiet{Conn: far}
	server := abrupt{tls.Server(accepted, b.tlsConfig(func(cluster.Key) error { return nil })), accepted}
	shaken := make(chan error, 1)
	go func() { shaken <- server.HandshakeContext(t.Context()) }()
	client, err := a.wrap(t.Context(), dialled, a.Transport.peer(nodeB).Peer)
	if err != nil {
		t.Fatal(err)
	}
	if err := within(t, shaken, "the handshake"); err != nil {
		t.Fatal(err)
	}
	dialled.shaken, accepted.shaken = true, true
	if err := errors.Join(client.Close(), server.Close()); err != nil || dialled.wrote || accepted.wrote {
		t.Errorf("the dialled one says goodbye: %t, the accepted one: %t, %v", dialled.wrote, accepted.wrote, err)
	}
}

// TestSlowPeerGetsNothingPlain: where both kinds of connections are allowed, a peer that does not answer in time is not
// dialled without TLS.
func TestSlowPeerGetsNothingPlain(t *testing.T) {
	a, b := newNode(t, nodeA, nodeB), newNode(t, nodeB, nodeA)
	defer a.Unlisten()
	defer b.Unlisten()
	introduce(a, b)
	secured(t, cluster.PeersBoth, a, b)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	first := make(chan byte, 10)
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := silent.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				one := make([]byte, 1)
				if _, err := io.ReadFull(conn, one); err == nil {
					first <- one[0]
				}
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
			})
		}
	})
	a.setAddr(nodeB, silent.Addr().String())
	a.tune.handshakeTimeout /= 100
	if _, err := a.DialRoute(t.Context(), nodeB); err == nil {
		t.Error("it is connected")
	}
	_ = silent.Close()
	conns.Wait()
	close(first)
	var got []byte
	for b := range first {
		got = append(got, b)
	}
	if !slices.Equal(got, []byte{tlsRecord}) {
		t.Errorf("it was dialled with %x", got)
	}
}

// TestChangeOver: a peer without a key gets plain connections. Then a cluster changes from plain connections to TLS.
func TestChangeOver(t *testing.T) {
	a, b := pair(t, func(a, b *node) {
		secured(t, cluster.PeersBoth, a, b)
		b.key.Store(nil)
	})
	b.awaitProtected(t, nodeA, false)
	a.Send([]*pb.Message{appendMessage(1, numbered(1, 10))})
	within(t, b.raft, "an append")

	a, b = pair(t, func(a, b *node) { secured(t, cluster.PeersPlain, a, b) })
	for _, s := range []cluster.PeerSecurity{cluster.PeersBoth, cluster.PeersRequire} {
		a.SetSecurity(s)
		b.SetSecurity(s)
		a.awaitProtected(t, nodeB, true)
		b.awaitProtected(t, nodeA, true)
	}
	for deadline := time.Now().Add(patience); len(b.raft) == 0; time.Sleep(time.Millisecond) {
		if a.Send([]*pb.Message{appendMessage(2, numbered(2, 10))}); time.Now().After(deadline) { // a new link may still drop a message
			t.Fatal("no append comes")
		}
	}
}

// know sets the keys by which n knows a peer.
func (n *node) know(id cluster.NodeID, key, next cluster.Key) {
	p := n.Transport.peer(id).Peer
	p.Key, p.NextKey = key, next
	n.SetPeers([]Peer{p})
}

// TestRotatedKey: a node changes its key, and a stream that it has opened goes on. Then its old key is refused. If a
// key is replaced at once, without a time in which both hold, the stream ends.
func TestRotatedKey(t *testing.T) {
	a, b := pair(t, func(a, b *node) { secured(t, cluster.PeersRequire, a, b) })
	near, err := a.DialRoute(t.Context(), nodeB)
	if err != nil {
		t.Fatal(err)
	}
	far := within(t, b.routes, "the route")
	defer func() { _ = far.Close() }()
	passes := func() error {
		_ = near.SetDeadline(time.Now().Add(10 * time.Second))
		go func() { _, _ = far.Write([]byte("x")) }()
		_, err := io.ReadFull(near, make([]byte, 1))
		return err
	}
	dials := func() error {
		conn, err := a.DialRoute(t.Context(), nodeB)
		if err == nil {
			_ = conn.Close()
			_ = within(t, b.routes, "the route").Close()
		}
		return err
	}
	former, next := a.key.Load(), newKey(t)
	b.know(nodeA, former.Name(), next.Name())
	if err := dials(); err != nil {
		t.Errorf("before the change: %v", err)
	}
	a.SetKey(next)
	if err := dials(); err != nil {
		t.Errorf("with the next key: %v", err)
	}
	b.know(nodeA, next.Name(), "")
	if err := passes(); err != nil {
		t.Errorf("a stream was closed: %v", err)
	}
	a.SetKey(former)
	if _, err := a.DialCall(t.Context(), nodeB); !errors.As(err, new(*RejectedError)) {
		t.Errorf("with the former key: %v", err)
	}
	b.know(nodeA, newKey(t).Name(), "")
	if _, err := io.ReadAll(near); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the stream goes on, opened with a key that was taken away")
	}
}

// TestPlainLinkEnds: a connection began without TLS, because the peer did not know the key yet. Later it is replaced
// by a connection with TLS. Each moment before that counts as plain, also between two connections: else a cluster could
// require TLS, and lose the peer.
func TestPlainLinkEnds(t *testing.T) {
	a, b := pair(t, func(a, b *node) {
		secured(t, cluster.PeersPlain, a, b)
		a.SetSecurity(cluster.PeersBoth)
		a.tune.plainMax = 2 * time.Millisecond
		b.Transport.peer(nodeA).Key = ""
	})
	for n := range 10_000 {
		if s := a.Stats(); !s.Peers[0].Plain {
			t.Fatalf("b does not know a's key, look %d: %+v", n, s.Peers[0])
		}
	}
	b.know(nodeA, a.key.Load().Name(), "")
	b.awaitProtected(t, nodeA, true)
}

// TestClocksDoNotMatter: two nodes with keys of their own shake hands whatever the time is.
func TestClocksDoNotMatter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // its clock begins in 2000, before the keys were made
		a, b := New(Config{Identity: identity(nodeA), Logger: slog.New(slog.DiscardHandler)}), New(Config{Identity: identity(nodeB), Logger: slog.New(slog.DiscardHandler)})
		a.SetKey(newKey(t))
		b.SetKey(newKey(t))
		for range 4 {
			near, far := net.Pipe()
			server := tls.Server(far, b.tlsConfig(func(cluster.Key) error { return nil }))
			shaken := make(chan error, 1)
			go func() { shaken <- server.HandshakeContext(t.Context()) }()
			conn, err := a.wrap(t.Context(), near, Peer{Name: "b", Key: b.key.Load().Name()})
			if err := errors.Join(err, <-shaken); err != nil {
				t.Errorf("in %d: %v", time.Now().Year(), err)
				return
			}
			_, _ = conn.Close(), far.Close()
			time.Sleep(30 * 365 * 24 * time.Hour)
		}
	})
}

// TestAuthority: peers are known by the names in certificates of an authority. That a certificate has ended does not
// matter.
func TestAuthority(t *testing.T) {
	dir := t.TempDir()
	ca, other := nodekeytest.NewAuthority(t, filepath.Join(dir, "ca")), nodekeytest.NewAuthority(t, filepath.Join(dir, "other"))
	trust, err := nodekey.NewAuthority(ca.File)
	if err != nil {
		t.Fatal(err)
	}
	issued := func(by *nodekeytest.Authority, name string, ends time.Duration) *nodekey.Key {
		t.Helper()
		cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
		by.Issue(t, cert, key, time.Now().Add(ends), "quorate://shop/"+name)
		k, err := nodekey.LoadIssued(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	a, b := pair(t, func(a, b *node) {
		secured(t, cluster.PeersRequire, a, b)
		for _, n := range []*node{a, b} {
			n.cfg.Authority = trust
			for _, p := range n.allPeers() {
				p.Key = cluster.Key("ca:quorate://shop/" + p.Name)
			}
		}
		a.SetKey(issued(ca, "a", time.Hour))
		b.SetKey(issued(ca, "b", -time.Hour)) // this certificate has ended
	})
	b.awaitProtected(t, nodeA, true)
	a.awaitProtected(t, nodeB, true)
	for _, k := range []*nodekey.Key{issued(ca, "b", time.Hour), issued(ca, "c", time.Hour), issued(other, "a", time.Hour), newKey(t)} {
		a.SetKey(k)
		if _, err := a.DialRoute(t.Context(), nodeB); !errors.As(err, new(*RejectedError)) {
			t.Errorf("with the key %s: %v", k.Name(), err)
		}
	}
	a.SetKey(issued(ca, "a", time.Hour)) // a new certificate for a
	conn, err := a.DialRoute(t.Context(), nodeB)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	_ = within(t, b.routes, "the route").Close()
}

// TestAnswersAtWithItsKey: a node with the peer's name and another key is not taken for the peer.
func TestAnswersAtWithItsKey(t *testing.T) {
	a, b := pair(t, func(a, b *node) { secured(t, cluster.PeersRequire, a, b) })
	other := newNode(t, nodeB, nodeA)
	secured(t, cluster.PeersRequire, other)
	other.know(nodeA, a.key.Load().Name(), "")
	other.start(t)
	if err := a.AnswersAt(t.Context(), nodeB, other.Addr().String()); err == nil || !strings.Contains(err.Error(), "key") {
		t.Errorf("with another key: %v", err)
	}
	if err := a.AnswersAt(t.Context(), nodeB, b.Addr().String()); err != nil {
		t.Error(err)
	}
	close(within(t, b.calls, "the question").done) // the call asks nothing
}
