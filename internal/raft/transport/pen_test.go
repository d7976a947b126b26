package transport

import (
	"encoding/binary"
	"log/slog"
	"net"
	"sync"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
)

// penLink is a link over a connection, without the link's goroutine: so Send wrote everything that is written.
func penLink(t *testing.T) (l *link, here, there net.Conn) {
	t.Helper()
	ln := rawPeer(t)
	here, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if there, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = here.Close(), there.Close() })
	tr := New(Config{Identity: identity(nodeA), Peers: []Peer{{ID: nodeB, Name: "b"}}, Logger: slog.New(slog.DiscardHandler)})
	l = tr.peer(nodeB).links[classAppend-1]
	l.pen.begin(here)
	l.q.start()
	return l, here, there
}

func (l *link) woken() bool {
	select {
	case <-l.q.wake:
		return true
	default:
		return false
	}
}

// TestSendWakesNobody: with nothing in its way Send writes by itself, also pieces that were
// not copied.
func TestSendWakesNobody(t *testing.T) {
	l, _, there := penLink(t)
	frames := newFrameReader(there, classAppend)
	for i := range uint64(3) {
		l.t.Send([]*pb.Message{appendMessage(i, numbered(i, 100), numbered(i, 2*entryCopyBytesMax)), appendMessage(i)})
		if l.woken() {
			t.Fatal("Send woke the link's goroutine")
		}
		for n := range 2 {
			_, payload, err := frames.next()
			if err != nil {
				t.Fatal(err)
			}
			m, err := decodeAppend(payload, nodeA, nodeB)
			if err != nil || m.GetCommit() != i || len(m.GetEntries()) != 2-2*n {
				t.Fatalf("%v, %v", m, err)
			}
		}
	}
	if s := l.t.Stats().Peers[0].Append; s.SentMessages != 6 || s.QueuedMessages != 0 || s.QueuedBytes != 0 {
		t.Errorf("%+v", s)
	}
}

// TestSendLeavesTheRest: Send leaves to the goroutine what the kernel does not take, and long
// messages. The goroutine writes them whole and in order, and Send writes nothing meanwhile.
func TestSendLeavesTheRest(t *testing.T) {
	l, here, there := penLink(t)
	sent := uint64(0)
	send := func(size int) {
		l.t.Send([]*pb.Message{appendMessage(sent, numbered(sent, size))})
		sent++
	}
	send(sendNowBytesMax + 1)
	if !l.woken() || l.t.Stats().Peers[0].Append.SentMessages != 0 {
		t.Fatalf("Send wrote a long message itself: %+v", l.t.Stats().Peers[0].Append)
	}
	if err := l.writeAll(here, false); err != nil {
		t.Fatal(err)
	}
	for sent < queueMessagesMax && !l.woken() {
		send(3*entryCopyBytesMax + int(sent%100))
	}
	if len(l.pen.unsent) == 0 {
		t.Fatalf("the kernel took %d messages, and nobody reads", sent)
	}
	send(10)
	if !l.woken() {
		t.Fatal("the goroutine does not learn of what waits")
	}
	written := make(chan error, 1)
	go func() { written <- l.writeAll(here, false) }()
	frames := newFrameReader(there, classAppend)
	for i := range sent {
		_, payload, err := frames.next()
		if err != nil {
			t.Fatal(err)
		}
		m, err := decodeAppend(payload, nodeA, nodeB)
		if err != nil || binary.LittleEndian.Uint64(m.GetEntries()[0].GetData()) != i {
			t.Fatalf("message %d is %v, %v", i, m, err)
		}
	}
	if err := within(t, written, "the write"); err != nil {
		t.Fatal(err)
	}
	if s := l.t.Stats().Peers[0].Append; s.SentMessages != sent || s.QueuedMessages != 0 || s.QueuedBytes != 0 {
		t.Errorf("%d sent: %+v", sent, s)
	}
}

// TestBrokenConnectionIsTheGoroutines: the goroutine, and not Send, finds that a connection is broken. What Send
// had taken is dropped with the connection, and counted.
func TestBrokenConnectionIsTheGoroutines(t *testing.T) {
	l, here, _ := penLink(t)
	_ = here.Close()
	l.t.Send([]*pb.Message{appendMessage(1, []byte("x"))})
	if !l.woken() {
		t.Fatal("the goroutine does not learn of it")
	}
	if err := l.writeAll(here, false); err == nil {
		t.Fatal("wrote to a closed connection")
	}
	l.pen.begin(nil)
	if n := l.q.stop(); n != 1 {
		t.Errorf("%d messages were lost, want 1", n)
	}
	l.t.Send([]*pb.Message{appendMessage(1, []byte("x"))})
	if l.woken() || l.dropped.Load() != 1 {
		t.Errorf("%d messages dropped without a connection, want 1", l.dropped.Load())
	}
}

// TestManySend: several goroutines send at once. The messages of each goroutine arrive in its order.
func TestManySend(t *testing.T) {
	a, b := pair(t)
	const senders, count = 4, queueMessagesMax / 8
	var all sync.WaitGroup
	for s := range uint64(senders) {
		all.Go(func() {
			for i := range uint64(count) {
				a.Send([]*pb.Message{appendMessage(s<<32|i, numbered(i, int(i%50)*500)), heartbeat(nodeA, nodeB, s<<32|i)})
			}
		})
	}
	type key struct {
		kind   pb.MessageType
		sender uint64
	}
	next := map[key]uint64{}
	for range 2 * senders * count {
		m := within(t, b.raft, "the next message")
		k := key{m.GetType(), m.GetCommit() >> 32}
		if got := m.GetCommit() & (1<<32 - 1); got != next[k] {
			t.Fatalf("%v: message %d of sender %d, want %d", k.kind, got, k.sender, next[k])
		}
		next[k]++
	}
	all.Wait()
}
