package peers

import (
	"testing"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
)

func TestSeen(t *testing.T) {
	for _, tc := range []struct {
		name         string
		leader       cluster.NodeID
		a, b         bool // b hears
		missA, missC sight
	}{
		{"all is well", 1, true, true, inside, inside},
		{"a is silent", 1, false, true, outside, inside},
		{"c is silent", 1, true, false, inside, outside},
		{"nobody leads", 0, true, true, suspected, suspected},
		{"another leads before a is silent", 2, true, true, suspected, inside},
	} {
		st := status.Cluster{Self: "b", Nodes: []status.Node{
			{ID: 1, Name: "a", Reachable: tc.a, Role: status.RolePrimary},
			{ID: 2, Name: "b", Reachable: true, Role: status.RoleReplica, Leader: tc.leader},
			{ID: 3, Name: "c", Reachable: tc.b, Role: status.RoleReplica},
		}}
		if a, c := seen(st, "a"), seen(st, "c"); a != tc.missA || c != tc.missC {
			t.Errorf("%s: misses a %v and c %v, want %v and %v", tc.name, a, c, tc.missA, tc.missC)
		}
	}
}
