package bulk

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/raft/entry"
)

func TestWantFetchesFromTheNamedPeer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 3, 0)
		data := content(3*chunkBytes + 9)
		w.nodes[nodeB].stages.put(id1, data)
		w.nodes[nodeC].stages.put(id1, data)
		a := w.nodes[nodeA]
		for range 3 {
			a.Want(staged(id1, data), nodeC)
		}
		synctest.Wait()
		a.holds(t, id1, data)
		if b, c := len(w.nodes[nodeB].dials), len(w.nodes[nodeC].dials); b != 0 || c != 1 {
			t.Errorf("dials of b %d, of c %d", b, c)
		}
		if got, want := a.Stats().StagesFetched+w.nodes[nodeC].Stats().StagesServed, uint64(2); got != want {
			t.Errorf("fetched and served: %d", got)
		}
		if w.nodes[nodeC].stages.opened != 0 || len(a.wants) != 0 {
			t.Error("something was left open")
		}
	})
}

// In each case the first peer cannot give the stage, and the other peer can.
func TestWantFallsBackToAnotherPeer(t *testing.T) {
	data := content(2*chunkBytes + 9)
	for name, spoil := range map[string]func(b *testNode){
		"dead":            func(b *testNode) { b.setDown(true) },
		"without it":      func(*testNode) {},
		"another content": func(b *testNode) { b.stages.put(id1, content(len(data) + 1)[1:]) },
		"shorter":         func(b *testNode) { b.stages.put(id1, data[:len(data)-1]) },
		"longer":          func(b *testNode) { b.stages.put(id1, content(100*chunkBytes)) },
		"incomplete": func(b *testNode) {
			s, _ := b.stages.CreateStage(id1)
			_, _ = s.Write(data)
		},
		"lost midway": func(b *testNode) {
			b.stages.put(id1, data)
			b.wrap = func(c net.Conn) net.Conn { return &deafConn{c, chunkBytes} }
		},
		"silent": func(b *testNode) {
			b.wrap = func(c net.Conn) net.Conn { return &muteConn{c} }
		},
		"another protocol": func(b *testNode) {
			b.stages.put(id1, data)
			b.wrap = func(c net.Conn) net.Conn { return &flipConn{c, 3} }
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, 3, 0)
				spoil(w.nodes[nodeB])
				w.nodes[nodeC].stages.put(id1, data)
				a := w.nodes[nodeA]
				a.Want(staged(id1, data), nodeB)
				time.Sleep(silenceMax + time.Second)
				synctest.Wait()
				a.holds(t, id1, data)
				if got := a.Stats().BytesReceived; got > 3*uint64(len(data)) {
					t.Errorf("%d bytes came, for %d", got, len(data))
				}
				if b, c := len(w.nodes[nodeB].dials), len(w.nodes[nodeC].dials); b != 1 || c != 1 {
					t.Errorf("dials of b %d, of c %d", b, c)
				}
			})
		})
	}
}

// deafConn closes itself once so many bytes were read from it.
type deafConn struct {
	net.Conn
	bytes int
}

func (c *deafConn) Read(p []byte) (int, error) {
	if c.bytes <= 0 {
		_ = c.Close()
	}
	n, err := c.Conn.Read(p)
	c.bytes -= n
	return n, err
}

// muteConn takes all bytes that are written to it, and sends none of them.
type muteConn struct{ net.Conn }

func (c *muteConn) Write(p []byte) (int, error) { return len(p), nil }

func TestFetchGoesOnUntilSomebodyHasIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 3, 0)
		a, data := w.nodes[nodeA], content(50)
		w.began = time.Now()
		fetched := make(chan error)
		go func() { fetched <- a.FetchStage(t.Context(), staged(id1, data), nodeB) }()
		time.Sleep(time.Minute)
		w.nodes[nodeC].stages.put(id1, data)
		if err := <-fetched; err != nil {
			t.Fatal(err)
		}
		a.holds(t, id1, data)
		ms := time.Millisecond
		want := []time.Duration{0, 50 * ms, 150 * ms, 350 * ms, 750 * ms, 1550 * ms, 2550 * ms}
		if diff := cmp.Diff(want, w.nodes[nodeB].dials[:len(want)]); diff != "" {
			t.Errorf("dials (-want +got)\n%s", diff)
		}
	})
}

func TestFetchEndsWithItsContextAndWithRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 3, 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := w.nodes[nodeA].FetchStage(ctx, staged(id1, nil), nodeB)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("FetchStage: %v", err)
		}
		w.nodes[nodeA].Want(staged(id1, nil), nodeB)
		synctest.Wait()
		w.nodes[nodeA].stop() // waits for the want
		w.nodes[nodeA].Want(staged(id1, nil), nodeB)
		if n := len(w.nodes[nodeA].wants); n != 0 {
			t.Errorf("%d wants after Run", n)
		}
	})
}

