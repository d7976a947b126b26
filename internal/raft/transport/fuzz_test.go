package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"testing"
	"unicode/utf8"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/raft/frame"
	"github.com/quorate/quorate/internal/raft/nodekey"
	"github.com/quorate/quorate/internal/testkit/hostile"
)

// roomBytes is how much memory one connection may take: buffers, TLS, one announced frame, and several copies of
// what was sent.
func roomBytes(sent []byte) uint64 { return 8<<20 + 64*uint64(len(sent)) }

// taken is a Handler that notes everything that it gets.
type taken struct {
	*recorder
	messages []*pb.Message
	statuses [][]byte
	streams  map[class][]byte
}

func (h *taken) Raft(m *pb.Message, _ bool) { h.messages = append(h.messages, m) }
func (h *taken) Status(_ cluster.NodeID, s []byte) error {
	h.statuses = append(h.statuses, bytes.Clone(s))
	return nil
}
func (h *taken) Route(c net.Conn, _ cluster.NodeID)                   { h.stream(classRoute, c); _ = c.Close() }
func (h *taken) stream(c class, conn net.Conn)                        { h.streams[c], _ = io.ReadAll(conn) }
func (h *taken) anything() bool                                       { return len(h.messages)+len(h.statuses)+len(h.streams) > 0 }
func (h *taken) Bulk(_ context.Context, _ cluster.NodeID, c net.Conn) { h.stream(classBulk, c) }
func (h *taken) RouteRead(c net.Conn, _ cluster.NodeID)               { h.stream(classRead, c); _ = c.Close() }
func (h *taken) Call(_ context.Context, _ cluster.NodeID, c net.Conn) { h.stream(classCall, c) }

// listening returns node b's handler, and a function that serves a connection as node b does. Node b knows a and c.
// No port is open.
func listening(s cluster.PeerSecurity, keys map[cluster.NodeID]*nodekey.Key) (*taken, func(conn *net.UnixConn)) {
	h := &taken{recorder: newRecorder(), streams: map[class][]byte{}}
	return h, served(h, s, keys)
}

// served is listening with a handler of the caller's.
func served(h Handler, s cluster.PeerSecurity, keys map[cluster.NodeID]*nodekey.Key) func(conn *net.UnixConn) {
	cfg := Config{Identity: identity(nodeB), Handler: h, Logger: slog.New(slog.DiscardHandler), Security: s, Key: keys[nodeB]}
	for _, id := range []cluster.NodeID{nodeA, nodeC} {
		p := Peer{ID: id, Name: names(id), Addr: "127.0.0.1:1"}
		if keys != nil {
			p.Key = keys[id].Name()
		}
		cfg.Peers = append(cfg.Peers, p)
	}
	t := New(cfg)
	return func(conn *net.UnixConn) {
		t.serveInbound(context.Background(), conn, t.strangers.Enter(hostile.Remote{}.RemoteAddr(), func() { _ = conn.Close() }))
	}
}

// mended makes a valid greeting of bytes that nearly are one, and valid frames of the bytes after it.
func mended(sent []byte) []byte {
	if len(sent) < greetingHeaderBytes {
		return sent
	}
	le := binary.LittleEndian
	n := min(le.Uint32(sent[8:]), uint32(len(sent)-greetingHeaderBytes))
	body := sent[greetingHeaderBytes : greetingHeaderBytes+n]
	g := greeting{version: le.Uint16(sent[4:]), word: sent[6], most: sent[7], body: body}
	return append(appendGreeting(nil, g), hostile.Mend(sent[greetingHeaderBytes+n:], frameFormat)...)
}

// mayEnter tells whether the greeting with which a connection begins is that of a peer.
func mayEnter(sent []byte) bool {
	g, err := readGreeting(bytes.NewReader(sent))
	if err != nil {
		return false
	}
	h, err := parseHello(g, versionNewest)
	return err == nil && h.target == nodeB && h.id.ClusterID == identity(nodeA).ClusterID &&
		(h.id.Node == nodeA && h.id.NodeName == "a" || h.id.Node == nodeC && h.id.NodeName == "c")
}

// answered fails unless the answer was at most one greeting. The handler must have got nothing, unless the greeting
// accepts the connection.
func answered(t *testing.T, told []byte, h *taken, mayEnter bool) {
	t.Helper()
	g, err := readGreeting(bytes.NewReader(told))
	switch {
	case len(told) == 0 && !h.anything():
	case err != nil || len(told) != greetingHeaderBytes+len(g.body):
		t.Fatalf("told %q (%v), and %d messages were taken", told, err, len(h.messages))
	case Code(g.word) == codeAccepted && !mayEnter:
		t.Fatal("a stranger was let in")
	case Code(g.word) != codeAccepted && h.anything():
		t.Fatalf("it was rejected with code %d, and something was taken of it", g.word)
	}
}

