package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// TestUnderLoad looks at what clients of a primary that write as fast as they can notice of large transactions, and of
// failures that go on for a while.
func TestUnderLoad(t *testing.T) {
	f := newFixture(t, devcluster.Options{Nodes: 3, ElectionTimeout: calm})
	f.think = fullSpeed
	f.scenario(t, "Large", f.largeAll)
	f.scenario(t, "FollowerBoth", func(t *testing.T, ctx context.Context) { f.loseFollower(t, ctx, f.KillBoth) })
	if long() {
		f.scenario(t, "FollowerAgent", func(t *testing.T, ctx context.Context) { f.loseFollower(t, ctx, f.KillAgent) })
		f.scenario(t, "FollowerMysqld", func(t *testing.T, ctx context.Context) { f.loseFollower(t, ctx, f.KillMysqld) })
	}
	f.scenario(t, "Kills", f.killBusy)
}

// Buckets of throughput: what is compared is one second of work.
const (
	bucket        = time.Second
	bucketsBefore = 4
	bucketsAfter  = 4
)

// loseFollower kills a follower and brings it back. There must be
// acknowledgements in every second from the kill on; how many fewer than before
// is reported, because all nodes share this machine's CPUs.
func (f *fixture) loseFollower(t *testing.T, ctx context.Context, kill func(int) error) {
	steady(t, func() string { return f.followerLost(t, ctx, kill) })
}

func (f *fixture) followerLost(t *testing.T, ctx context.Context, kill func(int) error) (wrong string) {
	primary := f.heal(t, ctx)
	term := f.status(t, ctx, primary).Term
	l := f.start(t, 6, primary)
	l.awaitAcks(t, ctx, 300)
	before := l.buckets(ctx, bucketsBefore)
	l.ResetGap()
	victim := f.others(primary)[0]
	if err := kill(victim); err != nil {
		t.Fatal(err)
	}
	after := l.buckets(ctx, bucketsAfter)
	gap := l.Gap()
	if err := f.StartAll(ctx); err != nil {
		t.Fatal(err)
	}
	back := l.buckets(ctx, bucketsAfter)
	f.heal(t, ctx)
	l.stop(t)
	if st := f.status(t, ctx, primary); st.Role != status.RolePrimary || st.Term != term {
		wrong = fmt.Sprintf("the primary of term %d is %s in term %d; ", term, st.Role, st.Term)
	}
	if s := l.Stats(); s.Reconnects != 0 || s.Unknown != 0 {
		wrong += fmt.Sprintf("the clients noticed: %+v; ", s)
	}
	if slices.Min(after) == 0 || slices.Min(back) == 0 {
		wrong += fmt.Sprintf("rows in each second after the kill: %v, and after the return: %v", after, back)
	}
	var sum int64
	for _, n := range before {
		sum += n
	}
	mean := float64(sum) / float64(len(before))
	t.Logf("rows a second: %v before, %v after the kill, %v after the return", before, after, back)
	t.Logf("worst second: %.0f %% of the mean before, %.0f %% after the return; longest write gap %v",
		100*float64(slices.Min(after))/mean, 100*float64(slices.Min(back))/mean, gap.Round(time.Millisecond))
	f.check(t, ctx)
	return wrong
}

// buckets returns the rows acknowledged in each of the next n buckets.
func (l *load) buckets(ctx context.Context, n int) (rows []int64) {
	tick := time.NewTicker(bucket)
	defer tick.Stop()
	last := l.Stats().Acknowledged
	for range n {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		now := l.Stats().Acknowledged
		rows, last = append(rows, now-last), now
	}
	return rows
}

// kills is how often killBusy kills.
const kills = 4

// killBusy kills the present primary, again and again, while sessions write as much as they can: so groups
// of transactions are at every place of the commit path. The other tests' writers pause.
func (f *fixture) killBusy(t *testing.T, ctx context.Context) {
	f.heal(t, ctx)
	l := f.start(t, 16)
	for range kills {
		primary := f.heal(t, ctx)
		l.awaitAcks(t, ctx, 400)
		if err := f.KillBoth(primary); err != nil {
			t.Fatal(err)
		}
	}
	l.awaitAcks(t, ctx, 400)
	f.heal(t, ctx)
	l.stop(t)
	if s := l.Stats(); s.Unknown < kills {
		t.Errorf("no transaction was on its way at some kill: %+v", s)
	}
	f.check(t, ctx)
}

// crashes is how often the crash loop kills. Each time costs a start of mysqld, and the
// agent's pause before it.
const (
	crashesShort = 4
	crashesLong  = 10
)

// crashLoop kills the mysqld of the first primary, and then each one that its
// agent starts: in turn as soon as there is a process, and once it runs. Another
// node leads meanwhile, and keeps the lead.
func (f *fixture) crashLoop(t *testing.T, ctx context.Context) {
	crashes := crashesShort
	if long() {
		crashes = crashesLong
	}
	victim := f.heal(t, ctx)
	before := f.dataIdentity(t, ctx)
	term := f.status(t, ctx, victim).Term
	l := f.start(t, 6, f.others(victim)...)
	l.awaitAcks(t, ctx, 100)
	l.ResetGap()
	last := 0
	for n := range crashes {
		if err := f.WaitNode(ctx, victim, "running another mysqld", func(st status.Node) bool {
			pid := f.MysqldPID(victim)
			return pid != 0 && pid != last && (n%2 == 1 || st.Mysqld == status.MysqldRunning)
		}); err != nil {
			t.Fatal(err)
		}
		last = f.MysqldPID(victim)
		if err := f.KillMysqld(victim); err != nil {
			t.Fatal(err)
		}
		l.awaitAcks(t, ctx, 20)
	}
	now := f.heal(t, ctx)
	l.awaitAcks(t, ctx, 100)
	gap := l.Gap()
	l.stop(t)
	terms := f.status(t, ctx, now).Term - term
	if now == victim || terms > uint64(crashes/2) {
		t.Errorf("after %d crashes of %s, %s leads, %d terms later", crashes, f.Name(victim), f.Name(now), terms)
	}
	f.check(t, ctx)
	f.mustNotBeRebuilt(t, ctx, before)
	t.Logf("%d crashes, %d new terms, longest write gap %v", crashes, terms, gap.Round(time.Millisecond))
}
