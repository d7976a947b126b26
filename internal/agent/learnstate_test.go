package agent

import (
	"testing"

	"github.com/quorate/quorate/internal/cluster"
)

// TestOlderStateIsIgnored: while a node's log catches up it says what the members were
// long ago; who they are now the node was told by another one.
func TestOlderStateIsIgnored(t *testing.T) {
	cfg := testConfig(t, t.TempDir())
	var b board
	b.init(cfg, cfg.ClusterMembers()[0], "")
	for _, version := range []uint64{3, 2, 3} {
		s := cluster.NewState(cfg.ClusterMembers())
		s.Version, s.Removed = version, []cluster.NodeID{cluster.NodeID(version)}
		b.setState(s)
		if got := b.clusterState(); got.Version != 3 || got.Removed[0] != 3 {
			t.Fatalf("after version %d: %d, %v", version, got.Version, got.Removed)
		}
	}
}
