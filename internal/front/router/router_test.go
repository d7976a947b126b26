package router

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quorate/quorate/internal/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testTimeout bounds every wait of a test.
const testTimeout = 10 * time.Second

// fakeBackend is one node's view of the cluster, as a test sets it.
type fakeBackend struct {
	mysqld    string // address of the node's fake mysqld
	serving   atomic.Bool
	answering atomic.Bool
	// whileAsked runs once, after Serving has looked and before it answers.
	whileAsked atomic.Pointer[func()]
	// beforeTakes runs once, before Takes looks.
	beforeTakes atomic.Pointer[func()]
	// dialLocal and dialPeer replace the dials if set.
	dialLocal func(context.Context) (net.Conn, error)
	dialPeer  func(context.Context, cluster.NodeID) (net.Conn, error)

	mu      sync.Mutex
	target  Target
	known   bool
	more    []Target // that may be chosen after target
	leaves  map[cluster.NodeID]bool
	changed chan struct{}
	asked   bool // Changed was called since the last change
	looked  bool // and then Leaves
}

func (b *fakeBackend) Choose(_ func(cluster.NodeID) int, tried []cluster.NodeID) (Target, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range append([]Target{b.target}, b.more...) {
		if b.known && !slices.Contains(tried, t.Node) {
			return t, true
		}
	}
	return Target{}, false
}

func (b *fakeBackend) Takes(t Target) bool {
	if f := b.beforeTakes.Swap(nil); f != nil {
		(*f)()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return t.Local && b.serving.Load() || !t.Local && b.known && slices.Contains(append(b.more, b.target), t)
}

func (b *fakeBackend) Leaves(t Target) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.looked = b.asked
	return b.leaves[t.Node] || !t.Local && b.known && !slices.Contains(append(b.more, b.target), t)
}

func (b *fakeBackend) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = true
	return b.changed
}

// watched tells whether the router, with sessions and no held clients, has checked the newest change.
func (b *fakeBackend) watched() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.looked
}

// set changes the answers and announces the change.
func (b *fakeBackend) set(t Target, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.target, b.known, b.asked, b.looked = t, known, false, false
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *fakeBackend) Serving() bool {
	serving := b.serving.Load()
	if f := b.whileAsked.Swap(nil); f != nil {
		(*f)()
	}
	return serving
}

func (b *fakeBackend) Answering() bool { return b.answering.Load() }

func (b *fakeBackend) DialLocal(ctx context.Context) (net.Conn, error) {
	if b.dialLocal != nil {
		return b.dialLocal(ctx)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", b.mysqld)
}

func (b *fakeBackend) DialPeer(ctx context.Context, id cluster.NodeID) (net.Conn, error) {
	return b.dialPeer(ctx, id)
}

// node is a router with its backend, running until the test ends.
type node struct {
	*Router
	backend *fakeBackend
	stop    func()
}

func newNode(t *testing.T, config Config) *node {
	t.Helper()
	config.Listen = "127.0.0.1:0"
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.HoldTimeout == 0 {
		config.HoldTimeout = testTimeout
	}
	if config.HoldMax == 0 {
		config.HoldMax = 10
	}
	config.HoldMax = max(config.HoldMax, 0) // -1: nobody may wait
	b := &fakeBackend{changed: make(chan struct{})}
	n := &node{Router: New(config, b), backend: b}
	if err := n.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	n.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(n.stop)
	eventually(t, "Run accepts work", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.base != nil
	})
	return n
}

// newPrimary is a node that serves, with a fake mysqld.
func newPrimary(t *testing.T, config Config) (*node, *fakeMysqld) {
	n, m := newNode(t, config), newMysqld(t)
	n.backend.mysqld = m.listener.Addr().String()
	n.backend.serving.Store(true)
	n.backend.set(Target{Node: 1, Local: true}, true)
	return n, m
}

// forwardTo makes from's streams to peers end at to's router.
func (n *node) forwardTo(to *node) {
	n.backend.dialPeer = func(context.Context, cluster.NodeID) (net.Conn, error) {
		near, far := net.Pipe()
		to.HandleRouted(far, 9)
		return near, nil
	}
	n.backend.set(Target{Node: 1}, true)
}

// A node begins to serve while the router looks at an earlier change: what was true then does not end the session of a
// client that comes now.
func TestSessionThatBeginsDuringALook(t *testing.T) {
	n, _ := newPrimary(t, Config{})
	n.backend.serving.Store(false)
	came := make(chan net.Conn, 1)
	meanwhile := func() {
		n.backend.serving.Store(true)
		conn := dial(t, n)
		expect(t, conn, greeting)
		came <- conn
	}
	n.backend.whileAsked.Store(&meanwhile)
	n.backend.set(Target{Node: 1, Local: true}, true)
	conn := <-came
	n.backend.set(Target{Node: 1, Local: true}, true)
	eventually(t, "the router has looked twice", n.backend.watched)
	say(t, conn, "hello")
	expect(t, conn, "hello")
	if closed := n.Stats().ClosedByChange; closed != 0 {
		t.Errorf("%d sessions were closed", closed)
	}
}

