package e2e

import (
	"context"
	"io/fs"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// TestKill sends SIGKILL to everything that can be killed, under load. After
// each kill the cluster is writable again, every server holds what the ledger
// says, and no data directory was made again.
func TestKill(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3, ElectionTimeout: calm, Variables: map[string]string{"local_infile": "ON"}})
	f.think, f.eager = busy, true
	for _, sc := range []struct {
		name string
		// victim chooses the node that kill hits.
		victim func(primary int) int
		kill   func(*fixture, int) error
	}{
		{"PrimaryMysqld", same, func(f *fixture, i int) error { return f.KillMysqld(i) }},
		{"PrimaryAgent", same, func(f *fixture, i int) error { return f.KillAgent(i) }},
		{"PrimaryBoth", same, func(f *fixture, i int) error { return f.KillBoth(i) }},
		{"FollowerMysqld", next, func(f *fixture, i int) error { return f.KillMysqld(i) }},
		{"FollowerAgent", next, func(f *fixture, i int) error { return f.KillAgent(i) }},
		{"FollowerBoth", next, func(f *fixture, i int) error { return f.KillBoth(i) }},
	} {
		f.scenario(t, sc.name, func(t *testing.T, ctx context.Context) {
			primary := f.heal(t, ctx)
			before := f.dataIdentity(t, ctx)
			term := f.status(t, ctx, primary).Term
			l := f.start(t, 6)
			l.awaitAcks(t, ctx, 100)
			victim := sc.victim(primary)
			if err := sc.kill(f, victim); err != nil {
				t.Fatal(err)
			}
			if _, err := f.WaitPrimary(ctx); err != nil {
				t.Fatal(err)
			}
			l.awaitAcks(t, ctx, 100)
			now := f.heal(t, ctx)
			if st := f.status(t, ctx, now); victim != primary && (now != primary || st.Term != term) {
				t.Errorf("a follower was killed and %s is the primary of term %d; it was %s of term %d",
					f.Name(now), st.Term, f.Name(primary), term)
			}
			l.awaitAcks(t, ctx, 100)
			l.stop(t)
			f.check(t, ctx)
			f.mustNotBeRebuilt(t, ctx, before)
		})
	}
	f.eager = false
	f.scenario(t, "FollowerNoticedByNobody", func(t *testing.T, ctx context.Context) { f.loseFollower(t, ctx, f.KillMysqld) })
	f.scenario(t, "CrashLoop", f.crashLoop)
	f.inFlight(t)
	f.scenario(t, "Memory", f.littleMemory)
}

func same(i int) int { return i }
func next(i int) int { return (i + 1) % 3 }

// TestOutage kills all six processes at once and brings back all nodes, or any
// two of them first.
func TestOutage(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3})
	f.think = busy
	for _, sc := range []struct {
		name  string
		first []int // who comes back before the others
	}{
		{"AllReturn", []int{0, 1, 2}},
		{"AB", []int{0, 1}},
		{"AC", []int{0, 2}},
		{"BC", []int{1, 2}},
	} {
		f.scenario(t, sc.name, func(t *testing.T, ctx context.Context) {
			f.heal(t, ctx)
			before := f.dataIdentity(t, ctx)
			l := f.start(t, 6)
			l.awaitAcks(t, ctx, 100)
			atOnce(t, []int{0, 1, 2}, f.KillBoth)
			for _, i := range sc.first {
				if err := f.Start(ctx, i); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := f.WaitPrimary(ctx); err != nil {
				t.Fatal(err)
			}
			l.awaitAcks(t, ctx, 100)
			f.heal(t, ctx)
			l.stop(t)
			f.check(t, ctx)
			f.mustNotBeRebuilt(t, ctx, before)
		})
	}
}

// dataIdentity is what changes when a data directory is made again: the inode
// of InnoDB's system tablespace and the server's UUID, for each node.
type dataIdentity struct {
	Inode uint64
	UUID  string
}

func (f *fixture) dataIdentity(t *testing.T, ctx context.Context) (ids []dataIdentity) {
	t.Helper()
	for i := range f.Len() {
		id := dataIdentity{UUID: f.status(t, ctx, i).ServerUUID}
		err := filepath.WalkDir(f.DataDir(i), func(_ string, e fs.DirEntry, err error) error {
			if err != nil || e.Name() != "ibdata1" {
				return nil // what goes away meanwhile is not what is looked for
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				id.Inode = st.Ino
			}
			return fs.SkipAll
		})
		if err != nil || id.Inode == 0 || id.UUID == "" {
			t.Fatalf("node %s: no ibdata1 or no server UUID: %+v (%v)", f.Name(i), id, err)
		}
		ids = append(ids, id)
	}
	return ids
}

func (f *fixture) mustNotBeRebuilt(t *testing.T, ctx context.Context, before []dataIdentity) {
	t.Helper()
	if d := cmp.Diff(before, f.dataIdentity(t, ctx)); d != "" {
		t.Errorf("data directories were made again (-before +after):\n%s", d)
	}
}
