package transport

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/cluster"
)

func peerOf(n *node) Peer {
	id := n.cfg.Identity.Node
	return Peer{ID: id, Name: names(id), Addr: n.Addr().String()}
}

// TestPeersComeAndGo: while the nodes run, a node becomes a peer, and a peer is
// removed.
func TestPeersComeAndGo(t *testing.T) {
	a, b := pair(t)
	c := newNode(t, nodeC, nodeA)
	introduce(a, c)
	c.start(t)
	if r := within(t, c.rejected, "a's refusal"); r.Code != CodeUnknown {
		t.Fatalf("before: %v", r)
	}
	before := a.peer(nodeB)
	a.SetPeers([]Peer{peerOf(a), peerOf(b), peerOf(c)})
	if a.peer(nodeB) != before {
		t.Error("the connections to a peer that stays were not kept")
	}
	a.expect(t, nodeC, "up")
	from, to := uint64(nodeA), uint64(nodeC)
	a.Send([]*pb.Message{{Type: pb.MsgHeartbeat.Enum(), From: &from, To: &to, Term: &from}})
	if m := within(t, c.raft, "the message to c"); m.GetFrom() != from {
		t.Errorf("from %d", m.GetFrom())
	}
	a.SetPeers([]Peer{peerOf(c)})
	b.expect(t, nodeA, "lost")
	if r := within(t, b.rejected, "a's refusal"); r.Code != CodeUnknown {
		t.Errorf("after: %v", r)
	}
	to = uint64(nodeB)
	a.Send([]*pb.Message{{Type: pb.MsgHeartbeat.Enum(), From: &from, To: &to, Term: &from}})
	if n := a.Stats().Misaddressed; n != 1 || len(a.Stats().Peers) != 1 {
		t.Errorf("%d misaddressed messages, %d peers", n, len(a.Stats().Peers))
	}
}

// TestStreamsOfARemovedPeer: the streams of a removed peer are closed. A call gets some time
// for its answer.
func TestStreamsOfARemovedPeer(t *testing.T) {
	a, b := newNode(t, nodeA, nodeB), newNode(t, nodeB, nodeA)
	introduce(a, b)
	b.tune.leaverCallTime = time.Second
	a.start(t)
	b.start(t)
	a.expect(t, nodeB, "up")
	route, err := a.DialRoute(t.Context(), nodeB)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = route.Close() })
	held := within(t, b.routes, "the routed stream")
	bulk := dialBulk(t, a)
	copied := within(t, b.bulks, "the bulk stream")
	call, err := a.DialCall(t.Context(), nodeB)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = call.Close() })
	asked := within(t, b.calls, "the call")
	removed := time.Now()
	b.SetPeers(nil)
	expectClosed(t, route)
	expectClosed(t, bulk)
	if _, err := asked.conn.Write([]byte("x")); err != nil {
		t.Errorf("answer the call: %v", err)
	}
	if n, err := call.Read(make([]byte, 1)); n != 1 {
		t.Errorf("the answer: %v", err)
	}
	expectClosed(t, call)
	if took := time.Since(removed); took < time.Second {
		t.Errorf("the call had %v", took)
	}
	_ = held.Close()
	close(copied.done)
	close(asked.done)
}

// TestPeerMoves: a peer that gets another address is dialled there.
func TestPeerMoves(t *testing.T) {
	a, b := pair(t)
	moved := newNode(t, nodeB, nodeA)
	introduce(a)
	moved.setAddr(nodeA, a.Addr().String())
	b.stop()
	moved.start(t)
	a.SetPeers([]Peer{peerOf(moved)})
	moved.expect(t, nodeA, "up")
	from, to := uint64(nodeA), uint64(nodeB)
	for within(t, a.events, "the connection to the new address").what != "up" { // it was lost, and may have been refused
	}
	a.Send([]*pb.Message{{Type: pb.MsgHeartbeat.Enum(), From: &from, To: &to, Term: &from}})
	if m := within(t, moved.raft, "the message"); m.GetTo() != to {
		t.Errorf("to %d", m.GetTo())
	}
}