// TestSessionThatAsksDuringALook: a client that another node has sent here is registered before the look, and asks
// whether the node takes it during the look, when the node serves already.
func TestSessionThatAsksDuringALook(t *testing.T) {
	n, _ := newPrimary(t, Config{})
	n.backend.serving.Store(false)
	asks, mayAsk, took := make(chan struct{}), make(chan struct{}), make(chan struct{})
	first := func() {
		close(asks)
		<-mayAsk
	}
	n.backend.beforeTakes.Store(&first)
	client, routed := net.Pipe()
	t.Cleanup(func() { client.Close() })
	go n.HandleRouted(routed, 2)
	<-asks
	meanwhile := func() {
		n.backend.serving.Store(true)
		close(mayAsk)
		expect(t, client, string([]byte{statusAccepted})+greeting)
		close(took)
	}
	n.backend.whileAsked.Store(&meanwhile)
	n.backend.set(Target{Node: 1, Local: true}, true)
	<-took
	n.backend.set(Target{Node: 1, Local: true}, true)
	eventually(t, "the router has looked twice", n.backend.watched)
	say(t, client, "hello")
	expect(t, client, "hello")
	if closed := n.Stats().ClosedByChange; closed != 0 {
		t.Errorf("%d sessions were closed", closed)
	}
}

// greeting is what the fake mysqld says first.
const greeting = "greeting;"

// fakeMysqld greets and echoes.
type fakeMysqld struct {
	listener net.Listener
	conns    chan net.Conn // every accepted connection
	received atomic.Int64
}

func newMysqld(t *testing.T) *fakeMysqld {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &fakeMysqld{listener: l, conns: make(chan net.Conn, 100)}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			m.conns <- conn
			all.Go(func() { m.serve(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		close(m.conns)
		for conn := range m.conns {
			conn.Close()
		}
		all.Wait()
	})
	return m
}

func (m *fakeMysqld) serve(conn net.Conn) {
	defer conn.Close()
	io.WriteString(conn, greeting)
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		m.received.Add(int64(n))
		if err != nil {
			return
		}
		if _, err := conn.Write(buf[:n]); err != nil {
			return
		}
	}
}

// dial connects a client to a node's router.
func dial(t *testing.T, n *node) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", n.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(testTimeout))
	t.Cleanup(func() { conn.Close() })
	return conn
}

// expect reads exactly want from a client.
func expect(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	buf := make([]byte, len(want))
	if n, err := io.ReadFull(conn, buf); err != nil || string(buf) != want {
		t.Fatalf("read %q, %v, want %q", buf[:n], err, want)
	}
}

// expectEnd waits for the end of the stream and returns what came before it.
func expectEnd(t *testing.T, conn net.Conn) string {
	t.Helper()
	rest, err := io.ReadAll(conn)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("the connection was not closed: %v", err)
	}
	return string(rest)
}

