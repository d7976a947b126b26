package consensus

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/entry"
)

// TestFollowerKnowsItsDiskIsStalled: a follower whose write hangs can say so, until the write has ended. A node
// with a good disk never says so.
func TestFollowerKnowsItsDiskIsStalled(t *testing.T) {
	ctx := testContext(t)
	free := make(chan struct{})
	release := sync.OnceFunc(func() { close(free) })
	var hang [3]atomic.Bool
	var hooks [3]func(vfs.Op, string) error
	for i := range hooks {
		hooks[i] = func(op vfs.Op, _ string) error {
			if hang[i].Load() && (op == vfs.OpSync || op == vfs.OpSyncData) {
				<-free
			}
			return nil
		}
	}
	ns := startNodes(t, hooks[0], hooks[1], hooks[2])
	t.Cleanup(release) // for a test that failed before the release
	l := ns.leader(ctx)
	term := ns.open(ctx, l)
	leader := slices.Index(ns.all, l)
	follower := (leader + 1) % len(ns.all)
	f := ns.all[follower]
	hang[follower].Store(true)
	if err := l.Propose(ctx, transactionsEntry(entry.Header{Term: term, Number: 1, Count: 1}, 1)); err != nil {
		t.Fatal(err)
	}
	awaitStalled(t, ctx, "the write that hangs is seen", func() bool { return f.Stalled() >= f.cfg.ElectionTimeout })
	// The machine may have stood still during the leader's write. Then that write ends soon.
	awaitStalled(t, ctx, "the leader's disk is well", func() bool { return l.Stalled() == 0 })
	release()
	awaitStalled(t, ctx, "the write has ended", func() bool { return f.Stalled() == 0 })
}

func awaitStalled(t *testing.T, ctx context.Context, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: not so", what)
		}
	}
}
