package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/cluster"
)

func TestRunNeedsListen(t *testing.T) {
	if err := New(Config{}).Run(t.Context()); !errors.Is(err, ErrNotListening) {
		t.Errorf("Run without Listen: %v", err)
	}
}

func TestPortInUseIsAnErrorOfListen(t *testing.T) {
	ln := rawPeer(t)
	if err := New(Config{Listen: ln.Addr().String()}).Listen(); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("Listen on a used port: %v", err)
	}
}

func TestEachClassArrivesInOrder(t *testing.T) {
	a, b := pair(t)
	const count = queueMessagesMax // of each class: no more fit before any is written
	for i := range uint64(count) {
		// Sizes cross the limit between copied and referenced data.
		m := appendMessage(i, numbered(i, int(i%7)*1000))
		if i%10 == 0 {
			m = appendMessage(i) // without entries, it must not overtake
		}
		a.Send([]*pb.Message{m, heartbeat(nodeA, nodeB, i)})
	}
	next := map[pb.MessageType]uint64{}
	for range 2 * count {
		m := within(t, b.raft, "the next message")
		want := next[m.GetType()]
		next[m.GetType()]++
		if m.GetCommit() != want {
			t.Fatalf("%v: commit %d, want %d", m.GetType(), m.GetCommit(), want)
		}
		for _, e := range m.GetEntries() {
			if got := binary.LittleEndian.Uint64(e.GetData()); got != want || e.GetIndex() != want+1 {
				t.Fatalf("entry %d of message %d holds %d", e.GetIndex(), want, got)
			}
		}
	}
	if s := a.Stats().Peers[0]; s.Append.DroppedMessages+s.Control.DroppedMessages != 0 {
		t.Errorf("dropped messages: %+v", s)
	}
}

// A follower that is busy with appends must still hear the heartbeats.
func TestHeartbeatsPassALargeAppend(t *testing.T) {
	release := make(chan struct{})
	a, b := pair(t, func(_, b *node) {
		b.onRaft = func(m *pb.Message) {
			if m.GetType() == pb.MsgApp {
				<-release
			}
		}
	})
	const large = 12 << 20 // more than the kernel takes from a reader that stalls
	appends := []*pb.Message{appendMessage(1, make([]byte, large)), appendMessage(2, make([]byte, large))}
	a.Send(appends)
	for i := range uint64(50) {
		a.Send([]*pb.Message{heartbeat(nodeA, nodeB, i)})
		if m := within(t, b.raft, "a heartbeat"); m.GetType() != pb.MsgHeartbeat || m.GetCommit() != i {
			t.Fatalf("received %v with commit %d, want heartbeat %d", m.GetType(), m.GetCommit(), i)
		}
	}
	close(release)
	for i := range uint64(2) {
		m := within(t, b.raft, "a large append")
		if m.GetIndex() != i+1 || len(m.GetEntries()[0].GetData()) != large {
			t.Fatalf("received %v at %d", m.GetType(), m.GetIndex())
		}
	}
}

// A peer that reads nothing must cost bounded memory, and Raft must be told of it.
func TestFullQueueDropsAndReports(t *testing.T) {
	ln := rawPeer(t)
	a := newNode(t, nodeA, nodeB)
	a.setAddr(nodeB, ln.Addr().String())
	a.start(t)
	for range 2 {
		conn, _, err := answer(ln, identity(nodeB))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
	}
	a.expect(t, nodeB, "up")
	a.connected(t)
	// The kernel's buffers fill first, then the queue.
	m, sent := appendMessage(1, make([]byte, 1<<20)), 0
	for ; a.Stats().Peers[0].Append.DroppedMessages == 0; sent++ {
		if sent == 10_000 {
			t.Fatal("10 GB went to a peer that reads nothing")
		}
		a.Send([]*pb.Message{m})
		if s := a.Stats().Peers[0].Append; s.QueuedBytes > appendQueueBytesMax {
			t.Fatalf("queue above its bound: %+v", s)
		}
	}
	if got := within(t, a.unreachable, "PeerUnreachable"); got != nodeB {
		t.Errorf("PeerUnreachable(%d)", got)
	}
	if s := a.Stats().Peers[0].Append; s.QueuedBytes+int64(s.SentBytes) < appendQueueBytesMax-2<<20 {
		t.Errorf("dropped before the queue was full: %+v", s)
	}
}

