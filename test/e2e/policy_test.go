package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// TestPolicy lets commits wait for more than a majority, and stops the nodes for which they
// wait. Writers begin after that, so not one OK is allowed.
func TestPolicy(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3, ElectionTimeout: calm})
	f.scenario(t, "All", f.durabilityAll)
	f.scenario(t, "SiteMajority", f.durabilitySiteMajority)
	f.scenario(t, "RequireAckWaits", f.requireAckWaits)
	f.scenario(t, "RequireAckDropped", f.requireAckDropped)
	f.scenario(t, "Failover", f.policyAtFailover)
}

// waitsWithout stops a follower's agent and starts writers, of which none gets an
// OK: the primary's status says whom they wait for.
func (f *fixture) waitsWithout(t *testing.T, ctx context.Context, primary, follower int) *load {
	t.Helper()
	f.pause(t, ctx, follower)
	l := f.start(t, 4, primary)
	f.awaitWaiting(t, ctx, primary)
	f.awaitAcksFor(t, ctx, primary, follower)
	if n := l.Stats().Acknowledged; n != 0 {
		t.Errorf("%d rows were acknowledged without node %s", n, f.Name(follower))
	}
	return l
}

// awaitAcksFor waits until node i says that ACKs wait for the node other, and have done so for
// longer than an entry needs on its way.
func (f *fixture) awaitAcksFor(t *testing.T, ctx context.Context, i, other int) {
	t.Helper()
	f.awaitAcksStatus(t, ctx, i, "ACKs wait for "+f.Name(other), func(s status.Node) bool {
		return slices.ContainsFunc(s.AcksWait, func(w cluster.AckWait) bool {
			return w.Node == f.Name(other) && (w.Entries > 0 || w.Unknown) && w.Seconds >= 1
		})
	})
}

