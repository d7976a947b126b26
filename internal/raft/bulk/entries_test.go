package bulk

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/frame"
)

// someEntries returns entries from index first on, with every size that matters.
func someEntries(first uint64) []seglog.Entry {
	var entries []seglog.Entry
	for i, n := range []int{0, 1, 100, chunkBytes - entryHeadBytes, chunkBytes, 5*chunkBytes + 3, 0, 1000, 2 * frameBytesMax} {
		e := seglog.Entry{Index: first + uint64(i), Term: uint64(3 + i/4), Type: uint8(i % 3)}
		if n > 0 {
			e.Data = content(n)
		}
		entries = append(entries, e)
	}
	return entries
}

func fetchAll(n *testNode, index uint64) (entries []seglog.Entry, err error) {
	entries = []seglog.Entry{}
	err = n.FetchEntries(context.Background(), nodeB, index, func(e seglog.Entry) error {
		entries = append(entries, e)
		return nil
	})
	return entries, err
}

func TestFetchEntries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, 0)
		all := someEntries(41)
		w.nodes[nodeB].entries.first, w.nodes[nodeB].entries.entries = 41, all
		got, err := fetchAll(w.nodes[nodeA], 41)
		if err != nil || got[0].Data != nil {
			t.Errorf("%v; data of an empty entry: %v", err, got[0].Data)
		}
		for from := uint64(42); from <= 41+uint64(len(all)); from++ {
			got, err := fetchAll(w.nodes[nodeA], from)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(all[from-41:], got, cmp.Comparer(bytes.Equal)); diff != "" {
				t.Fatalf("from %d: (-want +got)\n%.2000s", from, diff)
			}
		}
		n := uint64(len(all) * (len(all) + 1) / 2) // one fetch from each entry to the last one
		if a, b := w.nodes[nodeA].Stats().EntriesReceived, w.nodes[nodeB].Stats().EntriesSent; a != n || b != n {
			t.Errorf("%d received, %d sent, want %d", a, b, n)
		}
	})
}

func TestFetchEntriesErrors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, 0)
		a, b := w.nodes[nodeA], w.nodes[nodeB]
		b.entries.first, b.entries.entries = 41, someEntries(41)
		if _, err := fetchAll(a, 40); !errors.Is(err, seglog.ErrCompacted) {
			t.Errorf("purged entry: %v", err)
		}
		calls := 0
		err := a.FetchEntries(t.Context(), nodeB, 41, func(seglog.Entry) error {
			calls++
			return errDisk
		})
		if !errors.Is(err, errDisk) || calls != 1 {
			t.Errorf("error of f: %v, %d calls", err, calls)
		}
		b.setDown(true)
		if _, err := fetchAll(a, 41); !errors.Is(err, errLinkDown) {
			t.Errorf("dead peer: %v", err)
		}
	})
}

func TestEntriesThatDoNotFollowAreRefused(t *testing.T) {
	for name, spoil := range map[string]func([]seglog.Entry){
		"gap":        func(e []seglog.Entry) { e[3].Index++ },
		"repetition": func(e []seglog.Entry) { e[3].Index-- },
		"lower term": func(e []seglog.Entry) { e[5].Term = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, 2, 0)
				b := w.nodes[nodeB]
				b.entries.entries = someEntries(1)
				spoil(b.entries.entries)
				if got, err := fetchAll(w.nodes[nodeA], 1); !errors.Is(err, ErrCorrupt) || len(got) > 5 {
					t.Errorf("%d entries, %v", len(got), err)
				}
			})
		})
	}
}

// A connection that is lost, at whichever byte, is never taken for the end of the entries.
func TestLostConnectionIsNoEndOfEntries(t *testing.T) {
	all := []seglog.Entry{{Index: 1, Term: 1, Data: content(30)}, {Index: 2, Term: 1}, {Index: 3, Term: 1, Data: content(5)}}
	body := 3*entryHeadBytes + 35
	for cut := range frame.HeaderBytes + frame.HeaderBytes + body + frame.HeaderBytes + trailerBytes {
		bubble(t, func(t *testing.T) {
			w := newWorld(t, 2, 0)
			b := w.nodes[nodeB]
			b.entries.entries = all
			b.wrap = func(c net.Conn) net.Conn { return &shortConn{c, cut} }
			if got, err := fetchAll(w.nodes[nodeA], 1); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("cut after %d bytes: %d entries, %v", cut, len(got), err)
			}
		})
	}
}

// shortConn ends once so many bytes were read from it.
type shortConn struct {
	net.Conn
	bytes int
}

func (c *shortConn) Read(p []byte) (int, error) {
	if c.bytes == 0 {
		return 0, io.EOF
	}
	n, err := c.Conn.Read(p[:min(len(p), c.bytes)])
	c.bytes -= n
	return n, err
}

func TestAskTail(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, 0)
		b := w.nodes[nodeB]
		want := Tail{Term: 5, Leading: true, First: 41, Last: 99, Commit: 98}
		for range 2 {
			b.entries.tail = func(context.Context) (Tail, error) {
				time.Sleep(2 * silenceMax) // a slow majority
				return want, nil
			}
			got, err := w.nodes[nodeA].AskTail(t.Context(), nodeB)
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got)\n%s", err, diff)
			}
			want = Tail{Commit: 1}
		}
		b.entries.tail = func(ctx context.Context) (Tail, error) {
			<-ctx.Done()
			return Tail{}, ctx.Err()
		}
		var r *refusal
		if _, err := w.nodes[nodeA].AskTail(t.Context(), nodeB); !errors.As(err, &r) || r.code != refusedFailed {
			t.Errorf("no majority: %v", err)
		}
	})
}

func TestRunEndsWhatIsServed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, 0)
		b := w.nodes[nodeB]
		b.entries.tail = func(ctx context.Context) (Tail, error) {
			<-ctx.Done()
			return Tail{}, ctx.Err()
		}
		answered := make(chan error)
		go func() {
			_, err := w.nodes[nodeA].AskTail(t.Context(), nodeB)
			answered <- err
		}()
		synctest.Wait()
		b.stop()
		if err := <-answered; err == nil {
			t.Error("there was an answer")
		}
		if _, err := w.nodes[nodeA].AskTail(t.Context(), nodeB); !errors.Is(err, io.ErrClosedPipe) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("after Run: %v", err)
		}
	})
}

func TestCopyThatEndsWithinAnEntryIsAnError(t *testing.T) {
	whole := binary.LittleEndian.AppendUint64(nil, 1)
	whole = binary.LittleEndian.AppendUint64(whole, 1)
	whole = binary.LittleEndian.AppendUint32(whole, 2)
	whole = append(whole, 0, 0, 0, 0, 'x', 'y')
	for n := 1; n < len(whole); n++ {
		bubble(t, func(t *testing.T) {
			w := newWorld(t, 2, 0)
			a := w.nodes[nodeA]
			near, far := net.Pipe()
			a.cfg.Dial = func(context.Context, cluster.NodeID) (Conn, error) { return NetConn(near), nil }
			w.serving.Go(func() {
				s := newStream(NetConn(far), chunkBytes, new(atomic.Uint64), new(atomic.Uint64))
				_, _, _ = s.next(time.Hour)
				_ = s.send(frameReady, nil)
				_ = s.send(frameData, whole[:n])
				_ = s.sendEnd(sumOf(whole[:n]))
				_ = far.Close()
			})
			if got, err := fetchAll(a, 1); err == nil || len(got) > 0 {
				t.Errorf("%d bytes of an entry: %d entries, %v", n, len(got), err)
			}
		})
	}
}