func TestQueueBounds(t *testing.T) {
	q := newQueue(3, 1000)
	m := heartbeat(nodeA, nodeB, 1)
	if q.push(m) {
		t.Error("a closed queue took a message")
	}
	q.start()
	if !q.push(appendMessage(1, make([]byte, 5000))) {
		t.Error("an empty queue refused a message above its bound")
	}
	if q.push(m) {
		t.Error("a queue above its bound took a message")
	}
	taken := q.take(nil)
	if len(taken) != 1 || q.push(m) {
		t.Error("what is being written must count against the bound")
	}
	q.done()
	for i := range 3 {
		if !q.push(m) {
			t.Errorf("push %d refused", i)
		}
	}
	if q.push(m) {
		t.Error("a fourth message was taken, the bound is 3")
	}
	q.take(taken)
	if n := q.stop(); n != 3 {
		t.Errorf("stop lost %d messages, want 3", n)
	}
	if open, messages, bytes := q.size(); open || messages != 0 || bytes != 0 {
		t.Errorf("after stop: open %v, %d messages, %d bytes", open, messages, bytes)
	}
}

func TestUnreachableWithoutConnection(t *testing.T) {
	a := newNode(t, nodeA, nodeB)
	a.start(t)
	a.Send([]*pb.Message{heartbeat(nodeA, nodeB, 1), appendMessage(1), heartbeat(nodeA, 9, 1)})
	if got := within(t, a.unreachable, "PeerUnreachable"); got != nodeB {
		t.Errorf("PeerUnreachable(%d)", got)
	}
	s := a.Stats()
	if s.Misaddressed != 1 || s.Peers[0].Control.DroppedMessages != 1 || s.Peers[0].Append.DroppedMessages != 1 {
		t.Errorf("stats %+v", s)
	}
}

// The signal for a fast failover: a dead process on a live host.
func TestDeadProcessIsRefusedOnceAndComesBack(t *testing.T) {
	a, b := pair(t)
	addr := b.Addr().String()
	b.stop()
	a.expect(t, nodeB, "lost")
	a.expect(t, nodeB, "refused")
	b = newNodeAt(t, addr, nodeB, nodeA)
	b.setAddr(nodeA, a.Addr().String())
	b.start(t)
	// "up" follows without a second "refused", however often a has dialled.
	a.expect(t, nodeB, "up")
	a.connected(t)
	a.Send([]*pb.Message{appendMessage(5)})
	if m := within(t, b.raft, "an append after the restart"); m.GetIndex() != 5 {
		t.Errorf("received %v", m)
	}
}

func TestRefusalIsReportedOnceAfterASignOfLife(t *testing.T) {
	a := newNode(t, nodeA, nodeB)
	defer func() { _ = a.listener.Close() }()
	l := a.Transport.peer(nodeB).links[classControl-1]
	refused, other := fmt.Errorf("dial: %w", errRefused), errors.New("timed out")
	var s dialState
	for i, c := range []struct {
		life bool
		err  error
		want int
	}{
		{false, refused, 0}, // never seen alive
		{true, other, 0},    // alive, now silent: no proof of anything
		{false, refused, 1},
		{false, refused, 0}, // known already
		{true, refused, 1},
	} {
		s.refusalDue = s.refusalDue || c.life
		l.failed(&s, c.err)
		if got := len(a.events); got != c.want {
			t.Errorf("step %d: %d events, want %d", i, got, c.want)
		}
		for len(a.events) > 0 {
			a.expect(t, nodeB, "refused")
		}
	}
}

