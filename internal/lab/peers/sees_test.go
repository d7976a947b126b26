package peers

import (
	"testing"

	"github.com/quorate/quorate/internal/cluster"
)

func TestUnheard(t *testing.T) {
	for _, tc := range []struct {
		name         string
		leader       cluster.NodeID
		a, b         bool // b hears
		missA, missC bool
	}{
		{"all is well", 1, true, true, false, false},
		{"a is silent", 1, false, true, true, false},
		{"c is silent", 1, true, false, false, true},
		{"nobody leads", 0, true, true, true, true},
		{"another leads before a is silent", 2, true, true, true, false},
	} {
		st := cluster.Status{Self: "b", Nodes: []cluster.NodeStatus{
			{ID: 1, Name: "a", Reachable: tc.a, Role: cluster.RolePrimary},
			{ID: 2, Name: "b", Reachable: true, Role: cluster.RoleReplica, Leader: tc.leader},
			{ID: 3, Name: "c", Reachable: tc.b, Role: cluster.RoleReplica},
		}}
		if a, c := unheard(st, "a"), unheard(st, "c"); a != tc.missA || c != tc.missC {
			t.Errorf("%s: misses a %v and c %v, want %v and %v", tc.name, a, c, tc.missA, tc.missC)
		}
	}
}