// firstBytes are beginnings of connections.
func firstBytes(f *testing.F) (all [][]byte) {
	for _, c := range []class{classControl, classAppend, classRoute, classBulk, classCall, classRead} {
		all = append(all, encodeHello(helloFrom(nodeA, nodeB, c)))
	}
	old := helloFrom(nodeC, nodeB, classControl)
	old.speaks = versions{versionFirst, versionFirst}
	all = append(all, encodeHello(old), encodeHello(helloFrom(nodeA, nodeC, classControl)),
		encodeHello(helloFrom(nodeB, nodeB, classControl)), encodeHello(helloFrom(4, nodeB, classCall)),
		[]byte("QRTE"), []byte("GET /status HTTP/1.1\r\n\r\n"), []byte{tlsRecord}, []byte{0}, nil)
	// The first bytes of a TLS client.
	near, far := net.Pipe()
	go func() { _ = tls.Client(near, &tls.Config{InsecureSkipVerify: true}).Handshake() }()
	client := make([]byte, 4<<10)
	n, err := far.Read(client)
	if err != nil {
		f.Fatal(err)
	}
	_, _ = near.Close(), far.Close()
	return append(all, client[:n])
}

// FuzzFirstBytes gives the peer port the beginning of a connection. Where keys are required, a connection without a
// key learns nothing. Any other connection gets one answer at most.
func FuzzFirstBytes(f *testing.F) {
	keys := map[cluster.NodeID]*nodekey.Key{nodeA: newKey(f), nodeB: newKey(f), nodeC: newKey(f)}
	for _, sent := range firstBytes(f) {
		for how := range byte(4) {
			f.Add(how, sent)
		}
	}
	f.Fuzz(func(t *testing.T, how byte, sent []byte) {
		security := []cluster.PeerSecurity{cluster.PeersPlain, cluster.PeersPlain, cluster.PeersBoth, cluster.PeersRequire}[how%4]
		keys := keys
		if how%4 == 0 {
			keys = nil
		}
		if how&4 == 0 && len(sent) > 0 && sent[0] != tlsRecord {
			sent = mended(sent)
		}
		h, serve := listening(security, keys)
		told := hostile.Say(t, roomBytes(sent), sent, serve)
		isTLS := len(sent) > 0 && sent[0] == tlsRecord
		switch {
		case isTLS && keys != nil:
			// An answer of TLS: an alert, or the answer to a hello. A client without a key gets no further.
			if h.anything() || len(told) > 0 && told[0] != 0x15 && told[0] != tlsRecord || bytes.Contains(told, []byte("shop")) {
				t.Fatalf("told %q", told)
			}
		case isTLS || security == cluster.PeersRequire:
			if len(told) > 0 || h.anything() {
				t.Fatalf("told %q", told)
			}
		default:
			answered(t, told, h, mayEnter(sent))
		}
	})
}

// FuzzBehindTLS gives the peer port, within TLS, a greeting and what follows it. A member may enter as itself and as
// no other member. A client with an unknown key is told nothing.
func FuzzBehindTLS(f *testing.F) {
	keys := map[cluster.NodeID]*nodekey.Key{nodeA: newKey(f), nodeB: newKey(f), nodeC: newKey(f)}
	stranger := newKey(f)
	for _, sent := range firstBytes(f) {
		f.Add(true, sent)
		f.Add(false, sent)
	}
	f.Fuzz(func(t *testing.T, member bool, sent []byte) {
		sent = mended(sent)
		key := stranger
		if member {
			key = keys[nodeA]
		}
		h, serve := listening(cluster.PeersRequire, keys)
		var told []byte
		hostile.Talk(t, roomBytes(sent), serve, func(conn *net.UnixConn) {
			defer func() { _ = conn.Close() }()
			c := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{*key.Certificate()}})
			if err := c.Handshake(); err != nil {
				return
			}
			_, _ = c.Write(sent)
			_ = c.CloseWrite()
			told, _ = io.ReadAll(c)
		})
		if !member && (len(told) > 0 || h.anything()) {
			t.Fatalf("told %q", told)
		}
		g, err := readGreeting(bytes.NewReader(sent))
		isA := false
		if err == nil && mayEnter(sent) {
			hello, err := parseHello(g, versionNewest)
			isA = err == nil && hello.id.Node == nodeA
		}
		answered(t, told, h, isA)
	})
}

