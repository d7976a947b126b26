package bulk

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
)

func TestTally(t *testing.T) {
	type ids []cluster.NodeID
	for _, c := range []struct {
		voters, holders ids
		want            bool
	}{
		{ids{1}, nil, false},
		{ids{1}, ids{1}, true},
		{ids{1, 2}, ids{1}, false},
		{ids{1, 2}, ids{1, 2}, true},
		{ids{1, 2, 3}, ids{1}, false},
		{ids{1, 2, 3}, ids{1, 3}, true},
		{ids{1, 2, 3}, ids{2, 3}, false}, // without the leader
		{ids{1, 2, 3}, ids{2, 3, 1}, true},
		{ids{1, 2, 3}, ids{1, 1, 1}, false},   // each node counts once
		{ids{1, 2, 3}, ids{1, 4, 5}, false},   // learners
		{ids{1, 2, 3, 4}, ids{1, 2}, false},   // half
		{ids{1, 2, 3, 4}, ids{1, 2, 4}, true}, // more than half
		{ids{1, 2, 3, 4, 5}, ids{1, 5}, false},
		{ids{1, 2, 3, 4, 5}, ids{1, 5, 2}, true},
		{ids{2, 3}, ids{1, 2, 3}, false}, // a leader without a vote
	} {
		y := NewTally(1)
		y.SetMembers(c.voters, nil, nil)
		for _, id := range c.holders {
			y.Held(id)
		}
		if got := y.Reached(); got != c.want {
			t.Errorf("voters %v, holders %v: %v", c.voters, c.holders, got)
		}
	}
}

func TestTallyBlockedBy(t *testing.T) {
	type ids []cluster.NodeID
	for _, c := range []struct {
		voters, holders, full, lost ids
		want                        ids
	}{
		{ids{1, 2}, nil, ids{2}, nil, ids{2}},
		{ids{1, 2}, ids{1}, ids{2}, nil, ids{2}},
		{ids{1, 2, 3}, ids{1}, nil, ids{2, 3}, nil}, // no disk is full
		{ids{1, 2, 3}, ids{1}, ids{3}, nil, nil},    // node 2 can take the stage
		{ids{1, 2, 3}, ids{1, 2}, ids{3}, nil, nil}, // node 2 has it
		{ids{1, 2, 3}, ids{1}, ids{3}, ids{2}, ids{3}},
		{ids{1, 2, 3}, ids{1}, ids{3, 2}, nil, ids{2, 3}},
		{ids{1, 2, 3}, ids{1}, ids{3}, ids{4}, nil}, // a learner
		{ids{1, 2, 3}, ids{1}, ids{3, 4}, nil, nil},
		{ids{1, 2, 3, 4, 5}, ids{1, 2}, ids{3, 4}, nil, nil},
		{ids{1, 2, 3, 4, 5}, ids{1, 2}, ids{3, 4}, ids{5}, ids{3, 4}},
		{ids{1, 2, 3, 4}, ids{1}, ids{3}, ids{4}, ids{3}}, // half
	} {
		y := NewTally(1)
		y.SetMembers(c.voters, nil, nil)
		for _, id := range c.lost {
			y.tried(id, errFull)
			y.tried(id, errDisk)
		}
		for _, id := range c.full {
			y.tried(id, errDisk)
			y.tried(id, errFull)
			y.began(id)
		}
		for _, id := range c.holders {
			y.tried(id, errFull)
			y.Held(id)
		}
		full, _, _ := y.blocked()
		if diff := cmp.Diff([]cluster.NodeID(c.want), full); diff != "" {
			t.Errorf("voters %v, holders %v, full %v, lost %v (-want +got)\n%s", c.voters, c.holders, c.full, c.lost, diff)
		}
		for _, id := range c.lost {
			y.began(id)
		}
		if got, _, _ := y.blocked(); len(c.lost) > 0 && len(c.full) == 1 && len(c.voters) == 3 && got != nil {
			t.Errorf("voters %v: blocked by %v although the lost ones take it", c.voters, got)
		}
	}
}

// TestTallyPushes: a stage is pushed to each peer once, and once more if the peer's vote has changed since it held
// the stage, because the peer may have been rebuilt. Once a majority held the stage, that stays true.
func TestTallyPushes(t *testing.T) {
	type ids = []cluster.NodeID
	y := NewTally(1)
	set := func(what string, voters, outgoing, peers, want ids) {
		t.Helper()
		if d := cmp.Diff(want, y.SetMembers(voters, outgoing, peers)); d != "" {
			t.Errorf("%s: pushed to (-want +got):\n%s", what, d)
		}
	}
	set("it begins", ids{1, 2, 3}, nil, ids{2, 3, 4}, ids{2, 3, 4})
	set("nothing changes", ids{1, 2, 3}, nil, ids{2, 3, 4}, nil)
	y.Held(4)
	y.Held(1)
	if y.Reached() {
		t.Error("a learner counts")
	}
	set("what holds it gets a vote", ids{1, 2, 3, 4}, ids{1, 2, 3}, ids{2, 3, 4}, ids{4})
	set("a vote goes before it holds it", ids{1, 2, 4}, nil, ids{2, 4, 3}, nil)
	y.Held(2)
	if !y.Reached() {
		t.Error("two of three are no majority")
	}
	set("one is new", ids{1, 2, 4, 5}, nil, ids{2, 4, 5}, ids{5})
	if !y.Reached() {
		t.Error("a majority held it, and its entry may be under way")
	}
}
