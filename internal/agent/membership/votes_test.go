package membership

import (
	"testing"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
)

// TestCaughtUp: a learner gets its vote when commits need not wait for it long.
func TestCaughtUp(t *testing.T) {
	replica := status.Node{Reachable: true, Role: status.RoleReplica, LogState: status.LogOK, LogLast: 5000, Applied: 5000}
	for name, c := range map[string]struct {
		change    func(*status.Node)
		kind      cluster.Kind
		committed uint64
		want      bool
	}{
		"as far":              {func(*status.Node) {}, cluster.KindFull, 5000, true},
		"a little behind":     {func(*status.Node) {}, cluster.KindFull, 5000 + promoteEntriesMax, true},
		"log behind":          {func(*status.Node) {}, cluster.KindFull, 5001 + promoteEntriesMax, false},
		"mysqld behind":       {func(n *status.Node) { n.LagBytes, n.LagSeconds, n.ApplyRate = 300, 9, 100 }, cluster.KindFull, 5000, false},
		"mysqld not so far":   {func(n *status.Node) { n.LagBytes, n.LagSeconds, n.ApplyRate = 100, 9, 100 }, cluster.KindFull, 5000, true},
		"mysqld not asked":    {func(n *status.Node) { n.Applied = 0 }, cluster.KindFull, 5000, false},
		"joining":             {func(n *status.Node) { n.Role = status.RoleJoining }, cluster.KindFull, 5000, false},
		"silent":              {func(n *status.Node) { n.Reachable = false }, cluster.KindFull, 5000, false},
		"log full":            {func(n *status.Node) { n.LogState = status.LogFull }, cluster.KindFull, 5000, false},
		"logger":              {func(n *status.Node) { n.Role, n.Applied = status.RoleLogger, 0 }, cluster.KindLogger, 5000, true},
		"replica as a logger": {func(*status.Node) {}, cluster.KindLogger, 5000, false},
	} {
		n := replica
		c.change(&n)
		if got := CaughtUp(n, c.kind, c.committed); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// TestShort: a node that lacks entries which the leader has purged never gets anything again.
func TestShort(t *testing.T) {
	n := status.Node{Reachable: true, Instance: "new", Role: status.RoleReplica, LogState: status.LogOK, LogLast: 98}
	for name, c := range map[string]struct {
		change func(*status.Node)
		want   bool
	}{
		"it lacks some":    {func(*status.Node) {}, true},
		"it has the last":  {func(n *status.Node) { n.LogLast = 99 }, false},
		"it is away":       {func(n *status.Node) { n.Reachable = false }, false},
		"over its old one": {func(n *status.Node) { n.Instance = "old" }, false},
		"it copies":        {func(n *status.Node) { n.Role, n.LogLast = status.RoleJoining, 10 }, false},
		"it has no log":    {func(n *status.Node) { n.LogLast = 0 }, false},
		"it is healed":     {func(n *status.Node) { n.LogState = status.LogRepairing }, false},
	} {
		n := n
		c.change(&n)
		if got := Short(cluster.Member{Instance: "new"}, n, 100); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