// awaitAcksStatus waits until node i says what is wanted of its ACKs.
func (f *fixture) awaitAcksStatus(t *testing.T, ctx context.Context, i int, what string, ok func(status.Node) bool) {
	t.Helper()
	err := devcluster.Poll(ctx, what, func(ctx context.Context) (bool, string, error) {
		st, err := f.Status(ctx, i)
		if err != nil {
			return false, err.Error(), nil
		}
		s := st.Nodes[i]
		return ok(s), fmt.Sprintf("they wait for %+v, dropped are %+v", s.AcksWait, s.AcksDropped), nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// survived fails the test unless the writers' sessions have gone on and every row is there.
func (f *fixture) survived(t *testing.T, ctx context.Context, l *load, primary int) {
	t.Helper()
	l.awaitAcks(t, ctx, 50)
	l.stop(t)
	if s := l.Stats(); s.Reconnects != 0 || s.Unknown != 0 {
		t.Errorf("the sessions did not survive: %+v", s)
	}
	if now := f.heal(t, ctx); now != primary {
		t.Errorf("the primary was %s, is %s", f.Name(primary), f.Name(now))
	}
	f.check(t, ctx)
}

// durabilityAll: without one follower nothing is acknowledged, until the policy is
// another.
func (f *fixture) durabilityAll(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	f.must(t, ctx, primary, "cluster", "set", "--durability", "all")
	l := f.waitsWithout(t, ctx, primary, f.others(primary)[0])
	out := f.must(t, ctx, primary, "status")
	if !strings.Contains(out, "durability all\n") || !strings.Contains(out, "WRITES WAIT for "+f.Name(f.others(primary)[0])) {
		t.Errorf("status: %s", out)
	}
	f.must(t, ctx, f.others(primary)[1], "cluster", "set", "--durability", "majority")
	l.awaitAcks(t, ctx, 50)
	f.resume(t, f.others(primary)[0])
	f.survived(t, ctx, l, primary)
}

// durabilitySiteMajority: two nodes in one site are a majority, and not enough.
func (f *fixture) durabilitySiteMajority(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	far := f.others(primary)[1]
	f.refused(t, ctx, primary, []int{2}, "some voters have no site", "cluster", "set", "--durability", "site-majority")
	for i := range f.Len() {
		site := "near"
		if i == far {
			site = "far"
		}
		f.must(t, ctx, primary, "node", "set", f.Name(i), "--site", site)
	}
	// Clients of 6447 stay in their site; those of the far node read there.
	f.awaitReaders(t, ctx, primary, f.others(primary)[0])
	f.awaitReaders(t, ctx, far, far)
	f.must(t, ctx, primary, "cluster", "set", "--durability", "site-majority")
	l := f.waitsWithout(t, ctx, primary, far)
	f.resume(t, far)
	l.awaitAcks(t, ctx, 50)
	// The other one of the near site is not needed.
	f.pause(t, ctx, f.others(primary)[0])
	l.awaitAcks(t, ctx, 50)
	f.awaitReaders(t, ctx, primary, far)
	f.resume(t, f.others(primary)[0])
	f.must(t, ctx, primary, "cluster", "set", "--durability", "majority")
	f.survived(t, ctx, l, primary)
}

// requireAckWaits: what waits for a node goes on when it is back.
func (f *fixture) requireAckWaits(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	named := f.others(primary)[0]
	f.must(t, ctx, primary, "node", "set", f.Name(named), "--require-ack")
	l := f.waitsWithout(t, ctx, primary, named)
	f.resume(t, named)
	l.awaitAcks(t, ctx, 50)
	f.must(t, ctx, primary, "node", "set", f.Name(named), "--require-ack=false")
	f.survived(t, ctx, l, primary)
}

// requireAckDropped: with drop-after writes go on without the node, and the status says so.
// They wait for it again when it has caught up.
func (f *fixture) requireAckDropped(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	named := f.others(primary)[0]
	f.must(t, ctx, primary, "node", "set", f.Name(named), "--require-ack", "--degrade", "drop-after=3s")
	l := f.waitsWithout(t, ctx, primary, named)
	l.awaitAcks(t, ctx, 50)
	if out := f.must(t, ctx, f.others(primary)[1], "status"); !strings.Contains(out, "require-ack of "+f.Name(named)+" (drop-after=3s)") {
		t.Errorf("status: %s", out)
	}
	f.awaitAcksStatus(t, ctx, primary, "the drop is shown", func(s status.Node) bool {
		return len(s.AcksDropped) == 1 && s.AcksDropped[0].Node == f.Name(named) && s.AcksDropped[0].Entries > 0
	})
	if out := f.must(t, ctx, primary, "status"); !strings.Contains(out, "REQUIRE-ACK DROPPED: writes do not wait for "+f.Name(named)) {
		t.Errorf("status: %s", out)
	}
	f.resume(t, named)
	f.awaitAcksStatus(t, ctx, primary, "the drop is taken back", func(s status.Node) bool { return len(s.AcksDropped) == 0 })
	l.awaitAcks(t, ctx, 50)
	var results []string
	err := devcluster.Poll(ctx, "the audit log says both", func(ctx context.Context) (bool, string, error) {
		results = nil
		for _, line := range f.audited(t, ctx, primary) {
			if strings.Contains(line.What, "the require-ack of node "+f.Name(named)) {
				results = append(results, line.Result)
			}
		}
		return slices.Equal(results, []string{"dropped", "in force"}), fmt.Sprint(results), nil
	})
	if err != nil {
		t.Error(err)
	}
	f.must(t, ctx, primary, "node", "set", f.Name(named), "--require-ack=false")
	f.survived(t, ctx, l, primary)
}

// policyAtFailover: a new primary opens without the node that died, and acknowledges
// nothing before that node has it on its disk.
func (f *fixture) policyAtFailover(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	f.must(t, ctx, primary, "cluster", "set", "--durability", "all")
	l := f.start(t, 4)
	l.awaitAcks(t, ctx, 50)
	if err := f.KillAgent(primary); err != nil {
		t.Fatal(err)
	}
	next, err := f.WaitPrimary(ctx, primary)
	if err != nil {
		t.Fatal(err)
	}
	acknowledged := l.Stats().Acknowledged
	f.awaitWaiting(t, ctx, next)
	f.awaitAcksFor(t, ctx, next, primary)
	if n := l.Stats().Acknowledged - acknowledged; n != 0 {
		t.Errorf("%d rows were acknowledged without node %s", n, f.Name(primary))
	}
	f.heal(t, ctx)
	l.awaitAcks(t, ctx, 50)
	f.must(t, ctx, next, "cluster", "set", "--durability", "majority")
	l.stop(t)
	f.check(t, ctx)
}
