package transport

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/raft/frame"
)

const (
	nodeA cluster.NodeID = 1
	nodeB cluster.NodeID = 2
	nodeC cluster.NodeID = 3
)

// appendMessage returns a MsgApp from node a to node b with the given entries
// after index.
func appendMessage(index uint64, data ...[]byte) *pb.Message {
	m := &pb.Message{
		Type: pb.MsgApp.Enum(), From: new(uint64(nodeA)), To: new(uint64(nodeB)),
		Term: new(uint64(7)), LogTerm: new(uint64(6)), Index: new(index), Commit: new(index),
	}
	for i, d := range data {
		m.Entries = append(m.Entries, &pb.Entry{
			Term: new(uint64(7)), Index: new(index + 1 + uint64(i)), Type: pb.EntryNormal.Enum(), Data: d,
		})
	}
	return m
}

func heartbeat(from, to cluster.NodeID, commit uint64) *pb.Message {
	return &pb.Message{
		Type: pb.MsgHeartbeat.Enum(), From: new(uint64(from)), To: new(uint64(to)),
		Term: new(uint64(7)), Commit: new(commit), Context: []byte("read"),
	}
}

func encoded(t interface{ Fatal(...any) }, c class, msgs ...*pb.Message) []byte {
	var b batch
	for _, m := range msgs {
		if err := b.addRaft(m, c); err != nil {
			t.Fatal(err)
		}
	}
	out := bytes.Join(b.whole(), nil)
	b.reset()
	if !b.empty() || len(b.cuts) != 0 || len(b.pieces) != 0 {
		t.Fatal("batch not empty after reset")
	}
	return out
}

// decodeAll decodes every frame of stream and only then returns, so that data
// which a later frame overwrites is found.
func decodeAll(stream io.Reader, c class) ([]*pb.Message, error) {
	var msgs []*pb.Message
	r := newFrameReader(stream, c)
	for {
		kind, payload, err := r.next()
		if errors.Is(err, io.EOF) {
			return msgs, nil
		}
		if err != nil {
			return msgs, err
		}
		var m *pb.Message
		switch kind {
		case frameAppend:
			m, err = decodeAppend(payload, nodeA, nodeB)
		case frameRaft:
			m, err = decodeRaft(payload, nodeA, nodeB)
		default:
			continue
		}
		if err != nil {
			return msgs, err
		}
		msgs = append(msgs, m)
	}
}

// drawMessage draws what Raft sends on an append connection.
func drawMessage(t *rapid.T) *pb.Message {
	m := appendMessage(rapid.Uint64().Draw(t, "index"))
	m.Term, m.Commit = new(rapid.Uint64().Draw(t, "term")), new(rapid.Uint64().Draw(t, "commit"))
	for range rapid.IntRange(0, 5).Draw(t, "entries") {
		// Sizes on both sides of the limit above which data is not copied.
		size := rapid.OneOf(rapid.IntRange(0, 40), rapid.IntRange(entryCopyBytesMax-1, entryCopyBytesMax+2)).Draw(t, "size")
		e := &pb.Entry{
			Term: new(rapid.Uint64().Draw(t, "entryTerm")), Index: new(rapid.Uint64().Draw(t, "entryIndex")),
			Type: pb.EntryType(rapid.IntRange(0, 2).Draw(t, "type")).Enum(),
		}
		if size > 0 {
			e.Data = bytes.Repeat([]byte{rapid.Byte().Draw(t, "fill")}, size)
		}
		m.Entries = append(m.Entries, e)
	}
	if rapid.IntRange(0, 3).Draw(t, "form") == 0 {
		m.Context = []byte("not plain: goes as protobuf")
	}
	return m
}

func TestMessagesSurviveTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want []*pb.Message
		for range rapid.IntRange(1, 6).Draw(t, "messages") {
			want = append(want, drawMessage(t))
		}
		stream := encoded(t, classAppend, want...)
		for name, r := range map[string]io.Reader{
			"at once": bytes.NewReader(stream), "half reads": iotest.HalfReader(bytes.NewReader(stream)),
		} {
			got, err := decodeAll(r, classAppend)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			// The diff is slow, so it is made only for a failure.
			if !slices.EqualFunc(want, got, func(a, b *pb.Message) bool { return proto.Equal(a, b) }) {
				t.Fatalf("%s: (-sent +received)\n%s", name, cmp.Diff(want, got, protocmp.Transform()))
			}
		}
	})
}

// The queue counts by messageBytes, so its bound holds only if that is the length of the frame.
func TestMessageBytesIsTheFrameLength(t *testing.T) {
	m := appendMessage(10, nil, []byte("x"), make([]byte, 3*entryCopyBytesMax))
	if got, want := messageBytes(m), int64(len(encoded(t, classAppend, m))); got != want {
		t.Errorf("messageBytes = %d, the frame has %d bytes", got, want)
	}
}

func TestEveryFlippedBitIsFound(t *testing.T) {
	for name, m := range map[string]*pb.Message{
		"append": appendMessage(3, []byte("transaction"), nil), "protobuf": heartbeat(nodeA, nodeB, 9),
	} {
		stream := encoded(t, classAppend, m)
		for bit := range 8 * len(stream) {
			damaged := bytes.Clone(stream)
			damaged[bit/8] ^= 1 << (bit % 8)
			if msgs, err := decodeAll(bytes.NewReader(damaged), classAppend); err == nil {
				t.Fatalf("%s: bit %d flipped, yet it decodes to %v", name, bit, msgs)
			}
		}
	}
}

