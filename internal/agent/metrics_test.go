package agent

import (
	"testing"

	"github.com/quorate/quorate/internal/cluster"
)

// TestLagMetrics: a lag that is not known is absent, as 0 would be the best of all.
func TestLagMetrics(t *testing.T) {
	n := cluster.NodeStatus{LagTransactions: 3, LagSeconds: 1.5}
	if m := lagMetrics(n); len(m) != 2 || m[0].Value != 3 || m[1].Value != 1.5 {
		t.Errorf("known: %+v", m)
	}
	n.LagUnknown = true
	if m := lagMetrics(n); len(m) != 0 {
		t.Errorf("not known: %+v", m)
	}
}

// TestLagIsUnknownWithoutLeaderOrMysqld: what mysqld has says nothing without what is
// committed, and the other way round.
func TestLagIsUnknownWithoutLeaderOrMysqld(t *testing.T) {
	a := openLone(t)
	for _, c := range []struct {
		leader  cluster.NodeID
		mysqld  cluster.MysqldState
		unknown bool
	}{
		{0, cluster.MysqldRunning, true},
		{a.self.ID, cluster.MysqldStarting, true},
		{a.self.ID, cluster.MysqldRunning, false},
	} {
		a.board.update(func(s *cluster.NodeStatus) { s.Leader, s.Mysqld = c.leader, c.mysqld })
		if got := a.ownStatus().LagUnknown; got != c.unknown {
			t.Errorf("leader %d, mysqld %s: %t", c.leader, c.mysqld, got)
		}
	}
}
