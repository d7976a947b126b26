package agent

import (
	"log/slog"
	"testing"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/transport"
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

// TestRebuildOrderThatIsKnown: a node that ended before it noted that it is rebuilt
// knows so from its log, and no peer lets it in any more. It takes their word.
func TestRebuildOrderThatIsKnown(t *testing.T) {
	const instance = "02000000000000000000000000000000"
	for known, leaves := range map[string]bool{instance: true, "03000000000000000000000000000000": false, "": false} {
		a := &Agent{cfg: testConfig(t, t.TempDir()), data: &dataDir{}, logger: slog.New(slog.DiscardHandler)}
		a.self = a.cfg.ClusterMembers()[0]
		a.board.init(a.cfg, a.self, "")
		s := a.board.clusterState()
		s.Version, s.Members[0].Instance = 7, known
		a.board.setState(s)
		a.rejected("b", &transport.RejectedError{Code: transport.CodeRebuild, Order: transport.Order{StateVersion: 7, Instance: instance}})
		if got := a.leaving.Load() != nil; got != leaves {
			t.Errorf("its state says %q: leaves %t", known, got)
		}
	}
}
