package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"

	"github.com/quorate/quorate/internal/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds how long a test waits for what must happen. Nothing is timed
// with it: a test that passes never waits that long.
const patience = 20 * time.Second

// within returns the next value of ch.
func within[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("%s did not happen within %v", what, patience)
		panic("unreachable")
	}
}

// peerEvent is one call of PeerUp ("up"), PeerDown ("lost", "refused").
type peerEvent struct {
	peer cluster.NodeID
	what string
}

// recorder is a Handler that puts every call into a channel.
type recorder struct {
	raft        chan *pb.Message
	statuses    chan string
	events      chan peerEvent
	unreachable chan cluster.NodeID
	rejected    chan *RejectedError
	routes      chan net.Conn
	reads       chan net.Conn
	bulks       chan bulkStream
	calls       chan bulkStream
	// onRaft, if set, is called before a message goes into raft.
	onRaft func(*pb.Message)
	// check answers CheckPeer, and caller answers CheckCaller. Without caller, check answers both.
	check, caller func(Identity) error
	// hears, if set, answers Hears; callers has the calls of Heard.
	hears   func() bool
	callers chan heardCall
}

// heardCall is a call of Heard: the code is codeAccepted for a node that is welcome.
type heardCall struct {
	name, from string
	code       Code
}

// bulkStream is a call of Bulk that lasts until done is closed.
type bulkStream struct {
	conn net.Conn
	from cluster.NodeID
	done chan struct{}
}

func newRecorder() *recorder {
	return &recorder{
		raft: make(chan *pb.Message, 1<<14), statuses: make(chan string, 64), events: make(chan peerEvent, 64),
		unreachable: make(chan cluster.NodeID, 1), rejected: make(chan *RejectedError, 1), routes: make(chan net.Conn, 4), reads: make(chan net.Conn, 4),
		bulks: make(chan bulkStream, 2*bulkStreamsMax), calls: make(chan bulkStream, 2*callStreamsMax),
		callers: make(chan heardCall, 4),
	}
}

func (r *recorder) Hears() bool { return r.hears != nil && r.hears() }

func (r *recorder) Heard(id Identity, from net.Addr, refused *RejectedError) {
	call := heardCall{name: id.NodeName}
	call.from, _, _ = net.SplitHostPort(from.String())
	if refused != nil {
		call.code = refused.Code
	}
	offer(r.callers, call)
}

func (r *recorder) Raft(m *pb.Message, _ bool) {
	if r.onRaft != nil {
		r.onRaft(m)
	}
	r.raft <- m
}
func (r *recorder) Status(_ cluster.NodeID, s []byte) error {
	if string(s) == "none" {
		return errors.New("that is none")
	}
	r.statuses <- string(s)
	return nil
}
func (r *recorder) PeerUp(id cluster.NodeID)              { r.events <- peerEvent{id, "up"} }
func (r *recorder) Route(c net.Conn, from cluster.NodeID) { r.routes <- c }

func (r *recorder) RouteRead(c net.Conn, from cluster.NodeID) { r.reads <- c }
func (r *recorder) Bulk(_ context.Context, from cluster.NodeID, c net.Conn) {
	s := bulkStream{conn: c, from: from, done: make(chan struct{})}
	r.bulks <- s
	<-s.done
}
func (r *recorder) Call(_ context.Context, from cluster.NodeID, c net.Conn) {
	s := bulkStream{conn: c, from: from, done: make(chan struct{})}
	r.calls <- s
	<-s.done
}
func (r *recorder) PeerUnreachable(id cluster.NodeID)             { offer(r.unreachable, id) }
func (r *recorder) Rejected(_ cluster.NodeID, err *RejectedError) { offer(r.rejected, err) }
func (r *recorder) PeerDown(id cluster.NodeID, refused bool) {
	what := "lost"
	if refused {
		what = "refused"
	}
	r.events <- peerEvent{id, what}
}
func (r *recorder) CheckCaller(id Identity) error {
	if r.caller != nil {
		return r.caller(id)
	}
	return r.CheckPeer(id)
}

func (r *recorder) CheckPeer(id Identity) error {
	if r.check != nil {
		return r.check(id)
	}
	return nil
}

// offer puts v into ch if there is room, so that a reader may come later.
func offer[T any](ch chan T, v T) {
	select {
	case ch <- v:
	default:
	}
}

func names(id cluster.NodeID) string { return string(rune('a' + id - 1)) }

func identity(id cluster.NodeID) Identity {
	return Identity{ClusterID: 0xc1, ClusterName: "shop", Node: id, NodeName: names(id), Instance: [16]byte{byte(id)}, Version: "1.0"}
}

// node is a Transport under test with its handler.
type node struct {
	*Transport
	*recorder
	stop     func()
	appendUp chan struct{}
}

// newNode returns a listening node; the address of peers is filled in by introduce.
func newNode(t testing.TB, id cluster.NodeID, peers ...cluster.NodeID) *node {
	t.Helper()
	return newNodeAt(t, "127.0.0.1:0", id, peers...)
}

