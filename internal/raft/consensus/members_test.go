package consensus

import (
	"errors"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster"
)

// TestDeadProcessIsNotThere: a change of the voters does not count on a node whose process is known to be dead,
// although the node was heard a moment ago. If one of three votes were taken away then, two would be left, and
// one of these may be gone for good. Only force could end such a change.
func TestDeadProcessIsNotThere(t *testing.T) {
	w := newWorld(t, 3)
	w.node(1).g.campaign()
	w.settle()
	w.run(200 * time.Millisecond)
	g := w.node(1).g
	for _, op := range []cluster.MembershipOp{cluster.OpDemote, cluster.OpRebuild} {
		c := testMembership(string(op), "n2")
		if _, err := g.CheckState(w.now, c); err != nil {
			t.Errorf("%s while all are there: %v", op, err)
		}
		w.cut[3] = true
		g.LeaderGone(w.now, 3)
		const want = "only 1 of 2 voters would answer, which is no majority; these do not answer: n3"
		_, err := g.CheckState(w.now, c)
		if _, ok := errors.AsType[*RefusedError](err); !ok || err.Error() != want {
			t.Errorf("%s with a dead n3: %v, want %s", op, err, want)
		}
		clear(w.cut)
		w.run(200 * time.Millisecond)
	}
}

// TestChangeIsJudgedOnWhatIsCommitted: quorate judges its own changes on one cluster state. If another state
// was committed since, the change is refused.
func TestChangeIsJudgedOnWhatIsCommitted(t *testing.T) {
	w := newWorld(t, 3)
	w.node(1).g.campaign()
	w.settle()
	w.run(200 * time.Millisecond)
	g := w.node(1).g
	c := testMembership(string(cluster.OpRebuild), "n2")
	c.Judged = g.Committed().State().State.Version
	if _, err := g.CheckState(w.now, c); err != nil && c.Judged != 0 {
		t.Errorf("nothing came in between: %v", err)
	}
	w.change(1, cluster.Change{ID: "on", By: "ann@db1", Maintenance: &cluster.MaintenanceChange{On: true, Primary: "n1"}})
	w.change(1, cluster.Change{ID: "weight", By: "ann@db1", Node: &cluster.NodeChange{Name: "n2", Weight: new(3)}})
	c.Judged++ // the first change's
	if err := g.ProposeState(w.now, c); !errors.Is(err, ErrStale) {
		t.Errorf("two changes came in between: %v, want %v", err, ErrStale)
	}
	c.Judged++
	if _, err := g.CheckState(w.now, c); err != nil {
		t.Errorf("judged on what is committed: %v", err)
	}
}
