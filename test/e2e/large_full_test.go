package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// TestLargeFull writes transactions that are too large for the disks.
func TestLargeFull(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3})
	f.scenario(t, "PeersThenPrimary", func(t *testing.T, ctx context.Context) {
		f.smallDisks(t, ctx)
		f.fullPeers(t, ctx)
		f.fullPrimary(t, ctx)
	})
}

// leave takes all space in a directory's file system except so many bytes, and
// returns a function that gives it back.
func leave(t *testing.T, dir string, bytes int64) (free func()) {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "filler")
	if err := os.WriteFile(name, make([]byte, int64(st.Bavail)*st.Bsize-bytes), 0o600); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(name); err != nil {
			t.Error(err)
		}
	}
}

// stageBlocked waits until a node says that a stage is blocked, or that none is.
func (f *fixture) stageBlocked(t *testing.T, ctx context.Context, i int, want bool) string {
	t.Helper()
	said := ""
	if err := f.WaitNode(ctx, i, "it says whether a stage is blocked", func(n status.Node) bool {
		said = n.StageBlocked
		return (said != "") == want
	}); err != nil {
		t.Fatal(err)
	}
	return said
}

// fullPeers: no majority has room for a stage. The transaction waits, the primary
// says for what, and once there is space it is acknowledged.
func (f *fixture) fullPeers(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	table, insert := f.seeded(t, ctx, primary, "full_peers")
	db, term := f.local(t, primary), f.status(t, ctx, primary).Term
	var frees []func()
	for _, i := range f.others(primary) {
		frees = append(frees, leave(t, f.logDir(i), 16<<20))
	}
	told := make(chan error, 1)
	go func() {
		_, err := db.ExecContext(ctx, insert)
		told <- err
	}()
	said := f.stageBlocked(t, ctx, primary, true)
	for _, i := range f.others(primary) {
		if !strings.Contains(said, f.Name(i)) {
			t.Errorf("%q does not name %s", said, f.Name(i))
		}
		f.stageBlocked(t, ctx, i, true)
	}
	select {
	case err := <-told:
		t.Fatalf("answered without a majority: %v", err)
	default:
	}
	for _, free := range frees {
		free()
	}
	if err := <-told; err != nil {
		t.Error(err)
	}
	f.stageBlocked(t, ctx, primary, false)
	if now := f.status(t, ctx, primary).Term; now != term {
		t.Errorf("term %d, was %d", now, term)
	}
	f.sameEverywhere(t, ctx, table)
	f.noStagesLeft(t, ctx)
}

// fullPrimary: the primary itself has no room. The transaction is not acknowledged,
// and no node has it. Another node takes over, and accepts it when it is repeated. The node without room
// lacks it until it has space.
func (f *fixture) fullPrimary(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	table, insert := f.seeded(t, ctx, primary, "full_primary")
	free := leave(t, f.logDir(primary), 16<<20)
	if _, err := f.local(t, primary).ExecContext(ctx, insert); err == nil {
		t.Fatal("it was acknowledged")
	}
	f.stageBlocked(t, ctx, primary, true)
	next, err := f.WaitPrimary(ctx, primary)
	if err != nil {
		t.Fatal(err)
	}
	f.sameEverywhere(t, ctx, table)
	if sum := f.rows(t, ctx, next, table); !strings.HasPrefix(sum, "1 rows") {
		t.Errorf("after the failure: %s", sum)
	}
	if _, err := f.local(t, next).ExecContext(ctx, insert); err != nil {
		t.Fatal(err)
	}
	f.stageBlocked(t, ctx, primary, true)
	free()
	f.sameEverywhere(t, ctx, table)
	f.stageBlocked(t, ctx, primary, false)
	f.noStagesLeft(t, ctx)
}
