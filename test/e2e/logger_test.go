package e2e

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// TestLogger kills each node of two full nodes and a logger, under load: any one of
// them may be lost, and no acknowledged transaction is.
func TestLogger(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3, Loggers: 1, ElectionTimeout: calm})
	f.think = busy
	logger := f.Len() - 1
	for _, sc := range []struct {
		name   string
		victim func(primary int) int
	}{
		{"Primary", same},
		{"Logger", func(int) int { return logger }},
		{"Replica", func(primary int) int { return 1 - primary }},
	} {
		f.scenario(t, sc.name, func(t *testing.T, ctx context.Context) {
			primary := f.heal(t, ctx)
			term := f.status(t, ctx, primary).Term
			l := f.start(t, 6)
			l.awaitAcks(t, ctx, 100)
			victim := sc.victim(primary)
			if err := f.KillBoth(victim); err != nil {
				t.Fatal(err)
			}
			now, err := f.WaitPrimary(ctx)
			if err != nil {
				t.Fatal(err)
			}
			l.awaitAcks(t, ctx, 100)
			if st := f.status(t, ctx, now); victim != primary && (now != primary || st.Term != term) {
				t.Errorf("%s was killed and %s is the primary of term %d; it was %s of term %d",
					f.Name(victim), f.Name(now), st.Term, f.Name(primary), term)
			}
			if !slices.Contains(f.Full(), now) {
				t.Errorf("%s is the primary", f.Name(now))
			}
			f.heal(t, ctx)
			l.awaitAcks(t, ctx, 100)
			l.stop(t)
			t.Logf("longest time without an OK: %v", l.Gap())
			f.check(t, ctx)
		})
	}
	f.scenario(t, "LeadsInNeed", f.loggerLeadsInNeed)
	f.scenario(t, "Stop", func(t *testing.T, ctx context.Context) {
		f.heal(t, ctx)
		if err := f.Terminate(ctx, logger); err != nil {
			t.Errorf("SIGTERM to the logger: %v", err)
		}
	})
}

// loggerLeadsInNeed: of the nodes that are left only the logger has all that was
// acknowledged: the replica was away, and when it is back the primary is gone. Only
// the logger can win the election. It gives the replica its log and then leadership.
func (f *fixture) loggerLeadsInNeed(t *testing.T, ctx context.Context) {
	primary, logger := f.heal(t, ctx), f.Len()-1
	replica := 1 - primary
	if err := f.KillBoth(replica); err != nil {
		t.Fatal(err)
	}
	l := f.start(t, 6)
	l.awaitAcks(t, ctx, 200)
	before, err := os.ReadFile(f.Logs(logger))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.KillBoth(primary); err != nil {
		t.Fatal(err)
	}
	acknowledged := l.Stats().Acknowledged
	if err := f.Start(ctx, replica); err != nil {
		t.Fatal(err)
	}
	says := func(what string, cond func(status.Node) bool) {
		t.Helper()
		if err := f.WaitNode(ctx, logger, what, cond); err != nil {
			t.Fatal(err)
		}
	}
	says("the leader that explains itself", func(st status.Node) bool {
		return st.Leader == st.ID && st.Role == status.RoleLogger && strings.Contains(st.Reason, "it is a logger")
	})
	now, err := f.WaitPrimary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if now != replica {
		t.Errorf("%s is the primary, not %s", f.Name(now), f.Name(replica))
	}
	says("a follower without a complaint", func(st status.Node) bool { return st.Leader != st.ID && st.Reason == "" })
	text, err := os.ReadFile(f.Logs(logger))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the logger asked %d times for a successor", strings.Count(string(text[len(before):]), "transfer term="))
	if got := l.rowsOn(t, ctx, replica); int64(got) < acknowledged {
		t.Errorf("%d rows are on %s, %d were acknowledged before the primary died", got, f.Name(replica), acknowledged)
	}
	l.awaitAcks(t, ctx, 100)
	f.heal(t, ctx)
	l.stop(t)
	f.check(t, ctx)
}

// TestWeights: of two replicas with the same log the one with the higher weight takes over, and a node
// that comes back later does not take that away again. A kill is noticed at once, and the node with the higher weight
// stands for election first. After a standstill any node may win; a node with a lower weight
// hands over before it opens.
func TestWeights(t *testing.T) {
	beside(t)
	weights := []int{1, 9, 5}
	f := newFixture(t, devcluster.Options{Nodes: 3, Weights: weights})
	for _, name := range []string{"Kill", "Stall", "Stall"} {
		f.scenario(t, name, func(t *testing.T, ctx context.Context) {
			for n := 1; !f.heaviestTakesOver(t, ctx, name == "Stall", weights); n++ {
				if n == 3 {
					t.Fatal("each time the machine stood still while the heaviest stood for election")
				}
			}
		})
	}
}

// heaviestTakesOver ends or stops the primary, and expects the heaviest of the others in its place. judged is false
// if the heaviest stood for election without success: then the others may win.
func (f *fixture) heaviestTakesOver(t *testing.T, ctx context.Context, stall bool, weights []int) (judged bool) {
	t.Helper()
	primary := f.heal(t, ctx)
	l := f.start(t, 2)
	l.awaitAcks(t, ctx, 50)
	l.stop(t)
	best := f.heaviestReplica(t, ctx, primary, weights)
	term := f.status(t, ctx, best).Term
	if stall {
		f.pause(t, ctx, primary)
	} else if err := f.KillBoth(primary); err != nil {
		t.Fatal(err)
	}
	now, err := f.WaitPrimary(ctx, primary)
	if err != nil {
		t.Fatal(err)
	}
	terms := f.status(t, ctx, now).Term - term
	t.Logf("%s took over from %s, %d terms later", f.Name(now), f.Name(primary), terms)
	if judged = now == best || terms == 1; judged && now != best {
		t.Errorf("in the place of %s the primary is %s, not %s", f.Name(primary), f.Name(now), f.Name(best))
	}
	if stall {
		f.resume(t, primary)
	}
	if back := f.heal(t, ctx); back != now {
		t.Errorf("%s came back, and %s is the primary, no longer %s", f.Name(primary), f.Name(back), f.Name(now))
	}
	f.check(t, ctx)
	return judged
}

// heaviestReplica waits until all replicas have what the primary has, and returns
// the heaviest.
func (f *fixture) heaviestReplica(t *testing.T, ctx context.Context, primary int, weights []int) int {
	t.Helper()
	committed, best := f.status(t, ctx, primary).LogCommit, -1
	for _, i := range f.others(primary) {
		if err := f.WaitCaughtUp(ctx, i, committed); err != nil {
			t.Fatal(err)
		}
		if best < 0 || weights[i] > weights[best] {
			best = i
		}
	}
	return best
}
