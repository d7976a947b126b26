package sim

import (
	"testing"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/join"
	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/cluster"
)

// TestDirectoryIsGivenOnce: the checker notices a node that joins again in a directory in which it was a
// member.
func TestDirectoryIsGivenOnce(t *testing.T) {
	w := newWorld(Options{Nodes: 3, Members: 1})
	for _, n := range w.nodes {
		wantFailure(t, "at first", "", func() { w.check.joinedAs(n) })
	}
	wantFailure(t, "again", "directory", func() { w.check.joinedAs(w.nodes[1]) })
}

// TestOfferIsNew: the checker notices an offer that is based on an older cluster state.
func TestOfferIsNew(t *testing.T) {
	w := newWorld(Options{Nodes: 3})
	offer := func(index uint64) func() {
		return func() {
			w.check.offers(w.nodes[0], w.nodes[1])(&join.Offer{Node: "n1", State: cluster.StatePoint{Index: index}})
		}
	}
	w.check.policies = []policy{{7, w.initial}}
	wantFailure(t, "an older state", "plan", offer(6))
	wantFailure(t, "the state", "", offer(7))
	wantFailure(t, "a newer state", "", offer(8))
}

// TestGivesUpNotTooEarly: the checker notices a node that gives up its data while all voters still count on the
// data.
func TestGivesUpNotTooEarly(t *testing.T) {
	w := newWorld(Options{Nodes: 3, Members: 1})
	n, voter := w.nodes[0], w.nodes[1]
	w.initial = cluster.NewState([]cluster.Member{n.member, voter.member})
	w.check.policies = []policy{{0, w.initial}}
	for _, v := range []*node{n, voter} {
		if err := v.home.Begin(); err != nil {
			t.Fatal(err)
		}
		v.visit()
	}
	leaves := func() { w.check.givesUp(n, &membership.Departure{Instance: "another"}) }
	wantFailure(t, "all count on it", "gives-up", leaves)
	without := w.initial.Clone()
	without.Members[0].Kind, without.Version = cluster.KindLearner, 1
	if err := datadir.New(voter.disk.mem, ".").WriteState(cluster.StatePoint{State: without, Index: 5, Through: 5}); err != nil {
		t.Fatal(err)
	}
	wantFailure(t, "one knows better", "", leaves)
	wantFailure(t, "it only starts again", "", func() { w.check.givesUp(n, &membership.Departure{State: &cluster.StatePoint{}}) })
}
