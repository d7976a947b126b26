package e2e

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// TestTimings rolls another election timeout through a cluster under load. First the
// primary is moved to a node that has just started. In the middle of the roll
// the primary, which has the longer timeout, is cut off: it answers nothing once
// the others have a new primary. At the end a node says that its heartbeat is too long.
func TestTimings(t *testing.T) {
	beside(t)
	const long, short = 4 * time.Second, time.Second
	f := newFixture(t, devcluster.Options{Nodes: 3, Network: true, ElectionTimeout: long})
	retime := func(t *testing.T, ctx context.Context, i int, heartbeat, election time.Duration) {
		t.Helper()
		if err := f.SetTimings(i, heartbeat, election); err != nil {
			t.Fatal(err)
		}
		if err := f.Terminate(ctx, i); err != nil {
			t.Fatal(err)
		}
		f.heal(t, ctx)
	}
	var last int
	// A restarted node does not stand for election within an election timeout: the move waits
	// for that, and with writes open.
	f.scenario(t, "SwitchoverToRestarted", func(t *testing.T, ctx context.Context) {
		primary := f.heal(t, ctx)
		to := f.others(primary)[0]
		retime(t, ctx, to, 0, long)
		var moved cluster.Switchover
		if err := json.Unmarshal([]byte(f.must(t, ctx, primary, "switchover", "--to", f.Name(to), "--json", "--max-pause", "10s")), &moved); err != nil {
			t.Fatal(err)
		}
		if pause := time.Duration(moved.PauseMs * float64(time.Millisecond)); pause > long/2 || f.heal(t, ctx) != to {
			t.Errorf("writes were closed for %v: %+v", pause, moved)
		}
	})
	f.scenario(t, "PrimaryIsLate", func(t *testing.T, ctx context.Context) {
		last = f.heal(t, ctx)
		l := f.start(t, 4)
		l.awaitAcks(t, ctx, 100)
		for _, i := range f.others(last) {
			retime(t, ctx, i, 0, short)
			l.awaitAcks(t, ctx, 50)
		}
		l.stop(t)
		if now := f.heal(t, ctx); now != last {
			t.Fatalf("node %d is the primary, it was %d", now, last)
		}
		t.Cleanup(f.MendAll)
		f.cutPrimary(t, ctx, func(p int, _ []int) { f.Isolate(p) })
	})
	f.scenario(t, "HeartbeatTooLong", func(t *testing.T, ctx context.Context) {
		retime(t, ctx, last, 400*time.Millisecond, 2*time.Second)
		if err := f.WaitNode(ctx, last, "told", func(n status.Node) bool {
			return strings.Contains(n.Reason, "raft.heartbeat 400ms is too long for node")
		}); err != nil {
			t.Error(err)
		}
		retime(t, ctx, last, 0, short)
		if n := f.status(t, ctx, last); n.Reason != "" {
			t.Errorf("once all are equal it says %q", n.Reason)
		}
		f.check(t, ctx)
	})
}
