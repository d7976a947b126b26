package bulk

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/sys/clock"
)

// rawDial returns a stream to node n on which only the test writes and reads.
func (w *world) rawDial(t testing.TB, n cluster.NodeID) *stream {
	t.Helper()
	conn, err := w.dial(99, n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return newStream(NetConn(conn), chunkBytes, new(atomic.Uint64), new(atomic.Uint64))
}

func (s *stream) mustSend(t testing.TB, kind frameType, payload []byte) {
	t.Helper()
	if err := s.send(kind, payload); err != nil {
		t.Fatal(err)
	}
}

// refused fails unless the answer is a refusal with this code.
func (s *stream) refused(t testing.TB, code refusalCode) {
	t.Helper()
	var r *refusal
	if kind, _, err := s.next(time.Hour); !errors.As(err, &r) || r.code != code {
		t.Fatalf("got frame %d, %v; want refusal %d", kind, err, code)
	}
}

func TestRefusals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, 0)
		b := w.nodes[nodeB]
		b.entries.first = 10
		index := binary.LittleEndian.AppendUint64(nil, 9)
		for _, c := range []struct {
			kind    frameType
			payload []byte
			want    refusalCode
		}{
			{frameGet, encodeID(id1), refusedMissing},
			{frameEntries, index, refusedCompacted},
			{frameData, nil, refusedFailed},
			{77, nil, refusedFailed},
		} {
			s := w.rawDial(t, nodeB)
			s.mustSend(t, c.kind, c.payload)
			s.refused(t, c.want)
		}
		for _, kind := range []frameType{framePut, frameGet, frameEntries} {
			s := w.rawDial(t, nodeB)
			s.mustSend(t, kind, []byte("x"))
			var r *refusal
			if _, _, err := s.next(time.Hour); err == nil || errors.As(err, &r) {
				t.Errorf("malformed request %d: %v", kind, err)
			}
		}
	})
}

// TestStageOfAnother: a node takes a stage only from the leader of the stage's term.
func TestStageOfAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, 0)
		leader := cluster.NodeID(99) // the node that rawDial plays
		w.nodes[nodeB].cfg.Leads = func(id cluster.NodeID, term uint64) bool { return id == leader && term == 7 }
		put := func(id entry.StageID) *stream {
			s := w.rawDial(t, nodeB)
			s.mustSend(t, framePut, encodeID(id))
			return s
		}
		put(entry.StageID{Term: 6, Number: 1}).refused(t, refusedFailed)
		put(entry.StageID{Term: 8, Number: 1}).refused(t, refusedFailed)
		put(entry.StageID{Term: 1<<64 - 1, Number: 1}).refused(t, refusedFailed)
		if _, err := put(id1).expect(frameReady, time.Hour); err != nil {
			t.Fatal(err)
		}
		leader = nodeA
		put(id2).refused(t, refusedFailed)
		w.nodes[nodeB].cfg.Leads = nil
		put(id2).refused(t, refusedFailed)
	})
}

func TestOneStageIsReceivedOnceAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, 0)
		first, second := w.rawDial(t, nodeB), w.rawDial(t, nodeB)
		first.mustSend(t, framePut, encodeID(id1))
		if _, err := first.expect(frameReady, time.Hour); err != nil {
			t.Fatal(err)
		}
		second.mustSend(t, framePut, encodeID(id1))
		second.refused(t, refusedBusy)
		third := w.rawDial(t, nodeB)
		third.mustSend(t, framePut, encodeID(id2))
		if _, err := third.expect(frameReady, time.Hour); err != nil {
			t.Fatal(err)
		}
	})
}

// A sender that falls silent holds a stage for no longer than silenceMax.
func TestSilentSenderIsGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, 0)
		s := w.rawDial(t, nodeB)
		s.mustSend(t, framePut, encodeID(id1))
		if _, err := s.expect(frameReady, time.Hour); err != nil {
			t.Fatal(err)
		}
		s.mustSend(t, frameData, content(10))
		time.Sleep(silenceMax - time.Second)
		s.mustSend(t, framePing, nil)
		time.Sleep(silenceMax - time.Second)
		synctest.Wait()
		if _, _, ok := w.nodes[nodeB].stages.get(id1); !ok {
			t.Fatal("given up too early")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		w.nodes[nodeB].lacks(t, id1)
	})
}

func TestSilentDiallerIsGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, 0)
		s := w.rawDial(t, nodeB)
		if _, _, err := s.next(time.Hour); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatal(err)
		}
		if took := time.Since(w.began); took < silenceMax || took > silenceMax+time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestEndThatDoesNotFitIsRefused(t *testing.T) {
	data := content(100)
	sum := sumOf(data)
	for _, end := range []trailer{{sum.bytes, sum.crc ^ 1}, {sum.bytes + 1, sum.crc}, {0, 0}} {
		bubble(t, func(t *testing.T) {
			w := newWorld(t, 2, 0)
			s := w.rawDial(t, nodeB)
			s.mustSend(t, framePut, encodeID(id1))
			if _, err := s.expect(frameReady, time.Hour); err != nil {
				t.Fatal(err)
			}
			s.mustSend(t, frameData, data)
			if err := s.sendEnd(end); err != nil {
				t.Fatal(err)
			}
			if kind, _, err := s.next(time.Hour); err == nil {
				t.Errorf("answer %d", kind)
			}
			synctest.Wait()
			w.nodes[nodeB].lacks(t, id1)
		})
	}
}

// tcpPair is two running nodes with sockets between them.
func tcpPair(t *testing.T) (nodes [2]*testNode) {
	t.Helper()
	var listeners [2]net.Listener
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for i := range listeners {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		stages := &fakeStages{stages: map[entry.StageID]*fakeStage{}}
		n := &testNode{stages: stages, Bulk: New(Config{
			Leads: func(cluster.NodeID, uint64) bool { return true },
			Self:  cluster.NodeID(i + 1), Voters: []cluster.NodeID{nodeA, nodeB}, Stages: stages, Entries: &fakeEntries{},
			Logger: discard(), Tasks: clock.Machine{},
			Dial: func(ctx context.Context, id cluster.NodeID) (Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, "tcp", listeners[id-1].Addr().String())
				return NetConn(conn), err
			},
		})}
		listeners[i], nodes[i] = ln, n
		all.Go(func() { _ = n.Run(ctx) })
		all.Go(func() {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				all.Go(func() { n.Serve(ctx, 0, NetConn(conn)) })
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		for _, ln := range listeners {
			_ = ln.Close()
		}
		all.Wait()
	})
	for !nodes[0].running() || !nodes[1].running() {
		time.Sleep(time.Millisecond)
	}
	return nodes
}

// An upload and a fetch over real sockets, with enough bytes to fill their buffers. net.Pipe has no buffers: some
// faults show only there, and others only here.
func TestUploadOverTCP(t *testing.T) {
	nodes := tcpPair(t)
	data := content(8 << 20)
	u := uploaded(t, nodes[0], id1, data)
	if err := u.WaitMajority(); err != nil {
		t.Fatal(err)
	}
	nodes[1].holds(t, id1, data)
	nodes[1].stages.put(id2, data)
	if err := nodes[0].FetchStage(t.Context(), staged(id2, data), nodeB); err != nil {
		t.Fatal(err)
	}
	nodes[0].holds(t, id2, data)
}

// writerConn is a connection made of a reader and a writer.
type writerConn struct {
	net.Conn
	io.Reader
	w io.Writer
}

func (c writerConn) Read(p []byte) (int, error)       { return c.Reader.Read(p) }
func (c writerConn) Write(p []byte) (int, error)      { return c.w.Write(p) }
func (c writerConn) Close() error                     { return nil }
func (c writerConn) SetReadDeadline(time.Time) error  { return nil }
func (c writerConn) SetWriteDeadline(time.Time) error { return nil }

// Run returns only after everything that uses the log has ended, so that the log may be closed then.
func TestRunWaitsForWhoUsesTheLog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, 0)
		b, gate := w.nodes[nodeB], make(chan struct{})
		b.stages.onFinish = func(entry.StageID) error {
			<-gate
			return nil
		}
		uploaded(t, w.nodes[nodeA], id1, content(10))
		synctest.Wait()
		ended := make(chan struct{})
		go func() {
			b.stop()
			close(ended)
		}()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("Run ended while a stage was being finished")
		default:
		}
		close(gate)
		<-ended
	})
}
