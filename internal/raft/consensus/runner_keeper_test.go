package consensus

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/sys/invariant"
)

// TestBrokenInvariantEndsTheProcess: this is so even if the caller's goroutine recovers, as those of net/http
// do.
func TestBrokenInvariantEndsTheProcess(t *testing.T) {
	f := startFollower(t)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		f.node.do(r.Context(), func(time.Duration) { invariant.Check(false, "I9", "broken") })
	}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.Start()
	defer srv.Close()
	answer, err := http.Get(srv.URL)
	if err == nil {
		err = answer.Body.Close()
	}
	if err != nil {
		t.Errorf("the panic is the caller's: %v", err)
	}
	select {
	case r := <-f.broken:
		if _, ok := r.(invariant.Violation); !ok {
			t.Errorf("the process ends with %v", r)
		}
	case err := <-f.ends:
		t.Fatalf("Run returned %v, and the process lives", err)
	case <-time.After(20 * time.Second):
		t.Fatal("the node goes on")
	}
}

// TestRecoveredPanicEndsTheNode: no caller goes on with a broken group, even if somebody recovered from the
// panic.
func TestRecoveredPanicEndsTheNode(t *testing.T) {
	f := startFollower(t)
	f.node.Step(appendOf(1), false)
	f.during.Store(new(func() { invariant.Check(false, "I9", "broken") }))
	func() {
		defer func() {
			if recover() == nil {
				t.Error("there was no panic")
			}
		}()
		f.node.Step(heartbeatOf(6), false)
	}()
	if err := f.run(); err == nil {
		t.Error("Run says that its end was asked for")
	}
}

// TestCallsWaitNoLongerThanTheirContext: a call does not wait longer for a turn that does not end.
func TestCallsWaitNoLongerThanTheirContext(t *testing.T) {
	f := startFollower(t)
	f.node.Step(appendOf(1), false)
	defer f.holds()()
	for range 2 { // the second one waits behind the first
		f.returns("TransferTo", func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			f.node.TransferTo(ctx, 1, 2)
		})
	}
	f.returns("a message", func() { f.node.Step(heartbeatOf(6), false) })
	f.returns("Work", f.node.Work)
}

// TestKeeperLooksBetweenTurns: however much work is left for the keeper, after a few turns it looks for other
// work that is due. Ticks come the same way.
func TestKeeperLooksBetweenTurns(t *testing.T) {
	f := startFollower(t)
	f.node.Step(appendOf(1), false)
	const turnsMost = 2 * turnsMax
	busy, took := make(chan struct{}), make(chan int, 1)
	asked, last := 0, 0
	var asks atomic.Bool // calls of before are others', of what was read ahead
	stop := f.busy(func(turn int) {
		if last = turn; turn == turnsMost { // the keeper is at it
			close(busy)
		}
		if asked == 0 && asks.Load() && f.node.inbox.called() {
			asked = turn
		}
	})
	go f.node.Work()
	f.ended("the keeper is at it", busy)
	asks.Store(true)
	f.node.do(t.Context(), func(time.Duration) {
		if asked == 0 { // it was taken before a turn saw it
			asked = last
		}
		took <- last - asked
	})
	if turns := <-took; turns > turnsMost {
		t.Errorf("the keeper had %d turns before it looked, at most %d are right", turns, turnsMost)
	}
	stop()
}

// TestKeeperGoesOn: one goroutine runs at most turnsMax turns, and the keeper does the rest.
func TestKeeperGoesOn(t *testing.T) {
	f := startFollower(t)
	f.node.Step(appendOf(1), false)
	f.answered(pb.MsgHeartbeatResp)
	const beats = 3 * turnsMax
	var stop func()
	stop = f.busy(func(turn int) {
		if turn == beats-1 {
			stop()
		}
	})
	f.node.Work()
	for range beats - 1 {
		f.awaits(pb.MsgHeartbeatResp)
	}
}

// TestMuchLeftBlocksReaders: the work that is left while a turn lasts is limited.
func TestMuchLeftBlocksReaders(t *testing.T) {
	f := startFollower(t)
	f.node.Step(appendOf(1), false)
	free := f.holds()
	var left atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 2 * messagesMax {
			f.node.Step(heartbeatOf(6), false)
			left.Add(1)
		}
	}()
	awaitStalled(t, testContext(t), "very much is left", func() bool { return left.Load() >= messagesMax })
	f.waitsFor("(*Runner).waitTurn")
	if got := left.Load(); got != messagesMax {
		t.Errorf("%d messages are left, at most %d may", got, messagesMax)
	}
	free()
	f.ended("the reader", done)
	for range 2*messagesMax + 1 {
		f.awaits(pb.MsgHeartbeatResp)
	}
}