// TestAnswersAt: AnswersAt finds a peer where it listens, takes no other node for it, and ends no connection with it.
func TestAnswersAt(t *testing.T) {
	a, b := pair(t)
	c := newNode(t, nodeC, nodeA)
	introduce(a, c)
	c.start(t)
	before := a.peer(nodeB)
	moved := newNode(t, nodeB, nodeA) // stands for b restarted elsewhere
	moved.start(t)
	for addr, why := range map[string]string{
		b.Addr().String(): "", moved.Addr().String(): "",
		c.Addr().String(): `node "a" looked for node`, a.Addr().String(): `node "a" looked for node`, "127.0.0.1:1": "connection refused",
	} {
		err := a.AnswersAt(t.Context(), nodeB, addr)
		if why == "" && err != nil || why != "" && (err == nil || !strings.Contains(err.Error(), why)) {
			t.Errorf("at %s: %v, want %q", addr, err, why)
		}
	}
	for _, n := range []*node{b, moved} {
		close(within(t, n.calls, "the question").done) // the call asks nothing
	}
	if err := a.AnswersAt(t.Context(), 77, b.Addr().String()); !errors.Is(err, ErrUnknownPeer) {
		t.Errorf("nobody: %v", err)
	}
	if a.peer(nodeB) != before || before.Addr != b.Addr().String() {
		t.Error("the peer is another one now")
	}
}

