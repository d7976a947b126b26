package bulk

import (
	"bytes"
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/raft/frame"
)

func TestUploadReachesEveryPeerWhileItGrows(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 3, 1)
		data := content(3*chunkBytes + 17)
		u, err := w.nodes[nodeA].Upload(t.Context(), id1)
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		for at := 0; at < len(data); {
			n := min(200_000, len(data)-at)
			if _, err := u.Write(data[at : at+n]); err != nil {
				t.Fatal(err)
			}
			at += n
			synctest.Wait()
			for id, node := range w.nodes {
				if got, complete, _ := node.stages.get(id1); complete || !bytes.Equal(got, data[:at]) {
					t.Fatalf("node %d has %d bytes of %d, complete %v", id, len(got), at, complete)
				}
			}
		}
		sum := sumOf(data)
		if err := u.Finish(sum.bytes, sum.crc); err != nil {
			t.Fatal(err)
		}
		if err := u.WaitMajority(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, node := range w.nodes {
			node.holds(t, id1, data)
			if node.stages.opened != 0 {
				t.Errorf("node %d: %d readers are open", node.cfg.Self, node.stages.opened)
			}
		}
		if got := w.nodes[nodeA].Stats(); got.StagesPushed != 3 || got.PushesFailed != 0 || got.BytesSent < 3*sum.bytes {
			t.Errorf("%+v", got)
		}
		if got := w.nodes[nodeB].Stats(); got.StagesReceived != 1 || got.BytesReceived < sum.bytes {
			t.Errorf("%+v", got)
		}
	})
}

func TestMajorityNeedsTheirFsyncAndOurs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 3, 1)
		gates := map[*testNode]chan struct{}{}
		for _, n := range w.nodes {
			gate := make(chan struct{})
			gates[n] = gate
			n.stages.onFinish = func(entry.StageID) error {
				<-gate
				return nil
			}
		}
		a := w.nodes[nodeA]
		u, err := a.Upload(t.Context(), id1)
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		finished := make(chan error, 1)
		go func() { finished <- u.Finish(0, 0) }()
		// First the learner holds the stage, then a voter, then the leader. Only then a majority holds it.
		for _, n := range []*testNode{w.nodes[4], w.nodes[nodeB], a} {
			synctest.Wait()
			if u.Reached() {
				t.Fatalf("a majority is said to hold the stage before node %d", n.cfg.Self)
			}
			close(gates[n])
		}
		if err := u.WaitMajority(); err != nil {
			t.Fatal(err)
		}
		if err := <-finished; err != nil {
			t.Fatal(err)
		}
		close(gates[w.nodes[nodeC]])
	})
}

func TestClusterOfOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1, 0)
		u := uploaded(t, w.nodes[nodeA], id1, content(10))
		if err := u.WaitMajority(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestWaitMajorityEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(n *testNode, u *Upload, cancel func())
		want error
	}{
		{"with its context", func(_ *testNode, _ *Upload, cancel func()) { cancel() }, context.Canceled},
		{"with Close", func(_ *testNode, u *Upload, _ func()) { u.Close() }, context.Canceled},
		{"with Run", func(n *testNode, u *Upload, _ func()) { go n.stop() }, ErrStopped},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, 3, 0)
				w.nodes[nodeB].setDown(true)
				w.nodes[nodeC].setDown(true)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				u, err := w.nodes[nodeA].Upload(ctx, id1)
				if err != nil {
					t.Fatal(err)
				}
				waited := make(chan error)
				go func() { waited <- u.WaitMajority() }()
				synctest.Wait()
				c.end(w.nodes[nodeA], u, cancel)
				if err := <-waited; !errors.Is(err, c.want) {
					t.Errorf("got %v, want %v", err, c.want)
				}
				u.Close()
			})
		})
	}
}

