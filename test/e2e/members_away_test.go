package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// TestMembersAway: a node is away while another one is added, and comes back when
// the new node leads. It does not know the leader, and must learn it from the others: the
// log that says so comes only from the leader.
func TestMembersAway(t *testing.T) {
	t.Parallel()
	f := newFixture(t, devcluster.Options{Nodes: 3})
	f.scenario(t, "UnknownLeader", func(t *testing.T, ctx context.Context) {
		primary := f.heal(t, ctx)
		away := (primary + 1) % 3
		if err := f.KillBoth(away); err != nil {
			t.Fatal(err)
		}
		load := f.start(t, 2, primary)
		d := f.grow(t, ctx, cluster.KindFull)
		f.awaitMember(t, ctx, f.Name(d), cluster.KindFull)
		load.awaitAcks(t, ctx, 20)
		f.must(t, ctx, primary, "switchover", "--to", f.Name(d), "--max-pause", "10s")
		load.awaitAcks(t, ctx, 20)
		load.stop(t)
		began := time.Now()
		if err := f.Start(ctx, away); err != nil {
			t.Fatal(err)
		}
		if err := f.WaitReady(ctx, away); err != nil {
			t.Fatal(err)
		}
		t.Logf("it has caught up %.1f s after its start", time.Since(began).Seconds())
		if s := f.status(t, ctx, d); s.Role != status.RolePrimary {
			t.Errorf("%s is %s: it was to lead all the time", f.Name(d), s.Role)
		}
		f.checkNodes(t, ctx, 0, 1, 2, d)
	})
}