// TestRemovedPeerIsTold: a former member is told that it was removed.
func TestRemovedPeerIsTold(t *testing.T) {
	a := newNode(t, nodeA)
	c := newNode(t, nodeC, nodeA)
	introduce(a, c)
	recovery := cluster.Recovery{Version: 1_000_000, Node: "a", By: "root"}
	a.SetFormer(Former{Removed: []cluster.NodeID{nodeC}, Recovery: &recovery})
	a.start(t)
	c.start(t)
	want := &RejectedError{Code: CodeRemoved, Text: `node "c" was removed from cluster "shop"`, Order: Order{Recovery: new(recovery.Told())}, By: "a"}
	if diff := cmp.Diff(want, within(t, c.rejected, "a's refusal")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCodeOfCheckPeer: a refusal of the handler keeps the code that the handler gave it.
func TestCodeOfCheckPeer(t *testing.T) {
	for want, err := range map[Code]error{CodePeer: errors.New("no"), CodeRebuild: &RejectedError{Code: CodeRebuild}} {
		a := newNode(t, nodeA)
		c := newNode(t, nodeC, nodeA)
		introduce(a, c)
		a.SetPeers([]Peer{peerOf(c)})
		a.check = func(Identity) error { return err }
		a.start(t)
		c.start(t)
		if r := within(t, c.rejected, "a's refusal"); r.Code != want {
			t.Errorf("refused with %v, want code %d", r, want)
		}
		a.stop()
		c.stop()
	}
}

// TestWhoRefuses: both sides of a refusal say who refuses, and whom.
func TestWhoRefuses(t *testing.T) {
	a, c := newNode(t, nodeA), newNode(t, nodeC, nodeA)
	introduce(a, c)
	a.SetPeers([]Peer{peerOf(c)})
	a.check = func(Identity) error { return &RejectedError{Code: CodeRebuild, Text: `node "c" is to be rebuilt`} }
	a.start(t)
	c.start(t)
	for who, n := range map[string]*node{"the one that is refused": c, "the one that refuses": a} {
		r := within(t, n.rejected, who)
		if want := `node "a" refuses the connection: node "c" is to be rebuilt`; r.Error() != want || r.Text != `node "c" is to be rebuilt` {
			t.Errorf("%s: %q, %q", who, r, r.Text)
		}
	}
}

// TestDialError: DialError says why a peer cannot be reached, until it can be reached.
func TestDialError(t *testing.T) {
	nobody := newNode(t, nodeA, nodeB)
	fail := func(n *node) {
		_, _, err := n.connect(t.Context(), nobody.peer(nodeB).Peer, classControl)
		if err == nil {
			t.Fatal("somebody is there")
		}
		n.peer(nodeB).links[classControl-1].failed(&dialState{}, err)
	}
	if text := nobody.DialError(nodeB); text != "" {
		t.Errorf("before it has dialled: %s", text)
	}
	fail(nobody)
	if text := nobody.DialError(nodeB); text != "connection refused" {
		t.Errorf("it is said: %s", text)
	}
	a, _ := pair(t, func(a, _ *node) { fail(a) })
	if text := a.DialError(nodeB); text != "" {
		t.Errorf("while it is connected: %s", text)
	}
}

// TestHangup: a peer whose connections were ended dials again, and is judged again.
func TestHangup(t *testing.T) {
	judged := make(chan cluster.NodeID, 16)
	a, b := pair(t, func(a, _ *node) {
		a.check = func(id Identity) error { judged <- id.Node; return nil }
	})
	for len(judged) > 0 {
		<-judged
	}
	a.Hangup(nodeB)
	b.expect(t, nodeA, "lost")
	b.expect(t, nodeA, "up")
	if id := within(t, judged, "the judgement"); id != nodeB {
		t.Errorf("node %d is judged", id)
	}
	a.Hangup(nodeC) // no peer
}

// TestHangupInTheHandshake: Hangup also ends a connection that CheckPeer has judged already, and that the transport
// does not hold yet.
func TestHangupInTheHandshake(t *testing.T) {
	for _, c := range []class{classControl, classAppend} {
		a := newNode(t, nodeA, nodeB)
		a.tune.idleTimeout = 2 * patience // a shorter one would end the connection, too
		a.check = func(Identity) error { a.Hangup(nodeB); return nil }
		a.start(t)
		conn, g := rawDial(t, a, encodeHello(helloFrom(nodeB, nodeA, c)))
		if Code(g.word) != codeAccepted {
			t.Fatalf("%v: answered with %d", c, g.word)
		}
		expectClosed(t, conn)
		a.stop()
	}
}

// TestStreamsOfASilentPeer: when nothing more comes from a peer's host, the routed streams end on this side, with those
// that this node has opened. While its pings come, they stay.
func TestStreamsOfASilentPeer(t *testing.T) {
	ln := rawPeer(t)
	a := newNode(t, nodeA, nodeB)
	a.setAddr(nodeB, ln.Addr().String())
	a.tune.idleTimeout = 2 * time.Second
	a.start(t)
	control, _ := rawDial(t, a, encodeHello(helloFrom(nodeB, nodeA, classControl)))
	far, _ := rawDial(t, a, encodeHello(helloFrom(nodeB, nodeA, classRoute)))
	t.Cleanup(func() { _ = within(t, a.routes, "the routed stream").Close() })
	opened := make(chan net.Conn, 1)
	go func() {
		for {
			if conn, c, err := answer(ln, identity(nodeB)); err != nil || c == classRead {
				opened <- conn
				return
			}
		}
	}()
	near, err := a.DialRead(t.Context(), nodeB)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = near.Close() }()
	other := within(t, opened, "the stream that a opened")
	defer func() { _ = other.Close() }()
	_ = other.SetDeadline(time.Now().Add(patience))
	var ping batch
	if err := ping.add(framePing, nil, classControl); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); time.Since(began) < 3*a.tune.idleTimeout/2; time.Sleep(a.tune.idleTimeout / 20) {
		if _, err := control.Write(ping.whole()[0]); err != nil {
			t.Fatal(err)
		}
	}
	silent := time.Now()
	for _, conn := range []net.Conn{far, other} {
		if err := conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); !isTimeout(err) {
			t.Fatalf("a stream of a peer that pings: %v", err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(patience))
	}
	expectClosed(t, far)
	expectClosed(t, other)
	if took := time.Since(silent); took >= 3*a.tune.idleTimeout/2 {
		t.Errorf("they were closed after %v", took)
	}
}

// TestSilentPeerGetsAKey: a peer that is replaced while its reach ends has one that has not ended.
func TestSilentPeerGetsAKey(t *testing.T) {
	a := newNode(t, nodeA, nodeB)
	a.tune.idleTimeout = -time.Hour // b is always silent
	p := a.peer(nodeB).Peer
	for i := range 20_000 {
		p.NextKey = cluster.Key(strconv.Itoa(i))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			a.endSilent()
		}()
		a.SetPeers([]Peer{p})
		<-ended
		if a.peer(nodeB).reach.Load().over.Err() != nil {
			t.Fatalf("key %d: each further stream to the peer is closed at once", i)
		}
	}
}