// Raft must be told of appends that were on their way when the connection broke.
func TestLostAppendsAreReported(t *testing.T) {
	ln := rawPeer(t)
	a := newNode(t, nodeA, nodeB)
	a.setAddr(nodeB, ln.Addr().String())
	a.start(t)
	var appends net.Conn
	for range 2 {
		conn, c, err := answer(ln, identity(nodeB))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if c == classAppend {
			appends = conn
		}
	}
	a.connected(t)
	// Three times what the kernel holds for a reader that stalls.
	a.Send([]*pb.Message{appendMessage(1, make([]byte, 32<<20))})
	_ = appends.Close()
	if got := within(t, a.unreachable, "PeerUnreachable"); got != nodeB {
		t.Errorf("PeerUnreachable(%d)", got)
	}
	if s := a.Stats().Peers[0].Append; s.DroppedMessages != 1 || s.SentMessages != 0 || s.Losses != 1 {
		t.Errorf("stats %+v", s)
	}
}

// A connection that breaks while the process lives is no refusal.
func TestLostConnectionIsNotRefused(t *testing.T) {
	ln := rawPeer(t)
	a := newNode(t, nodeA, nodeB)
	a.setAddr(nodeB, ln.Addr().String())
	a.start(t)
	for range 3 {
		for {
			conn, c, err := answer(ln, identity(nodeB))
			if err != nil {
				t.Fatal(err)
			}
			if c == classControl {
				a.expect(t, nodeB, "up")
				_ = conn.Close()
				break
			}
			defer func() { _ = conn.Close() }()
		}
		a.expect(t, nodeB, "lost")
	}
}

// Run closes the listener last: while anything of the process is still at work,
// a dial must not be refused.
func TestListenerClosesLast(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	a, b := pair(t, func(_, b *node) {
		b.onRaft = func(*pb.Message) {
			close(entered)
			<-release
		}
	})
	a.Send([]*pb.Message{heartbeat(nodeA, nodeB, 1)})
	within(t, entered, "the heartbeat")
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		b.stop()
	}()
	a.expect(t, nodeB, "lost") // b is closing and waits for its handler
	if conn, err := net.Dial("tcp", b.Addr().String()); err != nil {
		t.Errorf("refused while the handler was still at work: %v", err)
	} else {
		_ = conn.Close()
	}
	close(release)
	within(t, stopped, "the end of b")
	a.expect(t, nodeB, "refused")
}

func TestPeerThatConnectsEndsTheBackOff(t *testing.T) {
	a, b := newNode(t, nodeA, nodeB), newNode(t, nodeB, nodeA)
	introduce(a, b)
	a.tune.rejectedWait, b.tune.rejectedWait = time.Millisecond, time.Hour
	allow := make(chan struct{})
	a.check = func(Identity) error {
		select {
		case <-allow:
			return nil
		default:
			return errors.New("not yet")
		}
	}
	b.start(t)
	a.start(t)
	within(t, b.rejected, "the rejection of b by a")
	close(allow)
	// a's own dials to b were refused by a's check as well; the next one is
	// taken, and tells b to try again.
	a.expect(t, nodeB, "up")
	b.expect(t, nodeA, "up")
}

func TestStatusLatestWins(t *testing.T) {
	a, b := newNode(t, nodeA, nodeB), newNode(t, nodeB, nodeA)
	introduce(a, b)
	a.SendStatus([]byte("old"))
	blob := []byte("new")
	a.SendStatus(blob)
	copy(blob, "bad") // the caller may use its buffer again
	a.SendStatus(make([]byte, controlFrameBytesMax+1))
	a.start(t)
	b.start(t)
	if got := within(t, b.statuses, "a status after the connection came up"); got != "new" {
		t.Errorf("status %q, want the latest", got)
	}
	a.SendStatus([]byte("newer"))
	if got := within(t, b.statuses, "the next status"); got != "newer" {
		t.Errorf("status %q", got)
	}
	if got := a.Stats().StatusTooLarge; got != 1 {
		t.Errorf("StatusTooLarge = %d", got)
	}
}

