package primary

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/tap"
	"github.com/quorate/quorate/internal/sys/clock"
)

func TestLagBoundWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLagBound(10*time.Second, clock.Machine{})
		took := func(ctx context.Context) time.Duration {
			began := time.Now()
			if err := l.Wait(ctx, 500_000); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			return time.Since(began)
		}
		pace := tap.Pace{Limited: true, BytesPerSecond: 1e6, Best: tap.Lag{BytesPerSecond: 1e6}}
		var got []time.Duration
		got = append(got, took(t.Context()), took(t.Context()))
		l.set(pace)
		got = append(got, took(t.Context()), took(t.Context()), took(t.Context()))
		// The end of the limit lets all that waits go at once.
		time.AfterFunc(100*time.Millisecond, func() { l.set(tap.Pace{}) })
		got = append(got, took(t.Context()), took(t.Context()))
		l.set(pace)
		// So does the end of writes, and the end of the epoch.
		got = append(got, took(t.Context()))
		time.AfterFunc(200*time.Millisecond, func() { l.SetOpen(false) })
		got = append(got, took(t.Context()), took(t.Context()))
		l.SetOpen(true)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		got = append(got, took(ctx))
		ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
		want := []time.Duration{0, 0, 0, ms(500), ms(500), ms(100), 0, 0, ms(200), 0, ms(300)}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("waits (-want +got):\n%s", d)
		}
		if _, slowed, waited := l.Now(); slowed != 4 || waited != ms(1300) {
			t.Errorf("%d batches waited for %v", slowed, waited)
		}
	})
}

// TestLagBoundTryPass: a batch that would have to wait is not proposed. A batch that is not proposed does not count.
func TestLagBoundTryPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLagBound(10*time.Second, clock.Machine{})
		yes, no := func() bool { return true }, func() bool { return false }
		never := func() bool {
			t.Error("it is proposed although it has to wait")
			return true
		}
		if !l.TryPass(500_000, yes) {
			t.Error("it waits without a limit")
		}
		l.set(tap.Pace{Limited: true, BytesPerSecond: 1e6, Best: tap.Lag{BytesPerSecond: 1e6}})
		if l.TryPass(500_000, no) || !l.TryPass(500_000, yes) || l.TryPass(500_000, never) {
			t.Error("with a limit one batch passes, and the next one waits")
		}
		time.Sleep(500 * time.Millisecond)
		if !l.TryPass(500_000, yes) || l.TryPass(500_000, never) {
			t.Error("its time has come, and not that of the next one")
		}
		l.SetOpen(false)
		if !l.TryPass(500_000, yes) {
			t.Error("it waits while writes are being closed")
		}
	})
}

func TestCommittedBefore(t *testing.T) {
	l := NewLagBound(time.Second, clock.Machine{})
	now := 1000 * time.Second
	var got []uint64
	for i := range uint64(12) {
		got = append(got, l.committedBefore(now+time.Duration(i)*WatchInterval, 100+i))
	}
	want := []uint64{0, 0, 0, 0, 0, 0, 100, 101, 102, 103, 104, 105}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestLags: a replica whose log is behind has no meaningful lag in what its log has; it could not take over.
func TestLags(t *testing.T) {
	node := func(id cluster.NodeID, f func(*status.Node)) status.Node {
		n := status.Node{ID: id, Name: string(rune('a' + id - 1)), Kind: cluster.KindFull, Reachable: true, Weight: 5,
			Role: status.RoleReplica, LogCommit: 100, LagSeconds: 4, LagBytes: 6e6, ApplyRate: 2e6}
		f(&n)
		return n
	}
	nodes := []status.Node{
		node(1, func(n *status.Node) { n.Role = status.RolePrimary }),
		node(2, func(*status.Node) {}),
		node(3, func(n *status.Node) { n.LogCommit = 89 }),
		node(4, func(n *status.Node) { n.Reachable = false }),
		node(5, func(n *status.Node) { n.Weight = 0 }),
		node(6, func(n *status.Node) { n.ApplierStopped = "replication has stopped: Duplicate entry" }),
	}
	want := []tap.Lag{{Node: "b", AgeSeconds: 4, BacklogSeconds: 3, BytesPerSecond: 2e6}}
	if d := cmp.Diff(want, lags(nodes, 1, 90)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for i, can := range []bool{false, true, true, true, false, true} { // a replica that is away will be back
		if got := othersCanLead([]status.Node{nodes[0], nodes[i]}, 1); got != can {
			t.Errorf("with node %s: %t", nodes[i].Name, got)
		}
	}
}
