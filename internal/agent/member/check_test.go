package member

import (
	"testing"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/raft/consensus"
)

// TestCanSpare: a node stops to heal its log only if writes go on without it.
func TestCanSpare(t *testing.T) {
	follows := consensus.RoleState{Term: 2, Leader: 2}
	for _, c := range []struct {
		name   string
		nodes  int
		role   status.Role
		raft   consensus.RoleState
		change func(s *status.Sight)
		want   bool
	}{
		{"all are there", 3, status.RoleReplica, follows, nil, true},
		{"it leads", 3, status.RoleReplica, consensus.RoleState{Term: 2, Leader: 1, Leading: true}, nil, false},
		{"nobody leads", 3, status.RoleReplica, consensus.RoleState{Term: 2}, nil, false},
		{"it settles what it led", 3, status.RoleDemoting, follows, nil, false},
		{"two nodes", 2, status.RoleReplica, follows, nil, false},
		{"another is away", 3, status.RoleReplica, follows, func(s *status.Sight) { s.Nodes[2].Reachable = false }, false},
		{"another heals its log", 3, status.RoleReplica, follows, func(s *status.Sight) { s.Nodes[2].LogState = status.LogRepairing }, false},
		{"another's log is full", 3, status.RoleReplica, follows, func(s *status.Sight) { s.Nodes[2].LogState = status.LogFull }, false},
		{"OKs wait for it", 3, status.RoleReplica, follows, func(s *status.Sight) { s.State.Durability = cluster.DurabilityAll }, false},
		{"one of five is away", 5, status.RoleReplica, follows, func(s *status.Sight) { s.Nodes[2].Reachable = false }, true},
		{"two of five are away", 5, status.RoleReplica, follows, func(s *status.Sight) { s.Nodes[2].Reachable, s.Nodes[3].Reachable = false, false }, false},
		{"the others have purged the entry", 3, status.RoleReplica, follows, func(s *status.Sight) { s.Nodes[1].LogFirst, s.Nodes[2].LogFirst = 51, 60 }, false},
		{"one of the others has the entry", 3, status.RoleReplica, follows, func(s *status.Sight) { s.Nodes[1].LogFirst = 51 }, true},
		{"the old voters need it", 3, status.RoleReplica, follows, func(s *status.Sight) { s.Outgoing = []cluster.NodeID{1, 2} }, false},
	} {
		var s status.Sight
		for i := range c.nodes {
			id, name := cluster.NodeID(i+1), string(rune('a'+i))
			s.State.Members = append(s.State.Members, cluster.Member{ID: id, Name: name, Kind: cluster.KindFull, Weight: cluster.WeightDefault})
			s.Nodes = append(s.Nodes, status.Node{ID: id, Name: name, Reachable: true, Role: status.RoleReplica, LogState: status.LogOK, LogFirst: 10})
		}
		s.Nodes[1].Role = status.RolePrimary
		if c.change != nil {
			c.change(&s)
		}
		if got := canSpare(1, 50, c.role, c.raft, s); got != c.want {
			t.Errorf("%s: %v: %+v", c.name, got, s.Quorum())
		}
		if !s.Nodes[0].Reachable {
			t.Errorf("%s: the caller's nodes were changed", c.name)
		}
	}
}