func TestEveryCutIsFound(t *testing.T) {
	stream := encoded(t, classAppend, appendMessage(3, []byte("transaction"), nil))
	for n := 1; n < len(stream); n++ {
		if _, err := decodeAll(bytes.NewReader(stream[:n]), classAppend); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut after %d of %d bytes: %v", n, len(stream), err)
		}
	}
}

func TestFrameLimits(t *testing.T) {
	var b batch
	if err := b.addRaft(heartbeat(nodeA, nodeB, 1), classControl); err != nil {
		t.Fatal(err)
	}
	before := len(b.buf)
	big := heartbeat(nodeA, nodeB, 2)
	big.Context = make([]byte, controlFrameBytesMax)
	if err := b.addRaft(big, classControl); !errors.Is(err, errFrameTooLarge) {
		t.Errorf("oversized message: %v", err)
	}
	if err := b.addRaft(appendMessage(1, make([]byte, appendFrameBytesMax)), classAppend); !errors.Is(err, errFrameTooLarge) {
		t.Errorf("oversized append: %v", err)
	}
	if len(b.buf) != before || len(b.cuts) != 0 {
		t.Errorf("a refused message left something in the batch: %d bytes, before %d, %d cuts", len(b.buf), before, len(b.cuts))
	}
	// A frame that is fine on an append connection is too large for control.
	stream := encoded(t, classAppend, appendMessage(1, make([]byte, controlFrameBytesMax)))
	if _, _, err := newFrameReader(bytes.NewReader(stream), classControl).next(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("oversized frame on a control connection: %v", err)
	}
}

func TestDecodedEntriesDoNotReachIntoEachOther(t *testing.T) {
	msgs, err := decodeAll(bytes.NewReader(encoded(t, classAppend, appendMessage(0, []byte("one"), []byte("two")))), classAppend)
	if err != nil {
		t.Fatal(err)
	}
	// The bytes that are appended fit exactly into what lies between the entries and the second entry. More bytes
	// would make append copy everything into a new array, and the test would see nothing.
	_ = append(msgs[0].Entries[0].Data, bytes.Repeat([]byte("x"), entryHeaderBytes+len("two"))...)
	if got := string(msgs[0].Entries[1].Data); got != "two" {
		t.Errorf("the second entry now holds %q", got)
	}
}

func TestMessageOfAnotherNodeIsRefused(t *testing.T) {
	for _, m := range []*pb.Message{heartbeat(nodeC, nodeB, 1), heartbeat(nodeA, nodeC, 1)} {
		payload, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeRaft(payload, nodeA, nodeB); !errors.Is(err, ErrCorrupt) {
			t.Errorf("from %d to %d: %v", m.GetFrom(), m.GetTo(), err)
		}
	}
}

// FuzzFrame gives the decoders payloads under a valid header (a CRC keeps a
// fuzzer out otherwise) and the frame reader the payload itself.
func FuzzFrame(f *testing.F) {
	f.Add(byte(frameAppend), encoded(f, classAppend, appendMessage(1, []byte("data"), nil))[frame.HeaderBytes:])
	f.Add(byte(frameRaft), encoded(f, classControl, heartbeat(nodeA, nodeB, 1))[frame.HeaderBytes:])
	f.Add(byte(framePing), encoded(f, classControl, heartbeat(nodeA, nodeB, 1)))
	f.Fuzz(func(t *testing.T, kind byte, payload []byte) {
		if _, _, err := newFrameReader(bytes.NewReader(payload), classAppend).next(); err == nil && len(payload) < frame.HeaderBytes {
			t.Fatalf("%d bytes made a frame", len(payload))
		}
		var b batch
		if err := b.add(frameType(kind), payload, classAppend); err != nil {
			t.Skip("too large")
		}
		msgs, err := decodeAll(bytes.NewReader(b.buf), classAppend)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("a whole frame of nonsense gave %v", err)
			}
			return
		}
		for _, m := range msgs {
			_ = unsent(m)
		}
		// What was decoded must be the same after it was encoded and decoded again.
		again, err := decodeAll(bytes.NewReader(encoded(t, classAppend, msgs...)), classAppend)
		if err != nil {
			t.Fatal(err)
		}
		for i := range msgs {
			if !proto.Equal(msgs[i], again[i]) {
				t.Fatalf("%v became %v", msgs[i], again[i])
			}
		}
	})
}

func FuzzGreeting(f *testing.F) {
	f.Add(encodeHello(hello{class: classRoute, target: nodeB, id: Identity{ClusterName: "shop", NodeName: "a", Version: "1"}}))
	f.Add([]byte("QRTE"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if g, err := readGreeting(bytes.NewReader(data)); err == nil {
			again, err := readGreeting(bytes.NewReader(appendGreeting(nil, g)))
			if err != nil || again.version != g.version || again.word != g.word || again.most != g.most || !bytes.Equal(again.body, g.body) {
				t.Fatalf("%+v became %+v (%v)", g, again, err)
			}
		}
		h, err := parseHello(greeting{version: versionFirst, word: uint8(classControl), body: data}, versionFirst)
		if err != nil {
			if !errors.Is(err, errGreeting) {
				t.Fatal(err)
			}
			return
		}
		g, err := readGreeting(bytes.NewReader(encodeHello(h)))
		if err != nil || !bytes.Equal(g.body, data) {
			t.Fatalf("hello %+v: body % x, was % x (%v)", h, g.body, data, err)
		}
	})
}
