package membership

import (
	"testing"

	"github.com/quorate/quorate/internal/cluster"
)

// TestCaughtUp: a learner gets its vote when commits need not wait for it long.
func TestCaughtUp(t *testing.T) {
	replica := cluster.NodeStatus{Reachable: true, Role: cluster.RoleReplica, LogState: cluster.LogOK, LogLast: 5000, Applied: 5000}
	for name, c := range map[string]struct {
		change    func(*cluster.NodeStatus)
		kind      cluster.Kind
		committed uint64
		want      bool
	}{
		"as far":              {func(*cluster.NodeStatus) {}, cluster.KindFull, 5000, true},
		"a little behind":     {func(*cluster.NodeStatus) {}, cluster.KindFull, 5000 + promoteEntriesMax, true},
		"log behind":          {func(*cluster.NodeStatus) {}, cluster.KindFull, 5001 + promoteEntriesMax, false},
		"mysqld behind":       {func(n *cluster.NodeStatus) { n.LagBytes, n.LagSeconds, n.ApplyRate = 300, 9, 100 }, cluster.KindFull, 5000, false},
		"mysqld not so far":   {func(n *cluster.NodeStatus) { n.LagBytes, n.LagSeconds, n.ApplyRate = 100, 9, 100 }, cluster.KindFull, 5000, true},
		"mysqld not asked":    {func(n *cluster.NodeStatus) { n.Applied = 0 }, cluster.KindFull, 5000, false},
		"joining":             {func(n *cluster.NodeStatus) { n.Role = cluster.RoleJoining }, cluster.KindFull, 5000, false},
		"silent":              {func(n *cluster.NodeStatus) { n.Reachable = false }, cluster.KindFull, 5000, false},
		"log full":            {func(n *cluster.NodeStatus) { n.LogState = cluster.LogFull }, cluster.KindFull, 5000, false},
		"logger":              {func(n *cluster.NodeStatus) { n.Role, n.Applied = cluster.RoleLogger, 0 }, cluster.KindLogger, 5000, true},
		"replica as a logger": {func(*cluster.NodeStatus) {}, cluster.KindLogger, 5000, false},
	} {
		n := replica
		c.change(&n)
		if got := CaughtUp(n, c.kind, c.committed); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// TestShort: whoever lacks what the leader's log has no more gets nothing ever again.
func TestShort(t *testing.T) {
	n := cluster.NodeStatus{Reachable: true, Instance: "new", Role: cluster.RoleReplica, LogState: cluster.LogOK, LogLast: 98}
	for name, c := range map[string]struct {
		change func(*cluster.NodeStatus)
		want   bool
	}{
		"it lacks some":    {func(*cluster.NodeStatus) {}, true},
		"it has the last":  {func(n *cluster.NodeStatus) { n.LogLast = 99 }, false},
		"it is away":       {func(n *cluster.NodeStatus) { n.Reachable = false }, false},
		"over its old one": {func(n *cluster.NodeStatus) { n.Instance = "old" }, false},
		"it copies":        {func(n *cluster.NodeStatus) { n.Role, n.LogLast = cluster.RoleJoining, 10 }, false},
		"it has no log":    {func(n *cluster.NodeStatus) { n.LogLast = 0 }, false},
		"it is healed":     {func(n *cluster.NodeStatus) { n.LogState = cluster.LogRepairing }, false},
	} {
		n := n
		c.change(&n)
		if got := Short(cluster.Member{Instance: "new"}, n, 100); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