func TestDeadPeerIsTriedAgainAndMissedByNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 3, 0)
		c := w.nodes[nodeC]
		c.setDown(true)
		w.began = time.Now()
		data := content(chunkBytes + 1)
		u := uploaded(t, w.nodes[nodeA], id1, data)
		if err := u.WaitMajority(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(w.began); took != 0 {
			t.Errorf("the majority took %v", took)
		}
		time.Sleep(3 * time.Second)
		c.setDown(false)
		time.Sleep(time.Second)
		synctest.Wait()
		c.holds(t, id1, data)
		ms := time.Millisecond
		want := []time.Duration{0, 50 * ms, 150 * ms, 350 * ms, 750 * ms, 1550 * ms, 2550 * ms, 3550 * ms}
		if diff := cmp.Diff(want, c.dials); diff != "" {
			t.Errorf("dials (-want +got)\n%s", diff)
		}
	})
}

func TestSlowPeerSlowsNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 3, 0)
		gate := make(chan struct{})
		w.nodes[nodeC].stages.onWrite = func(entry.StageID) error {
			<-gate
			return nil
		}
		data := content(8 * chunkBytes)
		u := uploaded(t, w.nodes[nodeA], id1, data)
		if err := u.WaitMajority(); err != nil {
			t.Fatal(err)
		}
		w.nodes[nodeB].holds(t, id1, data)
		synctest.Wait() // until c has begun to receive
		u.Close()
		close(gate)
		synctest.Wait()
		w.nodes[nodeC].holds(t, id1, data)
	})
}

// After Close, a stage that a majority holds is still pushed to a slow peer. The
// next stage waits for that, and is not pushed there at all if it is closed meanwhile.
func TestSlowPeerGetsOneStageAfterTheOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 3, 0)
		c, gate := w.nodes[nodeC], make(chan struct{})
		c.stages.onWrite = func(entry.StageID) error {
			<-gate
			return nil
		}
		ids := []entry.StageID{{Term: 7, Number: 1}, {Term: 7, Number: 2}, {Term: 7, Number: 3}}
		data := content(4 * chunkBytes)
		var last *Upload
		for i, id := range ids {
			last = uploaded(t, w.nodes[nodeA], id, data)
			if err := last.WaitMajority(); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // the first stage is being pushed to c
			if i < 2 {
				last.Close()
			}
		}
		synctest.Wait()
		c.lacks(t, ids[1])
		c.lacks(t, ids[2])
		close(gate)
		synctest.Wait()
		c.holds(t, ids[0], data)
		c.lacks(t, ids[1])
		c.holds(t, ids[2], data)
		if got := len(c.dials); got != 2 {
			t.Errorf("%d dials, want 2", got)
		}
	})
}

func TestContextOfUploadEndsItsPushes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 3, 0)
		gate := make(chan struct{})
		defer close(gate)
		c := w.nodes[nodeC]
		c.stages.onWrite = func(entry.StageID) error {
			<-gate
			return errDisk
		}
		ctx, cancel := context.WithCancel(t.Context())
		u, err := w.nodes[nodeA].Upload(ctx, id1)
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		if _, err := u.Write(content(10 * chunkBytes)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		w.nodes[nodeB].lacks(t, id1)
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.users != 1 {
			t.Errorf("%d pushes go on", u.users-1)
		}
	})
}

// A stage may leave the log while it grows. Its readers see that at the next PING. They must not loop without a
// pause: on virtual time this test would then never end.
func TestStageThatIsDroppedIsNotPushed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, 0)
		a := w.nodes[nodeA]
		u, err := a.Upload(t.Context(), id1)
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		synctest.Wait()
		if err := u.w.Abort(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * pingInterval)
		w.nodes[nodeB].lacks(t, id1)
		if got := a.Stats().PushesFailed; got == 0 {
			t.Error("the push did not fail")
		}
	})
}

