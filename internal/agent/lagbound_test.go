package agent

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/consensus"
	"github.com/quorate/quorate/internal/tap"
)

// TestApplyRate: one poll each half second; what is applied in between, and the
// lag, in MB and seconds.
func TestApplyRate(t *testing.T) {
	type poll struct {
		applied float64
		lag     float64
	}
	many := func(n int, p poll) []poll { return slices.Repeat([]poll{p}, n) }
	for name, c := range map[string]struct {
		polls []poll
		want  float64 // MB a second
	}{
		"never behind":       {many(20, poll{5, 0.2}), 0},
		"always behind":      {many(20, poll{5, 3}), 10},
		"from slow to fast":  {append(many(20, poll{1, 3}), many(20, poll{5, 3})...), 10},
		"from fast to slow":  {append(many(20, poll{5, 3}), many(20, poll{1, 3})...), 2},
		"blocked":            {append(many(20, poll{5, 3}), many(100, poll{0, 9})...), 10},
		"large transactions": {slices.Repeat(append(many(7, poll{0, 5}), poll{40, 5}), 20), 10}, // 40 MB in four seconds each
		"idle after it":      {append(many(20, poll{5, 3}), many(20, poll{0.1, 0})...), 10},
		"faster than ever":   {append(many(20, poll{5, 3}), many(4, poll{9, 0})...), 18},
		"only one is behind": {append(many(20, poll{5, 0.3}), poll{5, 1.5}), 0},
		"blocked, then fast": {append(append(many(20, poll{5, 3}), many(100, poll{0, 9})...), many(20, poll{5, 3})...), 10},
	} {
		var r applyRate
		now, l, got := time.Unix(1000, 0), consensus.Lag{AppliedBytes: 1}, 0.0
		r.observe(now, l)
		for _, p := range c.polls {
			now = now.Add(watchInterval)
			l.AppliedBytes += uint64(p.applied * 1e6)
			l.Seconds = p.lag
			got = r.observe(now, l)
		}
		if math.Abs(got/1e6-c.want) > 0.02*c.want {
			t.Errorf("%s: %.2f MB/s, want %.2f", name, got/1e6, c.want)
		}
	}
}

func TestLagBoundWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLagBound(10 * time.Second)
		took := func(ctx context.Context) time.Duration {
			began := time.Now()
			if err := l.wait(ctx, 500_000); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			return time.Since(began)
		}
		pace := tap.Pace{Limited: true, BytesPerSecond: 1e6, Best: tap.Lag{BytesPerSecond: 1e6}}
		var got []time.Duration
		got = append(got, took(t.Context()), took(t.Context()))
		l.set(pace)
		got = append(got, took(t.Context()), took(t.Context()), took(t.Context()))
		// A limit that ends lets go at once what waits.
		time.AfterFunc(100*time.Millisecond, func() { l.set(tap.Pace{}) })
		got = append(got, took(t.Context()), took(t.Context()))
		l.set(pace)
		// So does the end of writes, and of the epoch.
		got = append(got, took(t.Context()))
		time.AfterFunc(200*time.Millisecond, func() { l.setOpen(false) })
		got = append(got, took(t.Context()), took(t.Context()))
		l.setOpen(true)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		got = append(got, took(ctx))
		ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
		want := []time.Duration{0, 0, 0, ms(500), ms(500), ms(100), 0, 0, ms(200), 0, ms(300)}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("waits (-want +got):\n%s", d)
		}
		if _, slowed, waited := l.now(); slowed != 4 || waited != ms(1300) {
			t.Errorf("%d batches waited for %v", slowed, waited)
		}
	})
}

// TestLagBoundTryPass: what would have to wait is not proposed, what is not proposed does
// not count.
func TestLagBoundTryPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLagBound(10 * time.Second)
		yes, no := func() bool { return true }, func() bool { return false }
		never := func() bool {
			t.Error("it is proposed although it has to wait")
			return true
		}
		if !l.tryPass(500_000, yes) {
			t.Error("it waits without a limit")
		}
		l.set(tap.Pace{Limited: true, BytesPerSecond: 1e6, Best: tap.Lag{BytesPerSecond: 1e6}})
		if l.tryPass(500_000, no) || !l.tryPass(500_000, yes) || l.tryPass(500_000, never) {
			t.Error("with a limit one batch passes, and the next one waits")
		}
		time.Sleep(500 * time.Millisecond)
		if !l.tryPass(500_000, yes) || l.tryPass(500_000, never) {
			t.Error("its time has come, and not that of the next one")
		}
		l.setOpen(false)
		if !l.tryPass(500_000, yes) {
			t.Error("it waits while writes are being closed")
		}
	})
}

func TestCommittedBefore(t *testing.T) {
	l := newLagBound(time.Second)
	now := time.Unix(1000, 0)
	var got []uint64
	for i := range uint64(12) {
		got = append(got, l.committedBefore(now.Add(time.Duration(i)*watchInterval), 100+i))
	}
	want := []uint64{0, 0, 0, 0, 0, 0, 100, 101, 102, 103, 104, 105}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestLags: a replica whose log is behind has no lag to speak of in what it has;
// it could not take over.
func TestLags(t *testing.T) {
	node := func(id cluster.NodeID, f func(*cluster.NodeStatus)) cluster.NodeStatus {
		n := cluster.NodeStatus{ID: id, Name: string(rune('a' + id - 1)), Kind: cluster.KindFull, Reachable: true, Weight: 5,
			Role: cluster.RoleReplica, LogCommit: 100, LagSeconds: 4, LagBytes: 6e6, ApplyRate: 2e6}
		f(&n)
		return n
	}
	nodes := []cluster.NodeStatus{
		node(1, func(n *cluster.NodeStatus) { n.Role = cluster.RolePrimary }),
		node(2, func(*cluster.NodeStatus) {}),
		node(3, func(n *cluster.NodeStatus) { n.LogCommit = 89 }),
		node(4, func(n *cluster.NodeStatus) { n.Reachable = false }),
		node(5, func(n *cluster.NodeStatus) { n.Weight = 0 }),
		node(6, func(n *cluster.NodeStatus) { n.ApplierStopped = "replication has stopped: Duplicate entry" }),
	}
	want := []tap.Lag{{Node: "b", AgeSeconds: 4, BacklogSeconds: 3, BytesPerSecond: 2e6}}
	if d := cmp.Diff(want, lags(nodes, 1, 90)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for i, can := range []bool{false, true, true, true, false, true} { // one that is away will be back
		if got := othersCanLead([]cluster.NodeStatus{nodes[0], nodes[i]}, 1); got != can {
			t.Errorf("with node %s: %t", nodes[i].Name, got)
		}
	}
}
