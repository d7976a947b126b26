package bulk

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"sync/atomic"
	"testing"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/sys/clock"
	"github.com/quorate/quorate/internal/testkit/hostile"
)

// streamRoomBytes is how much memory a stream may take: the largest entry that can be announced, the stream's
// buffers, and several copies of what was sent.
func streamRoomBytes(sent []byte) uint64 { return entryBytesMax + 8<<20 + 64*uint64(len(sent)) }

// said is a frame of a seed of the fuzzer.
type said struct {
	kind    frameType
	payload []byte
}

// frames returns the bytes of these frames on a stream.
func frames(all ...said) []byte {
	var b bytes.Buffer
	s := newStream(NetConn(writerConn{w: &b}), chunkBytes, new(atomic.Uint64), new(atomic.Uint64))
	for _, one := range all {
		_ = s.send(one.kind, one.payload)
	}
	return b.Bytes()
}

// copyOf returns the frames that carry data, in two parts, and their end.
func copyOf(data []byte) []said {
	sum := sumOf(data)
	end := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, sum.bytes), sum.crc)
	return []said{{frameData, data[:len(data)/2]}, {framePing, nil}, {frameData, data[len(data)/2:]}, {frameEnd, end}}
}

// entriesOf returns the frames that carry entries from index 41 on.
func entriesOf(data ...string) []said {
	var b []byte
	le := binary.LittleEndian
	for i, d := range data {
		b = le.AppendUint32(le.AppendUint64(le.AppendUint64(b, uint64(41+i)), 7), uint32(len(d)))
		b = append(append(b, 0, 0, 0, 0), d...)
	}
	return copyOf(b)
}

// endingSource is a Source that ends after its last entry, and waits for no more.
type endingSource struct{ *fakeEntries }

func (s endingSource) Open(cluster.NodeID) Feed { return s }

func (s endingSource) Next(_ context.Context, index, bytesMax uint64) (Point, []seglog.Entry, error) {
	found, ok, err := s.ReadCommitted(index, bytesMax)
	if err == nil && !ok {
		err = seglog.ErrCompacted
	}
	return Point{Term: 8, Leader: nodeA, Commit: 43}, found, err
}

// fuzzed returns a node that holds stage id2 and the entries 41 to 43, and feeds learners. Whomever it dials, it
// gets a connection of dial.
func fuzzed(dial func() Conn) (*Bulk, *fakeStages) {
	stages := &fakeStages{stages: map[entry.StageID]*fakeStage{}}
	stages.put(id2, content(1000))
	entries := []seglog.Entry{{Index: 41, Term: 7}, {Index: 42, Term: 7, Data: content(10)}, {Index: 43, Term: 8, Data: content(300)}}
	log := &fakeEntries{first: 41, entries: entries, tail: func(context.Context) (Tail, error) { return Tail{Term: 8, Last: 43}, nil }}
	b := New(Config{
		Self: nodeB, Voters: []cluster.NodeID{nodeA, nodeB}, Stages: stages, Logger: discard(), Tasks: clock.Machine{},
		Entries: log, Source: endingSource{log},
		Leads: func(cluster.NodeID, uint64) bool { return true },
		Dial:  func(context.Context, cluster.NodeID) (Conn, error) { return dial(), nil },
	})
	b.runs = true
	return b, stages
}

// left fails if an unfinished or a wrong stage is left, or if something is still claimed or open.
func left(t *testing.T, b *Bulk, stages *fakeStages) {
	t.Helper()
	for id, s := range stages.stages {
		if !s.complete || id == id2 && !bytes.Equal(s.data, content(1000)) {
			t.Errorf("stage %v was left unfinished, or is another one", id)
		}
	}
	if len(b.receiving)+len(b.workers)+stages.opened != 0 {
		t.Errorf("%d claims, %d workers and %d readers are left", len(b.receiving), len(b.workers), stages.opened)
	}
}