func TestCloseAbortsAnUnfinishedStageEverywhere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 3, 0)
		u, err := w.nodes[nodeA].Upload(t.Context(), id1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := u.Write(content(2 * chunkBytes)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		u.Close()
		u.Close()
		synctest.Wait()
		for _, n := range w.nodes {
			n.lacks(t, id1)
		}
		if got := w.nodes[nodeB].Stats().StagesAborted; got != 1 {
			t.Errorf("StagesAborted = %d", got)
		}
	})
}

func TestLostConnectionBeginsAgain(t *testing.T) {
	data := content(4*chunkBytes + 5)
	for _, bytes := range []int{0, 5, frame.HeaderBytes + idBytes, frame.HeaderBytes + idBytes + 1, 2*chunkBytes + 500, len(data) + 100} {
		bubble(t, func(t *testing.T) {
			w := newWorld(t, 2, 0)
			b := w.nodes[nodeB]
			b.wrap = first(func(c net.Conn) net.Conn { return &cutConn{c, bytes} })
			u := uploaded(t, w.nodes[nodeA], id1, data)
			if err := u.WaitMajority(); err != nil {
				t.Fatal(err)
			}
			b.holds(t, id1, data)
			if len(b.dials) != 2 {
				t.Errorf("cut after %d bytes: %d dials", bytes, len(b.dials))
			}
		})
	}
}

// flipConn flips one bit of what it writes.
type flipConn struct {
	net.Conn
	at int
}

func (c *flipConn) Write(p []byte) (int, error) {
	if c.at >= 0 && c.at < len(p) {
		p = bytes.Clone(p)
		p[c.at] ^= 4
	}
	c.at -= len(p)
	return c.Conn.Write(p)
}

func TestFlippedBitBeginsAgain(t *testing.T) {
	data := content(100)
	bytes := 2*frame.HeaderBytes + idBytes + len(data) + frame.HeaderBytes + trailerBytes
	for at := range bytes {
		bubble(t, func(t *testing.T) {
			w := newWorld(t, 2, 0)
			b := w.nodes[nodeB]
			b.wrap = first(func(c net.Conn) net.Conn { return &flipConn{c, at} })
			u := uploaded(t, w.nodes[nodeA], id1, data)
			if err := u.WaitMajority(); err != nil {
				t.Fatal(err)
			}
			b.holds(t, id1, data)
			if _, _, ok := b.stages.get(entry.StageID{}); ok || len(b.dials) != 2 || len(b.stages.stages) != 1 {
				t.Errorf("bit flipped at %d: %d dials, %d stages", at, len(b.dials), len(b.stages.stages))
			}
		})
	}
}

func TestIdleStageIsKeptAlive(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, 0)
		u, err := w.nodes[nodeA].Upload(t.Context(), id1)
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		time.Sleep(time.Hour)
		sum := sumOf(nil)
		if err := u.Finish(sum.bytes, sum.crc); err != nil {
			t.Fatal(err)
		}
		if err := u.WaitMajority(); err != nil {
			t.Fatal(err)
		}
		if got := w.nodes[nodeB].dials; len(got) != 1 {
			t.Errorf("dials %v", got)
		}
	})
}

// A peer whose host has gone takes no bytes. The push gives it up, and finds the peer when it is back.
func TestSilentPeerIsGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, 0)
		b := w.nodes[nodeB]
		var silent net.Conn
		b.wrap = first(func(c net.Conn) net.Conn {
			_ = c.Close()
			c, silent = net.Pipe()
			return c
		})
		data := content(10)
		u := uploaded(t, w.nodes[nodeA], id1, data)
		defer func() { _ = silent.Close() }()
		if err := u.WaitMajority(); err != nil {
			t.Fatal(err)
		}
		if took, want := time.Since(w.began), writeTimeout+backOffMin; took < want || took > want+time.Second {
			t.Errorf("took %v, want %v", took, want)
		}
		b.holds(t, id1, data)
	})
}

