package bulk

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/entry"
)

// warnings is a log handler that keeps the messages of warnings and errors.
type warnings struct {
	mu   sync.Mutex
	said []string
}

// Enabled implements slog.Handler.
func (w *warnings) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle implements slog.Handler.
func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, r.Message)
	return nil
}

// WithAttrs implements slog.Handler.
func (w *warnings) WithAttrs([]slog.Attr) slog.Handler { return w }

// WithGroup implements slog.Handler.
func (w *warnings) WithGroup(string) slog.Handler { return w }

func (w *warnings) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.said)
}

// A stage for which a peer has no room is pushed again only after a long time,
// because each attempt writes as much as the disk takes.
func TestPeerWithAFullDiskIsTriedAgainAfterLong(t *testing.T) {
	for name, writes := range map[string]int{"no room for its file": -1, "no room for a byte": 0, "no room for all of it": 2} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, 2, 0)
				a, b := w.nodes[nodeA], w.nodes[nodeB]
				b.stages.fill(writes)
				w.began = time.Now()
				data := content(40 * chunkBytes)
				u := uploaded(t, a, id1, data)
				time.Sleep(4 * time.Minute)
				synctest.Wait()
				b.lacks(t, id1)
				s := time.Second
				want := []time.Duration{0, 5 * s, 15 * s, 35 * s, 75 * s, 135 * s, 195 * s}
				if diff := cmp.Diff(want, b.dialled()); diff != "" {
					t.Errorf("dials (-want +got)\n%s", diff)
				}
				if got := a.Stats(); got.StagesRefused != 7 || got.PushesFailed != 7 || got.BytesSent > 7*uint64(len(data))/2 {
					t.Errorf("%+v", got)
				}
				if diff := cmp.Diff([]Blocked{{ID: id1, Bytes: uint64(len(data)), Full: []cluster.NodeID{nodeB}}}, a.Blocked()); diff != "" {
					t.Errorf("blocked (-want +got)\n%s", diff)
				}
				b.stages.heal()
				if err := u.WaitMajority(); err != nil {
					t.Fatal(err)
				}
				b.holds(t, id1, data)
				for _, n := range w.nodes {
					if got := n.Blocked(); len(got) > 0 {
						t.Errorf("node %d: still blocked: %v", n.cfg.Self, got)
					}
				}
			})
		})
	}
}

// The refusal arrives although the sender's bytes fill the buffers of the sockets.
func TestFullDiskIsToldOverTCP(t *testing.T) {
	nodes := tcpPair(t)
	nodes[1].stages.fill(3)
	uploaded(t, nodes[0], id1, content(64<<20))
	deadline := time.Now().Add(10 * time.Second)
	for nodes[0].Stats().PushesFailed == 0 && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	if got := nodes[0].Stats(); got.StagesRefused == 0 || got.StagesRefused != got.PushesFailed { // a slow machine may have tried twice
		t.Errorf("%+v", got)
	}
	if got := nodes[0].Blocked(); len(got) != 1 || got[0].ID != id1 {
		t.Errorf("blocked: %v", got)
	}
}

// A stage that is still growing is refused between two writes of its owner.
func TestGrowingStageIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, 0)
		a, b := w.nodes[nodeA], w.nodes[nodeB]
		b.stages.fill(1)
		u, err := a.Upload(t.Context(), id1)
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		for range 2 {
			if _, err := u.Write(content(10)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if got := a.Stats().StagesRefused; got != 1 {
			t.Errorf("StagesRefused = %d", got)
		}
		want := []Blocked{{ID: id1, Bytes: 20, Full: []cluster.NodeID{nodeB}}}
		if diff := cmp.Diff(want, a.Blocked()); diff != "" {
			t.Errorf("blocked (-want +got)\n%s", diff)
		}
		u.Close()
		if got := a.Blocked(); len(got) > 0 {
			t.Errorf("blocked after Close: %v", got)
		}
	})
}

// A full disk among three blocks nothing, unless another node is missing.
func TestFullMinorityBlocksNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 3, 1)
		a, b, c := w.nodes[nodeA], w.nodes[nodeB], w.nodes[nodeC]
		c.stages.fill(0)
		w.nodes[4].stages.fill(0)
		b.setDown(true)
		u := uploaded(t, a, id1, content(10))
		time.Sleep(time.Minute)
		synctest.Wait()
		want := []Blocked{{ID: id1, Bytes: 10, Full: []cluster.NodeID{nodeC}, Failing: []cluster.NodeID{nodeB}}}
		if diff := cmp.Diff(want, a.Blocked(), cmpopts.IgnoreFields(Blocked{}, "Why")); diff != "" {
			t.Errorf("b is down: blocked (-want +got)\n%s", diff)
		}
		b.setDown(false)
		if err := u.WaitMajority(); err != nil {
			t.Fatal(err)
		}
		if got := a.Blocked(); len(got) > 0 {
			t.Errorf("a majority has it: blocked %v", got)
		}
	})
}