func TestCorruptFrameClosesTheConnection(t *testing.T) {
	good := encoded(t, classControl, heartbeat(nodeB, nodeA, 1))
	damaged := bytes.Clone(good)
	damaged[len(damaged)-1] ^= 0x10
	var wrongType batch
	if err := wrongType.add(frameStatus, nil, classAppend); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		class class
		raw   []byte
	}{
		"damaged payload":       {classControl, damaged},
		"wrong magic":           {classControl, []byte("GET / HTTP/1.1\r\n")},
		"another node's vote":   {classControl, encoded(t, classControl, heartbeat(nodeC, nodeA, 1))},
		"status on append":      {classAppend, wrongType.buf},
		"append on control":     {classControl, encoded(t, classAppend, appendMessage(1, []byte("x")))},
		"frame above the limit": {classControl, []byte{0x51, 0x46, 1, 1, 0, 0, 0, 0xff, 0, 0, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newNode(t, nodeA, nodeB)
			a.start(t)
			conn, g := rawDial(t, a, encodeHello(helloFrom(nodeB, nodeA, c.class)))
			if Code(g.word) != codeAccepted {
				t.Fatalf("rejected: %s", g.body)
			}
			if _, err := conn.Write(append(bytes.Clone(good), c.raw...)); err != nil {
				t.Fatal(err)
			}
			if m := within(t, a.raft, "the good frame"); m.GetType() != pb.MsgHeartbeat {
				t.Errorf("received %v", m)
			}
			expectClosed(t, conn)
			s := a.Stats().Peers[0]
			if s.Control.CorruptFrames+s.Append.CorruptFrames != 1 || len(a.raft) != 0 {
				t.Errorf("%d messages more, stats %+v", len(a.raft), s)
			}
		})
	}
}

// After a reconnect, nothing from the new connection is delivered before the
// old one's reader has ended.
func TestReconnectKeepsTheOrder(t *testing.T) {
	entered, release := make(chan uint64, 4), make(chan struct{})
	a := newNode(t, nodeA, nodeB)
	a.onRaft = func(m *pb.Message) {
		entered <- m.GetCommit()
		if m.GetCommit() == 1 {
			<-release
		}
	}
	a.start(t)
	hello := encodeHello(helloFrom(nodeB, nodeA, classControl))
	first, _ := rawDial(t, a, hello)
	if _, err := first.Write(encoded(t, classControl, heartbeat(nodeB, nodeA, 1))); err != nil {
		t.Fatal(err)
	}
	within(t, entered, "message 1")
	second, _ := rawDial(t, a, hello)
	expectClosed(t, first)
	// These round trips give a reader that does not wait the time to be seen. Of the new connections only the
	// newest one waits, however long the first connection's reader is at work.
	for range 20 {
		conn, _ := rawDial(t, a, hello)
		expectClosed(t, second)
		second = conn
	}
	if _, err := second.Write(encoded(t, classControl, heartbeat(nodeB, nodeA, 2))); err != nil {
		t.Fatal(err)
	}
	stacks := make([]byte, 1<<20)
	for began := time.Now(); strings.Count(string(stacks[:runtime.Stack(stacks, true)]), ".serveInbound(") > 2; runtime.Gosched() {
		if time.Since(began) > patience {
			t.Fatal("connections wait that were replaced")
		}
	}
	select {
	case n := <-entered:
		t.Fatalf("message %d delivered while the old reader was at work", n)
	default:
	}
	close(release)
	if n := within(t, entered, "message 2"); n != 2 {
		t.Errorf("message %d delivered", n)
	}
}

func TestIdleConnectionIsClosed(t *testing.T) {
	a := newNode(t, nodeA, nodeB)
	a.tune.idleTimeout = 20 * time.Millisecond
	a.start(t)
	conn, _ := rawDial(t, a, encodeHello(helloFrom(nodeB, nodeA, classAppend)))
	expectClosed(t, conn)
}

