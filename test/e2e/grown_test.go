package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// TestGrownFromOne: a cluster began with one node. That node loses its disk, and its
// configuration names no other node that could tell it. It does not begin a new cluster, whichever nodes run. Once
// its configuration names the others, the cluster rebuilds it.
func TestGrownFromOne(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 1})
	f.scenario(t, "LostDisk", f.grownLosesFirst)
}

func (f *fixture) grownLosesFirst(t *testing.T, ctx context.Context) {
	f.heal(t, ctx)
	for range 2 {
		f.awaitMember(t, ctx, f.Name(f.grow(t, ctx, cluster.KindFull)), cluster.KindFull)
	}
	f.must(t, ctx, 1, "node", "set", f.Name(0), "--weight", "7")
	uuid := f.status(t, ctx, 0).ServerUUID
	load := f.start(t, 4, 1, 2)
	load.awaitAcks(t, ctx, 100)
	if err := f.KillBoth(0); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(f.DataDir(0)); err != nil {
		t.Fatal(err)
	}
	load.awaitAcks(t, ctx, 50)
	f.pause(t, ctx, 1, 2) // nobody can tell it
	if err := f.Start(ctx, 0); err != nil {
		t.Fatal(err)
	}
	f.forms(t, ctx, "names no other initial member")
	f.resume(t, 1, 2)
	if err := f.Terminate(ctx, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Start(ctx, 0, "--bootstrap"); err != nil { // a mistake
		t.Fatal(err)
	}
	f.forms(t, ctx, "which has data, looks for this node")
	if err := f.Terminate(ctx, 0); err != nil {
		t.Fatal(err)
	}
	f.nameAdded(t, 0, 1, 2)
	if err := f.Start(ctx, 0); err != nil {
		t.Fatal(err)
	}
	f.rebuilt(t, ctx, 0, uuid)
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	f.heal(t, ctx)
	f.check(t, ctx)
}

// forms waits until node 0 says why it does not begin.
func (f *fixture) forms(t *testing.T, ctx context.Context, why string) {
	t.Helper()
	if err := f.WaitNode(ctx, 0, "forming: "+why, func(n status.Node) bool {
		return n.Role == status.RoleForming && strings.Contains(n.Reason, why)
	}); err != nil {
		t.Fatal(err)
	}
}

// nameAdded adds nodes to a node's configuration.
func (f *fixture) nameAdded(t *testing.T, i int, nodes ...int) {
	t.Helper()
	text, err := os.ReadFile(f.ConfigPath(i))
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range slices.Sorted(slices.Values(nodes)) {
		text = fmt.Appendf(text, "\n[[added]]\nname = %q\npeer = %q\nkey = %q\n", f.Name(j), f.PeerAddr(j), f.Key(j))
	}
	if err := os.WriteFile(f.ConfigPath(i), text, 0o644); err != nil {
		t.Fatal(err)
	}
}
