package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
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
	beside(t)
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

// TestMembersReplaced: while a voter is away, all members that it knows are replaced. When it is back, its status names the
// nodes that dial it, and it cannot be recovered beside them. Once its configuration names one of them, it follows.
func TestMembersReplaced(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3})
	f.scenario(t, "AllThatItKnows", f.replaced)
}

func (f *fixture) replaced(t *testing.T, ctx context.Context) {
	first := f.heal(t, ctx)
	away, other := (first+1)%3, (first+2)%3
	if err := f.KillBoth(away); err != nil {
		t.Fatal(err)
	}
	load := f.start(t, 2, first)
	load.awaitAcks(t, ctx, 20)
	load.stop(t)
	d := f.grow(t, ctx, cluster.KindFull)
	f.awaitMember(t, ctx, f.Name(d), cluster.KindFull)
	f.must(t, ctx, first, "node", "remove", f.Name(other), "--yes")
	if err := f.WaitNode(ctx, other, "removed", func(n status.Node) bool { return n.Role == status.RoleRemoved }); err != nil {
		t.Fatal(err)
	}
	if err := f.Terminate(ctx, other); err != nil {
		t.Fatal(err)
	}
	e := f.grow(t, ctx, cluster.KindLogger)
	f.awaitMember(t, ctx, f.Name(e), cluster.KindLogger)
	f.must(t, ctx, first, "switchover", "--to", f.Name(d), "--max-pause", "10s")
	const known = "may know none of the running nodes that would be left"
	f.refused(t, ctx, d, []int{1}, known, "node", "remove", f.Name(first), "--yes")
	f.refused(t, ctx, d, []int{1}, known, "node", "rebuild", f.Name(first), "--dry-run")
	f.must(t, ctx, d, "node", "remove", f.Name(first), "--yes", "--force")
	load = f.start(t, 2, d)
	load.awaitAcks(t, ctx, 20)
	if err := f.Start(ctx, away); err != nil {
		t.Fatal(err)
	}
	f.awaitTold(t, ctx, away, 3, "NO PRIMARY", "Nodes of this cluster that node "+f.Name(away)+" does not know dial it: ", f.Name(d)+" (from 127.0.0.1)", "do not recover this node")
	if err := f.Terminate(ctx, away); err != nil {
		t.Fatal(err)
	}
	out, err := f.quorate(t, ctx, away, slices.Concat(recoverArgs, []string{"--accept-loss", "none"})...)
	if exitCode(err) != 2 || !strings.Contains(out, "node "+f.Name(d)+" of this cluster dials this node from 127.0.0.1") {
		t.Fatalf("recover: %v, %s", err, out)
	}
	config, err := os.OpenFile(f.ConfigPath(away), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = fmt.Fprintf(config, "\n[[added]]\nname = %q\npeer = %q\nkey = %q\n", f.Name(d), f.PeerAddr(d), f.Key(d))
		err = errors.Join(err, config.Close(), f.Start(ctx, away))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := f.WaitReady(ctx, away); err != nil {
		t.Fatal(err)
	}
	load.awaitAcks(t, ctx, 20)
	load.stop(t)
	f.checkNodes(t, ctx, away, d)
}