func TestIdleSenderPings(t *testing.T) {
	ln := rawPeer(t)
	a := newNode(t, nodeA, nodeB)
	a.tune.pingInterval = time.Millisecond
	a.setAddr(nodeB, ln.Addr().String())
	a.start(t)
	for range 2 {
		conn, c, err := answer(ln, identity(nodeB))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(patience))
		kind, payload, err := newFrameReader(conn, c).next()
		if err != nil || kind != framePing || len(payload) != 0 {
			t.Errorf("%v: frame %d with %d bytes, %v", c, kind, len(payload), err)
		}
	}
}

func TestPeerThatTalksBackIsDropped(t *testing.T) {
	ln := rawPeer(t)
	a := newNode(t, nodeA, nodeB)
	a.setAddr(nodeB, ln.Addr().String())
	a.start(t)
	for range 2 {
		conn, c, err := answer(ln, identity(nodeB))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if c != classControl {
			continue
		}
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		a.expect(t, nodeB, "up")
		a.expect(t, nodeB, "lost")
	}
}

func TestSocketOptions(t *testing.T) {
	ln := rawPeer(t)
	a := New(Config{})
	for c, want := range map[class]int{classControl: int(userTimeout.Milliseconds()), classRoute: 0, classBulk: 0, classCall: 0, classRead: 0} {
		conn, err := a.dial(t.Context(), Peer{Addr: ln.Addr().String()}, c)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		raw, err := conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var timeout, noDelay int
		if err := raw.Control(func(fd uintptr) {
			timeout, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
			noDelay, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY)
		}); err != nil {
			t.Fatal(err)
		}
		if timeout != want || noDelay != 1 {
			t.Errorf("%v: TCP_USER_TIMEOUT %d, want %d; TCP_NODELAY %d", c, timeout, want, noDelay)
		}
	}
}

func TestRouteIsARawStream(t *testing.T) {
	t.Run("read and write", func(t *testing.T) {
		a, b := pair(t)
		rawStream(t, b, a.DialRoute, b.routes)
	})
	t.Run("read", func(t *testing.T) {
		a, b := pair(t)
		rawStream(t, b, a.DialRead, b.reads)
	})
}

// rawStream fails unless a stream that dial opens to b carries bytes in both directions, also after b has stopped.
func rawStream(t *testing.T, b *node, dial func(context.Context, cluster.NodeID) (net.Conn, error), comes <-chan net.Conn) {
	near, err := dial(t.Context(), nodeB)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = near.Close() }()
	far := within(t, comes, "the route")
	defer func() { _ = far.Close() }()
	for _, c := range []struct{ from, to net.Conn }{{near, far}, {far, near}} {
		if _, err := c.from.Write([]byte("COM_QUERY")); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 9)
		if _, err := io.ReadFull(c.to, buf); err != nil || string(buf) != "COM_QUERY" {
			t.Fatalf("%q, %v", buf, err)
		}
	}
	// The handler owns its side of the stream: when the transport stops it does not close it.
	b.stop()
	if _, err := far.Write([]byte("x")); err != nil {
		t.Errorf("write after the end of Run: %v", err)
	}
}

// Bytes that come in one packet with the greeting belong to the stream.
func TestRouteKeepsEarlyBytes(t *testing.T) {
	a := newNode(t, nodeA, nodeB)
	a.start(t)
	conn, _ := rawDial(t, a, append(encodeHello(helloFrom(nodeB, nodeA, classRoute)), "early"...))
	far := within(t, a.routes, "the route")
	defer func() { _ = far.Close() }()
	_ = conn.Close()
	if got, err := io.ReadAll(far); string(got) != "early" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
}

func TestRouteErrors(t *testing.T) {
	a := newNode(t, nodeA, nodeB)
	b := newNode(t, nodeB) // does not know a
	introduce(a, b)
	b.start(t)
	defer func() { _ = a.listener.Close() }()
	if _, err := a.DialRoute(t.Context(), 9); !errors.Is(err, ErrUnknownPeer) {
		t.Errorf("unknown peer: %v", err)
	}
	var rejected *RejectedError
	if _, err := a.DialRoute(t.Context(), nodeB); !errors.As(err, &rejected) || rejected.Code != CodeUnknown {
		t.Errorf("rejected: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.DialRoute(ended, nodeB); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: %v", err)
	}
}