// A stage for which this node's own disk has no room is fetched again only after a long time.
func TestFetchWaitsLongForThisNodesFullDisk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 3, 0)
		a, b, c := w.nodes[nodeA], w.nodes[nodeB], w.nodes[nodeC]
		data := content(3 * chunkBytes)
		b.stages.put(id1, data)
		c.stages.put(id1, data)
		a.stages.fill(1)
		w.began = time.Now()
		fetched := make(chan error)
		go func() { fetched <- a.FetchStage(t.Context(), staged(id1, data), nodeB) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		s := time.Second
		if diff := cmp.Diff([]time.Duration{0, 5 * s, 15 * s, 35 * s}, b.dialled()); diff != "" || len(c.dials) > 0 {
			t.Errorf("dials of c %v, of b (-want +got)\n%s", c.dials, diff)
		}
		if diff := cmp.Diff([]Blocked{{ID: id1, Bytes: chunkBytes, Full: []cluster.NodeID{nodeA}}}, a.Blocked()); diff != "" {
			t.Errorf("blocked (-want +got)\n%s", diff)
		}
		a.stages.heal()
		if err := <-fetched; err != nil {
			t.Fatal(err)
		}
		a.holds(t, id1, data)
		if got := a.Blocked(); len(got) > 0 {
			t.Errorf("still blocked: %v", got)
		}
	})
}

// The leader's own disk is full: the writer is told, and nothing of the stage is left. Blocked shows it
// until the disk has taken as many bytes, or for noRoomFor.
func TestUploadOnAFullDiskIsToldAndShown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 3, 0)
		a := w.nodes[nodeA]
		a.stages.fill(1)
		fails := func() {
			u, err := a.Upload(t.Context(), id1)
			if err != nil {
				t.Fatal(err)
			}
			defer u.Close()
			if _, err := u.Write(content(1000)); err != nil {
				t.Fatal(err)
			}
			if _, err := u.Write(content(1)); !errors.Is(err, seglog.ErrFull) {
				t.Errorf("Write: %v", err)
			}
		}
		fails()
		synctest.Wait()
		for _, n := range w.nodes {
			n.lacks(t, id1)
		}
		want := []Blocked{{ID: id1, Bytes: 1000, Full: []cluster.NodeID{nodeA}}}
		if diff := cmp.Diff(want, a.Blocked()); diff != "" {
			t.Errorf("blocked (-want +got)\n%s", diff)
		}
		time.Sleep(noRoomFor)
		if got := a.Blocked(); len(got) > 0 {
			t.Errorf("after %v: %v", noRoomFor, got)
		}
		fails()
		a.stages.heal()
		uploaded(t, a, id1, content(999)).Close()
		if got := a.Blocked(); len(got) != 1 {
			t.Errorf("a smaller stage was taken: %v", got)
		}
		uploaded(t, a, id2, content(1000)).Close()
		if got := a.Blocked(); len(got) > 0 {
			t.Errorf("a stage of that size was taken: %v", got)
		}
		a.stages.fill(-1)
		if _, err := a.Upload(t.Context(), id3); !errors.Is(err, seglog.ErrFull) {
			t.Errorf("Upload: %v", err)
		}
		if got := a.Blocked(); len(got) != 1 || got[0].ID != id3 {
			t.Errorf("blocked: %v", got)
		}
	})
}

// Clients that try again and again do not make a line in the log for each attempt.
func TestFullDisksAreWarnedOfSeldom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, 0)
		a, b := w.nodes[nodeA], w.nodes[nodeB]
		var ofA, ofB warnings
		a.cfg.Logger, b.cfg.Logger = slog.New(&ofA), slog.New(&ofB)
		b.stages.fill(0)
		const attempts = 60
		for range attempts { // one attempt a second
			u := uploaded(t, a, id1, content(10))
			time.Sleep(time.Second)
			u.Close()
			synctest.Wait()
			a.stages.drop(id1)
		}
		if got := a.Stats().StagesRefused; got != attempts {
			t.Errorf("StagesRefused = %d", got)
		}
		const most = attempts * time.Second / fullWarnInterval
		if a, b := ofA.count(), ofB.count(); a != int(most) || b != int(most) {
			t.Errorf("%d warnings of the leader, %d of the peer, want %d", a, b, most)
		}
	})
}

// A sender in the middle of its writes gets the refusal, and not a reset of the connection.
func TestRefusedSenderIsHeardOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, 0)
		w.nodes[nodeB].stages.fill(0)
		s := w.rawDial(t, nodeB)
		s.mustSend(t, framePut, encodeID(id1))
		if _, err := s.expect(frameReady, time.Hour); err != nil {
			t.Fatal(err)
		}
		s.mustSend(t, frameData, content(10))
		s.refused(t, refusedFull)
		for range 100 {
			s.mustSend(t, frameData, content(chunkBytes))
		}
		time.Sleep(silenceMax)
		synctest.Wait()
		if err := s.send(frameData, content(1)); err == nil {
			t.Error("it is heard out for ever")
		}
	})
}

// The warning that commits wait comes at once, even right after a warning about one full disk.
func TestBlockedStageIsWarnedOfAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 3, 0)
		a := w.nodes[nodeA]
		var said warnings
		a.cfg.Logger = slog.New(&said)
		gate := make(chan struct{})
		w.nodes[nodeC].stages.fill(0)
		w.nodes[nodeB].stages.onWrite = func(entry.StageID) error {
			<-gate
			return errFull
		}
		uploaded(t, a, id1, content(10))
		synctest.Wait()
		close(gate)
		synctest.Wait()
		want := []string{"a peer's disk has no room for a stage", "commits wait: no majority has room for a stage"}
		if diff := cmp.Diff(want, said.said); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}