func newNodeAt(t testing.TB, listen string, id cluster.NodeID, peers ...cluster.NodeID) *node {
	t.Helper()
	n := &node{recorder: newRecorder(), appendUp: make(chan struct{}, 64)}
	log := slog.New(appendWatch{Handler: slog.DiscardHandler, up: n.appendUp})
	cfg := Config{Identity: identity(id), Listen: listen, Handler: n.recorder, Logger: log}
	for _, p := range peers {
		cfg.Peers = append(cfg.Peers, Peer{ID: p, Name: names(p), Addr: "127.0.0.1:1"})
	}
	n.Transport = New(cfg)
	// By default a lost connection is dialled again at once in tests.
	n.tune.stable = 0
	if err := n.Listen(); err != nil {
		t.Fatal(err)
	}
	return n
}

// introduce tells each node the addresses of the others.
func introduce(nodes ...*node) {
	for _, n := range nodes {
		for _, o := range nodes {
			n.setAddr(o.cfg.Identity.Node, o.Addr().String())
		}
	}
}

func (n *node) setAddr(id cluster.NodeID, addr string) {
	if p := n.Transport.peer(id); p != nil {
		p.Addr = addr
	}
}

// start runs the node until stop is called or the test ends.
func (n *node) start(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	n.stop = sync.OnceFunc(func() {
		cancel()
		if err := within(t, ended, "the end of Run"); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(n.stop)
}

// pair returns nodes a and b, running and connected in both directions.
func pair(t testing.TB, prepare ...func(a, b *node)) (a, b *node) {
	t.Helper()
	a, b = newNode(t, nodeA, nodeB), newNode(t, nodeB, nodeA)
	introduce(a, b)
	for _, f := range prepare {
		f(a, b)
	}
	a.start(t)
	b.start(t)
	a.expect(t, nodeB, "up")
	b.expect(t, nodeA, "up")
	a.connected(t)
	b.connected(t)
	return a, b
}

// expect fails unless the next peer event is this one.
func (n *node) expect(t testing.TB, id cluster.NodeID, what string) {
	t.Helper()
	want := peerEvent{id, what}
	if got := within(t, n.events, fmt.Sprint(want)); got != want {
		t.Fatalf("peer event %v, want %v", got, want)
	}
}

// connected waits until the append connection, which has no event of its own,
// is up for the first time or again.
func (n *node) connected(t testing.TB) {
	t.Helper()
	within(t, n.appendUp, "the append connection")
}

// appendWatch is a log handler that signals "connected to peer" of append
// connections.
type appendWatch struct {
	slog.Handler
	isAppend bool
	up       chan struct{}
}

func (w appendWatch) Enabled(context.Context, slog.Level) bool { return true }

func (w appendWatch) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		w.isAppend = w.isAppend || a.Key == "class" && a.Value.String() == classAppend.String()
	}
	return w
}

func (w appendWatch) Handle(_ context.Context, r slog.Record) error {
	if w.isAppend && r.Message == "connected to peer" {
		w.up <- struct{}{}
	}
	return nil
}

// rawPeer listens as a peer that does only what a test lets it do.
func rawPeer(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

// answer accepts a connection, plays node id's side of the handshake and
// returns the connection with its class. It skips a dial that the other side
// gave up, as happens on a machine that stalls for a second.
func answer(ln net.Listener, id Identity) (net.Conn, class, error) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return nil, 0, err
		}
		if g, err := readGreeting(conn); err == nil {
			_, err = conn.Write(appendGreeting(nil, greeting{version: versionNewest, body: appendIdentity(nil, id)}))
			return conn, class(g.word), err
		}
		_ = conn.Close()
	}
}

// rawDial connects to n with a greeting and returns the answer.
func rawDial(t testing.TB, n *node, hello []byte) (net.Conn, greeting) {
	t.Helper()
	conn, err := net.Dial("tcp", n.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(hello); err != nil {
		t.Fatal(err)
	}
	g, err := readGreeting(conn)
	if err != nil {
		t.Fatal(err)
	}
	return conn, g
}

func helloFrom(from, to cluster.NodeID, c class) hello {
	return hello{class: c, target: to, id: identity(from), speaks: versions{versionFirst, versionNewest}.from(c)}
}

// expectClosed fails unless the other side closes conn without sending more.
func expectClosed(t testing.TB, conn net.Conn) {
	t.Helper()
	n, err := io.Copy(io.Discard, conn)
	if n != 0 || isTimeout(err) {
		t.Fatalf("connection still open: %d bytes, %v", n, err)
	}
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}

// numbered is an entry's data of the given size that begins with n.
func numbered(n uint64, size int) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, n), make([]byte, size)...)
}

// netDial connects to n and sends raw, which need not be a greeting.
func netDial(t testing.TB, n *node, raw []byte) (net.Conn, error) {
	t.Helper()
	conn, err := net.Dial("tcp", n.Addr().String())
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	_, err = conn.Write(raw)
	return conn, err
}