func TestWantIsDroppedUnlessRenewed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, 0)
		a := w.nodes[nodeA]
		wanted := func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			return len(a.wants) == 1
		}
		a.Want(staged(id1, nil), nodeB)
		for range 10 {
			time.Sleep(wantLife - time.Second)
			if !wanted() {
				t.Fatal("the stage is not wanted any more")
			}
			a.Want(staged(id1, nil), nodeB)
		}
		time.Sleep(wantLife + backOffMax + time.Millisecond)
		synctest.Wait()
		if wanted() {
			t.Error("the stage is still wanted")
		}
	})
}

func TestWantAsksWhoWasNamedLast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 3, 0)
		a, data := w.nodes[nodeA], content(5)
		w.nodes[nodeB].setDown(true)
		w.nodes[nodeC].setDown(true)
		a.Want(staged(id1, data), nodeB)
		time.Sleep(3 * time.Second)
		a.Want(staged(id1, data), nodeC)
		for _, id := range []cluster.NodeID{nodeB, nodeC} {
			w.nodes[id].setDown(false)
			w.nodes[id].stages.put(id1, data)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		a.holds(t, id1, data)
		if w.nodes[nodeC].Stats().StagesServed != 1 {
			t.Error("the stage came from another node")
		}
	})
}

func TestForgetDropsWants(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, 0)
		a := w.nodes[nodeA]
		a.Want(staged(id1, nil), nodeB)
		a.Want(staged(id2, nil), nodeB)
		synctest.Wait()
		a.Forget(func(id entry.StageID) bool { return id == id2 })
		synctest.Wait()
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.wants) != 1 || a.wants[id2] == nil {
			t.Errorf("wants: %v", a.wants)
		}
	})
}

func TestForgetAbortsACopyUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, 0)
		a, gate := w.nodes[nodeA], make(chan struct{})
		a.stages.onWrite = func(entry.StageID) error {
			<-gate
			return nil
		}
		data := content(5 * chunkBytes)
		w.nodes[nodeB].stages.put(id1, data)
		a.Want(staged(id1, data), nodeB)
		synctest.Wait()
		a.Forget(func(entry.StageID) bool { return false })
		synctest.Wait() // else the copy could end at this moment, and be complete
		close(gate)
		synctest.Wait()
		a.lacks(t, id1)
		if got := a.Stats().StagesAborted; got != 1 {
			t.Errorf("StagesAborted = %d", got)
		}
	})
}

func TestWantsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, 0)
		a := w.nodes[nodeA]
		for n := range uint64(wantsMax + 3) {
			a.Want(staged(entry.StageID{Term: 1, Number: n}, nil), nodeB)
		}
		synctest.Wait()
		a.mu.Lock()
		defer a.mu.Unlock()
		if got := a.counters.wantsRefused.Load(); len(a.wants) != wantsMax || got != 3 {
			t.Errorf("%d wants, %d refused", len(a.wants), got)
		}
	})
}

// A stage is not fetched while it is being pushed to this node. It is fetched
// once the push has failed.
func TestWantWaitsForAPush(t *testing.T) {
	for _, fails := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			w := newWorld(t, 3, 0)
			a, b, c := w.nodes[nodeA], w.nodes[nodeB], w.nodes[nodeC]
			data := content(1000)
			c.stages.put(id1, data)
			gate := make(chan struct{})
			b.stages.onFinish = func(entry.StageID) error {
				<-gate
				if fails {
					return errDisk
				}
				return nil
			}
			u := uploaded(t, a, id1, data)
			synctest.Wait()
			b.Want(staged(id1, data), nodeC)
			time.Sleep(wantLife / 2)
			if len(c.dials) != 1 { // a has dialled c for its push
				t.Errorf("dials of c: %v", c.dials)
			}
			b.stages.heal()
			u.Close()
			close(gate)
			synctest.Wait()
			b.holds(t, id1, data)
			if got := b.Stats(); (got.StagesFetched == 1) != fails {
				t.Errorf("failed push %v: %+v", fails, got)
			}
		})
	}
}

// While a node fetches a stage it refuses a push of that stage. The push is tried again.
func TestPushWaitsForAFetch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 3, 0)
		a, b, c := w.nodes[nodeA], w.nodes[nodeB], w.nodes[nodeC]
		data := content(1000)
		c.stages.put(id1, data)
		gate := make(chan struct{})
		b.stages.onFinish = func(entry.StageID) error {
			<-gate
			return nil
		}
		b.Want(staged(id1, data), nodeC)
		synctest.Wait()
		c.setDown(true)
		u := uploaded(t, a, id1, data)
		time.Sleep(3 * time.Second)
		if u.Reached() || a.Stats().PushesFailed == 0 {
			t.Error("the push was not refused")
		}
		close(gate)
		if err := u.WaitMajority(); err != nil {
			t.Fatal(err)
		}
		b.holds(t, id1, data)
		if got := b.Stats(); got.StagesFetched != 1 || got.StagesReceived != 0 {
			t.Errorf("%+v", got)
		}
	})
}