func TestWrongEndIsTakenByNobody(t *testing.T) {
	data := content(1000)
	sum := sumOf(data)
	for name, end := range map[string]trailer{
		"CRC": {sum.bytes, sum.crc ^ 1}, "shorter": {sum.bytes - 1, sum.crc}, "longer": {sum.bytes + 1, sum.crc},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, 3, 0)
				u, err := w.nodes[nodeA].Upload(t.Context(), id1)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := u.Write(data); err != nil {
					t.Fatal(err)
				}
				if err := u.Finish(end.bytes, end.crc); err == nil {
					t.Error("Finish took it")
				}
				time.Sleep(time.Minute)
				if u.Reached() {
					t.Error("a majority is said to hold the stage")
				}
				u.Close()
				synctest.Wait()
				for _, n := range w.nodes {
					n.lacks(t, id1)
				}
			})
		})
	}
}

// A stage that the leader's disk gives back with wrong bytes must not become a peer's stage.
func TestStageSpoiltOnTheLeadersDiskIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 3, 0)
		a := w.nodes[nodeA]
		a.stages.spoil = func(p []byte, off int64) {
			// A push reads whatever has been written, so its reads may begin at any offset.
			if at := chunkBytes + 7 - off; at >= 0 && at < int64(len(p)) {
				p[at] ^= 1
			}
		}
		u := uploaded(t, a, id1, content(3*chunkBytes))
		if err := u.WaitMajority(); !errors.Is(err, ErrUnreadable) {
			t.Errorf("WaitMajority: %v", err)
		}
		u.Close()
		synctest.Wait()
		w.nodes[nodeB].lacks(t, id1)
	})
}

func TestPeerThatHasItIsSentNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, 0)
		data := content(chunkBytes)
		w.nodes[nodeB].stages.put(id1, data)
		u := uploaded(t, w.nodes[nodeA], id1, data)
		if err := u.WaitMajority(); err != nil {
			t.Fatal(err)
		}
		if got := w.nodes[nodeB].Stats().BytesReceived; got != frame.HeaderBytes+idBytes {
			t.Errorf("%d bytes were sent", got)
		}
	})
}

func TestPeerWhoseDiskFailsIsTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, 0)
		b := w.nodes[nodeB]
		b.stages.onWrite = func(entry.StageID) error { return errDisk }
		data := content(3 * chunkBytes)
		u := uploaded(t, w.nodes[nodeA], id1, data)
		time.Sleep(time.Minute)
		synctest.Wait()
		b.lacks(t, id1)
		b.stages.heal()
		if err := u.WaitMajority(); err != nil {
			t.Fatal(err)
		}
		b.holds(t, id1, data)
	})
}

func TestUploadErrors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, 0)
		a := w.nodes[nodeA]
		a.stages.put(id1, nil)
		if _, err := a.Upload(t.Context(), id1); err == nil {
			t.Error("a stage was created twice")
		}
		a.stages.onWrite = func(entry.StageID) error { return errDisk }
		u, err := a.Upload(t.Context(), id2)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := u.Write(content(1)); !errors.Is(err, errDisk) {
			t.Errorf("Write: %v", err)
		}
		u.Close()
		a.stop()
		if _, err := a.Upload(t.Context(), id2); !errors.Is(err, ErrStopped) {
			t.Errorf("Upload after Run: %v", err)
		}
		a.lacks(t, id2)
	})
}

// A stage that no majority holds is never named in the log. So once it is closed, sending the rest is of no use.
func TestCloseWithoutAMajorityStopsWhatIsUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, 0)
		b, gate := w.nodes[nodeB], make(chan struct{})
		b.stages.onWrite = func(entry.StageID) error {
			<-gate
			return nil
		}
		u := uploaded(t, w.nodes[nodeA], id1, content(5*chunkBytes))
		synctest.Wait()
		u.Close()
		synctest.Wait() // what Close ends notices it in goroutines of its own
		close(gate)
		synctest.Wait()
		b.lacks(t, id1)
	})
}
