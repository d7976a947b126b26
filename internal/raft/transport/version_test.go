package transport

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/quorate/quorate/internal/cluster/status"
)

// frozen returns bytes that an agent of protocol version 1, node b, has written to
// node a. They were made by that agent's code, and are never made again.
func frozen(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "v1", name+".golden"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// frozenReadGreeting is how an agent of version 1 reads a greeting. It is never
// changed.
func frozenReadGreeting(b []byte) (word uint8, body []byte, err error) {
	le := binary.LittleEndian
	table := crc32.MakeTable(crc32.Castagnoli)
	switch {
	case len(b) < 16 || string(b[:4]) != "QRTE" || len(b) != 16+int(le.Uint32(b[8:])) || len(b) > 16+4096:
		return 0, nil, errors.New("malformed greeting")
	case crc32.Update(crc32.Checksum(b[:12], table), table, b[16:]) != le.Uint32(b[12:]):
		return 0, nil, errors.New("wrong CRC32C")
	case le.Uint16(b[4:]) != 1:
		return 0, nil, fmt.Errorf("protocol version %d", le.Uint16(b[4:]))
	}
	return b[6], b[16:], nil
}

// frozenReadHello is how an agent of version 1 reads a hello.
func frozenReadHello(b []byte) (word uint8, body []byte, err error) {
	word, body, err = frozenReadGreeting(b)
	if err == nil && (word < 1 || word > 4) {
		err = fmt.Errorf("unknown class %d", word)
	}
	return word, body, err
}

// expectFrozen fails unless an agent of version 1, which reads with read, finds the same in got as in want.
func expectFrozen(t testing.TB, read func([]byte) (uint8, []byte, error), want, got []byte) {
	t.Helper()
	wantWord, wantBody, err := read(want)
	if err != nil {
		t.Fatal(err)
	}
	word, body, err := read(got)
	if err != nil || word != wantWord || !bytes.Equal(body, wantBody) {
		t.Errorf("version 1 reads %d, % x (%v)\nwant %d, % x", word, body, err, wantWord, wantBody)
	}
}

// control1 and append1 are the messages in the frozen files "control" and "append". The files also hold a status
// and a ping.
func control1() []*pb.Message {
	return []*pb.Message{heartbeat(nodeB, nodeA, 9), {
		Type: pb.MsgPreVote.Enum(), From: new(uint64(nodeB)), To: new(uint64(nodeA)),
		Term: new(uint64(8)), LogTerm: new(uint64(7)), Index: new(uint64(12)),
	}}
}

func append1() []*pb.Message {
	plain, other := appendMessage(10, nil, []byte("entry")), appendMessage(12)
	for _, m := range []*pb.Message{plain, other} {
		m.From, m.To = new(uint64(nodeB)), new(uint64(nodeA))
	}
	plain.Entries[1].Type = pb.EntryConfChangeV2.Enum()
	other.Context = []byte("x") // so the message is sent as protobuf
	return []*pb.Message{plain, other}
}

func TestCommonVersion(t *testing.T) {
	for _, c := range []struct {
		a, b versions
		want uint16
		ok   bool
	}{
		{versions{1, 1}, versions{1, 1}, 1, true},
		{versions{1, 2}, versions{1, 1}, 1, true},
		{versions{1, 2}, versions{1, 2}, 2, true},
		{versions{1, 2}, versions{2, 9}, 2, true},
		{versions{1, 2}, versions{3, 4}, 0, false},
		{versions{2, 2}, versions{1, 1}, 0, false},
		{versions{2, 1}, versions{1, 2}, 0, false}, // a class that none of them has
		{versions{1, 2}, versions{0, 0}, 0, false},
	} {
		for _, p := range [][2]versions{{c.a, c.b}, {c.b, c.a}} {
			if got, ok := p[0].common(p[1]); ok != c.ok || ok && got != c.want {
				t.Errorf("%v and %v: %d, %v", p[0], p[1], got, ok)
			}
		}
	}
}

// TestHighestCommonVersionIsSpoken: both sides speak their highest common version, whatever else they can speak.
func TestHighestCommonVersionIsSpoken(t *testing.T) {
	for _, c := range []struct {
		a, b versions
		want uint16
	}{
		{versions{1, 2}, versions{1, 2}, 2},
		{versions{1, 1}, versions{1, 2}, 1},
		{versions{1, 2}, versions{2, 3}, 2},
	} {
		t.Run(fmt.Sprint(c.a, " and ", c.b), func(t *testing.T) {
			a, b := pair(t, func(a, b *node) { a.speaks, b.speaks = c.a, c.b })
			for _, n := range []*node{a, b} {
				if got := n.Stats().Peers[0].Version; got != c.want {
					t.Errorf("node %s: version %d, want %d", n.cfg.Identity.NodeName, got, c.want)
				}
			}
			// The next process of b may speak another one.
			b.stop()
			a.expect(t, nodeB, "lost")
			if got := a.Stats().Peers[0].Version; got != 0 {
				t.Errorf("without a connection: version %d", got)
			}
		})
	}
}

// TestNoCommonVersionIsRefusedOnBothSides: each side reports the refusal, and counts it.
func TestNoCommonVersionIsRefusedOnBothSides(t *testing.T) {
	a, b := newNode(t, nodeA, nodeB), newNode(t, nodeB, nodeA)
	a.speaks, b.speaks = versions{1, 2}, versions{3, 3}
	introduce(a, b)
	a.start(t)
	b.start(t)
	for _, c := range []struct {
		n        *node
		by, want string
	}{
		{a, "b", `the dialling node speaks protocol versions 1 to 2, and node "b" (quorate 1.0) speaks protocol version 3`},
		{b, "a", `the dialling node speaks protocol version 3, and node "a" (quorate 1.0) speaks protocol versions 1 to 2`},
	} {
		got := within(t, c.n.rejected, "Rejected")
		if diff := cmp.Diff(&RejectedError{Code: CodeVersion, Text: c.want, By: c.by}, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
	for _, n := range []*node{a, b} {
		await(t, func() bool { return n.Stats().HandshakesRejected > 0 }) // it is counted once it is said
		if v := n.Stats().Peers[0].Version; v != 0 {
			t.Errorf("node %s: version %d", n.cfg.Identity.NodeName, v)
		}
	}
}

// TestPreviousVersionDials: an agent of version 1 gets an answer that it can read, and
// its messages arrive.
func TestPreviousVersionDials(t *testing.T) {
	a := newNode(t, nodeA, nodeB)
	a.start(t)
	// The frozen answer is node b's: node a's has another id, instance and name.
	answer := greeting{version: 1, body: frozen(t, "accepted")[greetingHeaderBytes:]}
	answer.body[8], answer.body[16], answer.body[40] = byte(nodeA), byte(nodeA), 'a'
	want := appendGreeting(nil, answer)
	conns := map[class]net.Conn{}
	for _, c := range []class{classControl, classAppend, classRoute, classBulk} {
		conn, g := rawDial(t, a, frozen(t, "hello-"+c.String()))
		conns[c] = conn
		expectFrozen(t, frozenReadGreeting, want, appendGreeting(nil, g))
	}
	_ = within(t, a.routes, "the route").Close()
	close(within(t, a.bulks, "the bulk stream").done)
	for c, want := range map[class][]*pb.Message{classControl: control1(), classAppend: append1()} {
		if _, err := conns[c].Write(frozen(t, c.String())); err != nil {
			t.Fatal(err)
		}
		for _, m := range want {
			if diff := cmp.Diff(m, within(t, a.raft, "a message"), protocmp.Transform()); diff != "" {
				t.Errorf("%v: (-want +got)\n%s", c, diff)
			}
		}
	}
	// The status has no StateVersion: by that the leader knows that this node takes no state entries.
	var s status.Node
	if err := json.Unmarshal([]byte(within(t, a.statuses, "the status")), &s); err != nil {
		t.Fatal(err)
	}
	if s.Name != "b" || s.Role != status.RoleReplica || s.StateVersion != nil {
		t.Errorf("status %+v", s)
	}
}

// TestPreviousVersionIsDialled: an agent of version 1 accepts our greetings, and is never
// dialled with a class that it does not know.
func TestPreviousVersionIsDialled(t *testing.T) {
	ln := rawPeer(t)
	a := newNode(t, nodeA, nodeB)
	a.setAddr(nodeB, ln.Addr().String())
	a.start(t)
	next := func() []byte {
		conn, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		g, err := readGreeting(conn)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(frozen(t, "accepted")); err != nil {
			t.Fatal(err)
		}
		return appendGreeting(nil, g)
	}
	for range 2 {
		got := next()
		c := class(got[6])
		// The frozen hello is from node b to node a, so the two must change places.
		want := greeting{version: 1, word: uint8(c), body: frozen(t, "hello-"+c.String())[greetingHeaderBytes:]}
		want.body[0], want.body[16], want.body[24], want.body[48] = byte(nodeB), byte(nodeA), byte(nodeA), 'a'
		expectFrozen(t, frozenReadHello, appendGreeting(nil, want), got)
	}
	a.expect(t, nodeB, "up")
	if got := a.Stats().Peers[0].Version; got != versionFirst {
		t.Errorf("version %d", got)
	}
	var rejected *RejectedError
	if _, err := a.DialCall(t.Context(), nodeB); !errors.As(err, &rejected) || rejected.Code != CodeVersion {
		t.Errorf("call: %v", err)
	}
	if _, err := a.DialRead(t.Context(), nodeB); !errors.As(err, &rejected) || rejected.Code != CodeVersion {
		t.Errorf("read: %v", err)
	}
	// Neither of them made a dial: the next dial that comes is that of the bulk stream.
	dialled := make(chan error, 1)
	go func() {
		conn, err := a.DialBulk(t.Context(), nodeB)
		if err == nil {
			_ = conn.Close()
		}
		dialled <- err
	}()
	if got := next(); class(got[6]) != classBulk {
		t.Errorf("a dial of %v", class(got[6]))
	}
	if err := within(t, dialled, "the bulk stream"); err != nil {
		t.Error(err)
	}
}

// TestCallBeforeTheVersionIsKnown: an agent of version 1 refuses a call because of the version
// in the hello, and not because of an unknown class.
func TestCallBeforeTheVersionIsKnown(t *testing.T) {
	hello := encodeHello(helloFrom(nodeA, nodeB, classCall))
	if _, _, err := frozenReadHello(hello); err == nil || err.Error() != "protocol version 2" {
		t.Errorf("version 1 says %v", err)
	}
	a := newNode(t, nodeA, nodeB)
	a.speaks = versions{1, 1}
	a.start(t)
	_, g := rawDial(t, a, encodeHello(helloFrom(nodeB, nodeA, classCall)))
	if Code(g.word) != CodeVersion {
		t.Errorf("code %d: %s", g.word, g.body)
	}
	// A call that claims version 1 is not served.
	_, g = rawDial(t, a, encodeHello(hello1(classCall)))
	if Code(g.word) != CodeMalformed {
		t.Errorf("code %d: %s", g.word, g.body)
	}
}

func hello1(c class) hello {
	h := helloFrom(nodeB, nodeA, c)
	h.speaks = versions{1, 1}
	return h
}

// TestRejectionOfPreviousVersion: each version reads the other one's rejection.
func TestRejectionOfPreviousVersion(t *testing.T) {
	const text = "node a has another data directory than before"
	g, err := readGreeting(bytes.NewReader(frozen(t, "rejected")))
	if err != nil || Code(g.word) != CodePeer || string(g.body) != text {
		t.Errorf("%d, %q, %v", g.word, g.body, err)
	}
	a := newNode(t, nodeA, nodeB)
	a.check = func(Identity) error { return errors.New(text) }
	a.start(t)
	_, g = rawDial(t, a, frozen(t, "hello-control"))
	expectFrozen(t, frozenReadGreeting, frozen(t, "rejected"), appendGreeting(nil, g))
}

// TestFramesAreThoseOfPreviousVersion: the frames are the same to the byte as those of version 1.
func TestFramesAreThoseOfPreviousVersion(t *testing.T) {
	want := frozen(t, "control")
	r := newFrameReader(bytes.NewReader(want), classControl)
	var b batch
	add := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range control1() {
		add(b.addRaft(m, classControl))
		_, _, err := r.next()
		add(err)
	}
	_, status, err := r.next()
	add(err)
	add(b.add(frameStatus, status, classControl))
	add(b.add(framePing, nil, classControl))
	if !bytes.Equal(b.buf, want) {
		t.Errorf("control: % x\nwant % x", b.buf, want)
	}
	b.reset()
	for _, m := range append1() {
		add(b.addRaft(m, classAppend))
	}
	add(b.add(framePing, nil, classAppend))
	if want := frozen(t, "append"); !bytes.Equal(b.buf, want) {
		t.Errorf("append: % x\nwant % x", b.buf, want)
	}
}
