package consensus

import (
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster"
)

// TestDeadProcessIsNotThere: a change of the voters does not count on a node whose
// process is known to be dead, although it was heard a moment ago. Taking the vote of
// one of three then leaves two, one of which may be gone for good: a change that
// nothing but force would end.
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
		want := c.String() + ": only 1 of 2 voters would be there, without n3"
		if _, err := g.CheckState(w.now, c); err == nil || err.Error() != want {
			t.Errorf("%s with a dead n3: %v, want %s", op, err, want)
		}
		clear(w.cut)
		w.run(200 * time.Millisecond)
	}
}
