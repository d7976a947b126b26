package cluster

import "testing"

// TestLeaveOnceTheOthersKeepIt: node 3 was demoted. Suppose that it gave up its data at once, and that the last
// voter started again from the state before the demotion. That voter would then need a vote that no node can
// give.
func TestLeaveOnceTheOthersKeepIt(t *testing.T) {
	members := func(kinds ...Kind) (s State) {
		for i, k := range kinds {
			s.Members = append(s.Members, Member{ID: NodeID(i + 1), Kind: k})
		}
		return s
	}
	two := members(KindFull, KindLogger, KindLearner)
	one := members(KindFull, KindLearner, KindLearner)
	for _, c := range []struct {
		name     string
		state    State
		outgoing []NodeID
		kept     map[NodeID]uint64
		want     bool
	}{
		{"nobody is heard of", two, nil, nil, false},
		{"both keep it", two, nil, map[NodeID]uint64{1: 9, 2: 9}, true},
		{"one of two keeps what was before", two, nil, map[NodeID]uint64{1: 9, 2: 8}, false},
		{"the only one keeps it", one, nil, map[NodeID]uint64{1: 9}, true},
		{"the only one keeps what was before", one, nil, map[NodeID]uint64{1: 8, 2: 9}, false},
		{"learners do not count", two, nil, map[NodeID]uint64{1: 9, 3: 9}, false},
		{"the change is not complete", two, []NodeID{1, 2, 3}, map[NodeID]uint64{1: 9, 2: 9}, false},
	} {
		if got := (StatePoint{State: c.state, Index: 9, Outgoing: c.outgoing}).MayLeave(c.kept); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// TestTakenUpByAVoterThatLacksIt: a node takes up a state only if the state is newer and gives the node a vote.
func TestTakenUpByAVoterThatLacksIt(t *testing.T) {
	s := State{Members: []Member{{ID: 1, Kind: KindFull}, {ID: 2, Kind: KindLearner}, {ID: 4, Kind: KindFull, Instance: "old"}, {ID: 5, Kind: KindFull, Instance: "new"}}}
	for _, c := range []struct {
		name string
		p    StatePoint
		id   NodeID
		own  uint64
		want bool
	}{
		{"newer", StatePoint{State: s, Index: 9}, 1, 8, true},
		{"its own", StatePoint{State: s, Index: 9}, 1, 9, false},
		{"older", StatePoint{State: s, Index: 7}, 1, 8, false},
		{"not complete: it was just given its vote", StatePoint{State: s, Index: 9, Outgoing: []NodeID{4, 5}}, 1, 8, true},
		{"not complete: it has just lost its vote", StatePoint{State: s, Index: 9, Outgoing: []NodeID{1, 2}}, 2, 8, false},
		{"without a vote", StatePoint{State: s, Index: 9}, 2, 8, false},
		{"no member", StatePoint{State: s, Index: 9}, 3, 8, false},
		{"rebuilt, in its directory", StatePoint{State: s, Index: 9}, 4, 8, true},
		{"the directory from before it was rebuilt", StatePoint{State: s, Index: 9}, 5, 8, false},
	} {
		if got := c.p.TakenUpBy(c.id, "old", StatePoint{Index: c.own}); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}