// FuzzConnection gives node b frames after a greeting, on a connection of each class. The handler gets only messages
// that agents send, from the node of the handshake and to node b. Of a stream it gets all bytes as they were sent.
func FuzzConnection(f *testing.F) {
	vote := &pb.Message{Type: pb.MsgVote.Enum(), From: new(uint64(nodeA)), To: new(uint64(nodeB)), Term: new(uint64(8)), LogTerm: new(uint64(7)), Index: new(uint64(3))}
	snap := heartbeat(nodeA, nodeB, 1)
	snap.Type, snap.Snapshot = pb.MsgSnap.Enum(), &pb.Snapshot{Data: []byte("x")}
	var status batch
	if err := status.add(frameStatus, []byte(`{"id":1,"name":"a","role":"primary"}`), classControl); err != nil {
		f.Fatal(err)
	}
	for c := classControl; c <= classRead; c++ {
		f.Add(byte(c), encoded(f, c, heartbeat(nodeA, nodeB, 1), vote, heartbeat(nodeB, nodeA, 2)))
		f.Add(byte(c), encoded(f, c, appendMessage(1, []byte("data"), nil), appendMessage(3), heartbeat(nodeA, nodeB, 3)))
		f.Add(byte(c), encoded(f, c, snap))
		f.Add(byte(c), bytes.Join(status.whole(), nil))
	}
	f.Fuzz(func(t *testing.T, kind byte, sent []byte) {
		c := class(kind%6) + classControl
		if c == classControl || c == classAppend {
			sent = hostile.Mend(sent, frameFormat)
		}
		h, serve := listening(cluster.PeersPlain, nil)
		whole := append(encodeHello(helloFrom(nodeA, nodeB, c)), sent...)
		told := hostile.Say(t, roomBytes(whole), whole, serve)
		answered(t, told, h, true)
		if len(told) == 0 {
			t.Fatal("a peer was not let in")
		}
		switch c {
		case classRoute, classBulk, classCall, classRead:
			if got, ok := h.streams[c]; !ok || !bytes.Equal(got, sent) || len(h.streams)+len(h.messages)+len(h.statuses) > 1 {
				t.Fatalf("%v: %d of %d bytes came", c, len(got), len(sent))
			}
			return
		}
		if len(h.streams) > 0 || len(h.statuses) > 0 && c != classControl {
			t.Fatalf("%v: %d statuses, streams %v", c, len(h.statuses), h.streams)
		}
		for _, m := range h.messages {
			if err := unsent(m); err != nil || m.GetFrom() != uint64(nodeA) || m.GetTo() != uint64(nodeB) {
				t.Fatalf("%v was taken: %v", m, err)
			}
		}
		frames := 0
		for rest := sent; len(rest) >= frame.HeaderBytes; frames++ {
			_, n := frame.KindAndLength(rest)
			rest = rest[frame.HeaderBytes+n:]
		}
		if len(h.messages)+len(h.statuses) > frames {
			t.Fatalf("%d messages of %d frames", len(h.messages), frames)
		}
	})
}

// FuzzAnswer gives the dialling side any answer from a peer's address. The answer is taken for the peer's only if it
// is, and an order in a rejection only if it makes sense.
func FuzzAnswer(f *testing.F) {
	yes := greeting{version: versionNewest, body: appendIdentity(nil, identity(nodeB))}
	f.Add(appendGreeting(nil, yes))
	for _, r := range []*RejectedError{
		{Code: CodeCluster, Text: "another cluster"},
		{Code: CodeRebuild, Text: "make it again", Order: Order{StateVersion: 7, Instance: "0123456789abcdef0123456789abcdef"}},
		{Code: CodeRecovered, Text: "gone", Order: Order{Recovery: &cluster.Recovery{Version: 3, Node: "c"}}},
	} {
		f.Add(appendGreeting(nil, r.greeting(versionFirst)))
		f.Add(appendGreeting(nil, r.greeting(versionNewest)))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		sent = mended(sent)
		a := New(Config{Identity: identity(nodeA), Handler: newRecorder(), Logger: slog.New(slog.DiscardHandler)})
		p := Peer{ID: nodeB, Name: "b", Addr: "b:7400"}
		a.SetPeers([]Peer{p})
		hostile.Say(t, roomBytes(sent), sent, func(conn *net.UnixConn) {
			defer func() { _ = conn.Close() }()
			_, err := a.greet(conn, p, classControl)
			g, _ := readGreeting(bytes.NewReader(sent))
			id, idErr := parseIdentity(g.body)
			isB := idErr == nil && id.Node == nodeB && id.NodeName == "b" && id.ClusterID == identity(nodeB).ClusterID
			if err == nil && (Code(g.word) != codeAccepted || !isB) {
				t.Errorf("%+v was taken for b", id)
			}
			if r, ok := err.(*RejectedError); ok && (r.Order.check(r.Code) != nil || len(r.Text) > 2*greetingBodyBytesMax || !utf8.ValidString(r.Text)) {
				t.Errorf("%+v", r)
			}
		})
	})
}