// FuzzServe sends a node anything on a bulk connection. The node takes no stage that was not sent correctly, and it
// ends the connection.
func FuzzServe(f *testing.F) {
	index := binary.LittleEndian.AppendUint64(nil, 41)
	f.Add(frames(append([]said{{framePut, encodeID(id1)}}, copyOf(content(300))...)...))
	f.Add(frames(said{framePut, encodeID(id1)}, said{frameData, content(300)})) // the end is missing
	f.Add(frames(said{framePut, encodeID(id2)}))
	f.Add(frames(said{frameGet, encodeID(id2)}, said{framePing, nil}))
	f.Add(frames(said{frameGet, encodeID(id1)}))
	f.Add(frames(said{frameEntries, index}))
	f.Add(frames(said{frameFollow, index}))
	f.Add(frames(said{frameTail, nil}))
	f.Add(frames(said{frameRefused, []byte("\x04no")}, said{99, nil}))
	f.Fuzz(func(t *testing.T, sent []byte) {
		mended := hostile.Mend(sent, frameFormat)
		b, stages := fuzzed(nil)
		hostile.Talk(t, streamRoomBytes(sent), func(conn *net.UnixConn) { b.Serve(context.Background(), nodeA, NetConn(conn)) },
			func(conn *net.UnixConn) { answerAll(conn, mended) })
		left(t, b, stages)
	})
}

// answerAll sends everything, reads once, and hangs up, because a stream may have no end of its own.
func answerAll(conn *net.UnixConn, sent []byte) {
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		_, _ = conn.Write(sent)
		_ = conn.CloseWrite()
	}()
	told := make([]byte, 64<<10)
	_, _ = conn.Read(told)
	_ = conn.Close()
	<-wrote
}

// FuzzAnswer answers a node's questions to a peer with anything. The node takes no stage but the one that it wants,
// and no entry out of its place, and it ends.
func FuzzAnswer(f *testing.F) {
	data := content(300)
	ready := said{frameReady, nil}
	point := said{framePoint, appendPoint(nil, Point{Term: 8, Leader: nodeA, Commit: 43})}
	for how := range byte(5) {
		f.Add(how, frames(append([]said{ready}, copyOf(data)...)...))
		f.Add(how, frames(append([]said{ready}, entriesOf("", "two", "three")...)...))
		f.Add(how, frames(append(append([]said{ready, point}, entriesOf("one")...), append([]said{{framePing, nil}, point}, entriesOf("x")...)...)...))
		f.Add(how, frames(said{frameTail, appendTail(nil, Tail{Term: 7, First: 1, Last: 9, Commit: 8, Leading: true})}))
		f.Add(how, frames(ready, said{frameDone, nil}))
		f.Add(how, frames(said{frameRefused, []byte("\x05the disk is full")}))
	}
	f.Fuzz(func(t *testing.T, how byte, sent []byte) {
		mended := hostile.Mend(sent, frameFormat)
		var conn Conn
		b, stages := fuzzed(func() Conn { return conn })
		next := uint64(41)
		take := func(e seglog.Entry) error {
			if e.Index != next {
				t.Errorf("entry %d came for entry %d", e.Index, next)
			}
			next++
			return nil
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		hostile.Say(t, streamRoomBytes(sent), mended, func(c *net.UnixConn) {
			conn = NetConn(c)
			defer func() { _ = c.Close() }()
			switch how % 5 {
			case 0:
				if err := b.fetchOnce(ctx, staged(id1, data), nodeA); (err == nil) != stages.HasStage(id1) {
					t.Errorf("%v", err)
				}
			case 1:
				_ = b.FetchEntries(ctx, nodeA, next, take)
			case 2:
				_ = b.Follow(ctx, nodeA, next, func(_ Point, found []seglog.Entry) error {
					for _, e := range found {
						_ = take(e)
					}
					return nil
				}, func() error { return nil })
			case 3:
				_, _ = b.AskTail(ctx, nodeA)
			case 4:
				u := &Upload{b: b, id: id2, tally: NewTally(nodeB)}
				u.attempts, u.waits = ctx, ctx
				u.bytes.Store(1000)
				u.end = new(sumOf(content(1000)))
				_ = u.pushOnce(nodeA)
			}
		})
		if s, _, ok := stages.get(id1); ok && how%5 == 0 && !bytes.Equal(s, data) {
			t.Errorf("another stage was taken: %d bytes", len(s))
		}
		stages.drop(id1)
		left(t, b, stages)
	})
}