func say(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

// eventually polls for a condition that no channel announces.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(testTimeout); !cond(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// errorPacket splits the packet that a rejected client got.
func errorPacket(t *testing.T, packet string) (code uint16, message string) {
	t.Helper()
	p := []byte(packet)
	if len(p) < 7 || int(p[0])|int(p[1])<<8|int(p[2])<<16 != len(p)-4 || p[3] != 0 || p[4] != 0xff {
		t.Fatalf("not an error packet: %q", packet)
	}
	return binary.LittleEndian.Uint16(p[5:]), string(p[7:])
}

func TestLocal(t *testing.T) {
	n, _ := newPrimary(t, Config{})
	client := dial(t, n)
	expect(t, client, greeting)
	payload := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	var writer sync.WaitGroup
	writer.Go(func() { client.Write(payload) })
	expect(t, client, string(payload))
	writer.Wait()
	client.Close()
	eventually(t, "the session ended", func() bool { return n.Stats().Open == 0 })
}

func TestServerEndsSession(t *testing.T) {
	n, m := newPrimary(t, Config{})
	client := dial(t, n)
	expect(t, client, greeting)
	(<-m.conns).Close()
	expectEnd(t, client)
	eventually(t, "the session ended", func() bool { return n.Stats().Open == 0 })
}

func TestForwarded(t *testing.T) {
	a, m := newPrimary(t, Config{})
	b := newNode(t, Config{})
	b.forwardTo(a)
	client := dial(t, b)
	expect(t, client, greeting)
	say(t, client, "select 1")
	expect(t, client, "select 1")
	if s := a.Stats(); s.Routed != 1 {
		t.Errorf("routed = %d, want 1", s.Routed)
	}

	// The lease of the primary counts: its end ends also the client of the other node.
	seen := m.received.Load()
	a.backend.serving.Store(false)
	say(t, client, "select 2")
	if rest := expectEnd(t, client); rest != "" {
		t.Errorf("read %q after the lease", rest)
	}
	if n := m.received.Load() - seen; n != 0 {
		t.Errorf("mysqld got %d bytes without a lease", n)
	}
}

func TestForwardedEndsWhenThePrimaryChanges(t *testing.T) {
	a, _ := newPrimary(t, Config{})
	b := newNode(t, Config{})
	b.forwardTo(a)
	client := dial(t, b)
	expect(t, client, greeting)

	b.backend.set(Target{}, false) // without a known primary, that proves nothing
	say(t, client, "x")
	expect(t, client, "x")
	b.backend.set(Target{Node: 2}, true)
	expectEnd(t, client)
	eventually(t, "it was counted", func() bool { return b.Stats().ClosedByChange == 1 })
}

func TestForwardedIsNotForwardedAgain(t *testing.T) {
	a := newNode(t, Config{})
	a.backend.dialPeer = func(context.Context, cluster.NodeID) (net.Conn, error) {
		t.Error("a routed client was forwarded again")
		return nil, errors.New("no")
	}
	a.backend.set(Target{Node: 3}, true)
	near, far := net.Pipe()
	a.HandleRouted(far, 9)
	if got := expectEnd(t, near); got != string([]byte{statusRefused}) {
		t.Errorf("status %q, want refused", got)
	}
}

func TestRefusedIsHeldAndTriedAgain(t *testing.T) {
	a, _ := newPrimary(t, Config{})
	a.backend.serving.Store(false)
	b := newNode(t, Config{})
	b.forwardTo(a)
	client := dial(t, b)
	eventually(t, "the client is held", func() bool { return b.Stats().Held == 1 })
	// No change is announced to b: it must find out by trying.
	a.backend.serving.Store(true)
	expect(t, client, greeting)
	eventually(t, "the place is free", func() bool { return b.Stats().Held == 0 })
}

func TestBadPeers(t *testing.T) {
	for name, status := range map[string]string{"unknown status": "\x07hello", "no status": ""} {
		t.Run(name, func(t *testing.T) {
			b := newNode(t, Config{HoldTimeout: time.Millisecond})
			b.backend.dialPeer = func(context.Context, cluster.NodeID) (net.Conn, error) {
				near, far := net.Pipe()
				go func() {
					io.WriteString(far, status)
					far.Close()
				}()
				return near, nil
			}
			b.backend.set(Target{Node: 1}, true)
			if code, _ := errorPacket(t, expectEnd(t, dial(t, b))); code != codeConnHost {
				t.Errorf("code %d, want %d", code, codeConnHost)
			}
		})
	}
}

func TestSilentPeer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	near, far := net.Pipe()
	defer far.Close()
	go cancel()
	if err := readStatus(ctx, near); !errors.Is(err, context.Canceled) {
		t.Errorf("readStatus = %v, want the context's error", err)
	}
}

func TestStop(t *testing.T) {
	n, _ := newPrimary(t, Config{})
	connected := dial(t, n)
	expect(t, connected, greeting)
	n.backend.set(Target{}, false)
	held := dial(t, n)
	eventually(t, "the client is held", func() bool { return n.Stats().Held == 1 })
	n.stop()
	expectEnd(t, connected)
	expectEnd(t, held)
	if s := n.Stats(); s.Open != 0 || s.Held != 0 || s.Sessions != 0 {
		t.Errorf("after Run: %+v", s)
	}
	near, far := net.Pipe()
	go n.HandleRouted(far, 9)
	if got := expectEnd(t, near); got != string([]byte{statusRefused}) {
		t.Errorf("status %q after Run, want refused", got)
	}
	if _, err := net.Dial("tcp", n.Addr().String()); err == nil {
		t.Error("the port is still open after Run")
	}
}

func TestPortInUse(t *testing.T) {
	n := newNode(t, Config{})
	r := New(Config{Listen: n.Addr().String()}, n.backend)
	if err := r.Listen(); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("Listen = %v, want EADDRINUSE", err)
	}
	if err := r.Run(t.Context()); err == nil {
		t.Error("Run without Listen returned nil")
	}
}

// TestMovedDuringRegistration: a target that was the primary when it was chosen, but is not any
// more when the session is registered, is not dialled.
func TestMovedDuringRegistration(t *testing.T) {
	n := newNode(t, Config{})
	n.backend.set(Target{Node: 2}, true)
	if _, err := n.dial(t.Context(), Target{Node: 1}); !errors.Is(err, errMoved) {
		t.Errorf("dial of the old primary: %v, want errMoved", err)
	}
	n.backend.set(Target{}, false)
	if _, err := n.dial(t.Context(), Target{Node: 1}); !errors.Is(err, errMoved) {
		t.Errorf("dial without a primary: %v, want errMoved", err)
	}
}
