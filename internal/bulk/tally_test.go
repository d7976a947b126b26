package bulk

import (
	"testing"

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
		{ids{1, 2, 3}, ids{1, 1, 1}, false},   // each once
		{ids{1, 2, 3}, ids{1, 4, 5}, false},   // learners
		{ids{1, 2, 3, 4}, ids{1, 2}, false},   // half
		{ids{1, 2, 3, 4}, ids{1, 2, 4}, true}, // more than half
		{ids{1, 2, 3, 4, 5}, ids{1, 5}, false},
		{ids{1, 2, 3, 4, 5}, ids{1, 5, 2}, true},
		{ids{2, 3}, ids{1, 2, 3}, false}, // a leader without a vote
	} {
		y := tally{self: 1, voters: c.voters}
		for _, id := range c.holders {
			y.add(id)
		}
		if got := y.reached(); got != c.want {
			t.Errorf("voters %v, holders %v: %v", c.voters, c.holders, got)
		}
	}
}
