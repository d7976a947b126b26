package member

import (
	"slices"
	"testing"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/raft/consensus"
)

// TestCanSpare: a node stops to heal its log only if the cluster goes on without it.
func TestCanSpare(t *testing.T) {
	follows := consensus.RoleState{Term: 2, Leader: 2}
	for _, c := range []struct {
		name                   string
		role                   consensus.RoleState
		voters, outgoing, live []cluster.NodeID
		want                   bool
	}{
		{"all are there", follows, []cluster.NodeID{1, 2, 3}, nil, []cluster.NodeID{1, 2, 3}, true},
		{"it leads", consensus.RoleState{Term: 2, Leader: 1, Leading: true}, []cluster.NodeID{1, 2, 3}, nil, []cluster.NodeID{1, 2, 3}, false},
		{"nobody leads", consensus.RoleState{Term: 2}, []cluster.NodeID{1, 2, 3}, nil, []cluster.NodeID{1, 2, 3}, false},
		{"another is away", follows, []cluster.NodeID{1, 2, 3}, nil, []cluster.NodeID{1, 2}, false},
		{"one of five is away", follows, []cluster.NodeID{1, 2, 3, 4, 5}, nil, []cluster.NodeID{1, 2, 3, 4}, true},
		{"two of five are away", follows, []cluster.NodeID{1, 2, 3, 4, 5}, nil, []cluster.NodeID{1, 2, 3}, false},
		{"two nodes", follows, []cluster.NodeID{1, 2}, nil, []cluster.NodeID{1, 2}, false},
		{"a learner", follows, []cluster.NodeID{2, 3}, nil, []cluster.NodeID{1, 2, 3}, true},
		{"the old voters need it", follows, []cluster.NodeID{2, 3, 4}, []cluster.NodeID{1, 2}, []cluster.NodeID{1, 2, 3, 4}, false},
	} {
		lives := func(id cluster.NodeID) bool { return slices.Contains(c.live, id) }
		if got := canSpare(1, c.role, c.voters, c.outgoing, lives); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
