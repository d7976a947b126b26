package status

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
)

func TestBacklogSeconds(t *testing.T) {
	for name, c := range map[string]struct {
		n    Node
		want float64
	}{
		"nothing":                 {Node{LagSeconds: 9, ApplyRate: 1}, 0},
		"a rate":                  {Node{LagBytes: 30e6, LagSeconds: 9, ApplyRate: 2e6}, 15},
		"no rate":                 {Node{LagBytes: 30e6, LagSeconds: 9}, 9},
		"no bytes":                {Node{LagTransactions: 1, LagSeconds: 9}, 9},
		"a burst":                 {Node{LagBytes: 30e6, LagSeconds: 0.5, ApplyRate: 2e6}, 0.5},
		"a burst, soon gone":      {Node{LagBytes: 1e6, LagSeconds: 1.5, ApplyRate: 2e6}, 0.5},
		"no longer only a burst":  {Node{LagBytes: 30e6, LagSeconds: 2, ApplyRate: 2e6}, 15},
		"old, and soon made good": {Node{LagBytes: 1e6, LagSeconds: 60, ApplyRate: 2e6}, 0.5},
	} {
		if got := c.n.BacklogSeconds(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestEstimateFailover(t *testing.T) {
	times := FailoverTimes{Process: 100 * time.Millisecond, Host: 1500 * time.Millisecond, Open: 400 * time.Millisecond}
	replica := func(name string, lagBytes int64) Node {
		return Node{Name: name, Kind: cluster.KindFull, Role: RoleReplica, Reachable: true, Weight: 5,
			LagBytes: lagBytes, LagSeconds: 60, ApplyRate: 1e6, LogState: LogOK, LogLast: 5904, LogCommit: 5800}
	}
	with := func(n Node, f func(*Node)) Node { f(&n); return n }
	for name, c := range map[string]struct {
		to    string
		nodes []Node
		want  Failover
	}{
		"its log is behind": {"b", []Node{with(replica("b", 0), func(n *Node) { n.LogLast = 5000 })}, Failover{To: "b",
			ProcessSeconds: 0.5, HostSeconds: 1.9, Reason: "b has to be sent 5000 entries of the log first"}},
		"no lag": {"b", []Node{replica("b", 0)}, Failover{To: "b", ProcessSeconds: 0.5, HostSeconds: 1.9}},
		"a lag":  {"c", []Node{replica("b", 1e6), replica("c", 2e6)}, Failover{To: "c", BacklogSeconds: 2, ProcessSeconds: 2.5, HostSeconds: 3.9}},
		"one that is as heavy lags": {"c", []Node{replica("b", 5e6), replica("c", 2e6)}, Failover{To: "c", BacklogSeconds: 2,
			ProcessSeconds: 2.5, HostSeconds: 3.9, Reason: "3.0 s more if b wins the election"}},
		"one that is lighter lags": {"c", []Node{with(replica("b", 5e6), func(n *Node) { n.Weight = 4 }), replica("c", 2e6)},
			Failover{To: "c", BacklogSeconds: 2, ProcessSeconds: 2.5, HostSeconds: 3.9}},
		"one that cannot win lags": {"c", []Node{with(replica("b", 5e6), func(n *Node) { n.LogLast = 5000 }), replica("c", 2e6)},
			Failover{To: "c", BacklogSeconds: 2, ProcessSeconds: 2.5, HostSeconds: 3.9}},
		"one whose lag is not known": {"c", []Node{with(replica("b", 5e6), func(n *Node) { n.LagUnknown = true }), replica("c", 2e6)},
			Failover{To: "c", BacklogSeconds: 2, ProcessSeconds: 2.5, HostSeconds: 3.9}},
		"XA is prepared": {"b", []Node{with(replica("b", 0), func(n *Node) { n.PreparedXA = 1 })}, Failover{To: "b",
			ProcessSeconds: 0.5, HostSeconds: 1.9, Reason: "an XA transaction is prepared: b's mysqld may have to start again first, which takes some seconds"}},
		"XA is prepared elsewhere": {"b", []Node{replica("b", 0), with(replica("c", 0), func(n *Node) { n.PreparedXA = 1 })},
			Failover{To: "b", ProcessSeconds: 0.5, HostSeconds: 1.9}},
		"stuck": {"b", []Node{with(replica("b", 1e6), func(n *Node) { n.ApplyStuck = 42 })}, Failover{To: "b", BacklogSeconds: 3,
			ProcessSeconds: 3.5, HostSeconds: 4.9, Reason: "b has applied nothing for 42 s: a statement that takes long has to end first"}},
	} {
		nodes := append([]Node{with(replica("a", 9e6), func(n *Node) { n.Role, n.LogCommit = RolePrimary, 10000 })}, c.nodes...)
		sight := Sight{Nodes: nodes, Primary: "a"}
		for i, n := range nodes {
			nodes[i].ID = cluster.NodeID(i + 1)
			sight.State.Members = append(sight.State.Members, cluster.Member{ID: nodes[i].ID, Name: n.Name, Kind: n.Kind, Weight: n.Weight})
		}
		sight.State.Members = append(sight.State.Members, cluster.Member{ID: 9, Name: "z", Kind: cluster.KindLogger}) // any one node may fail
		sight.Nodes = append(sight.Nodes, Node{ID: 9, Name: "z", Reachable: true})
		c.want.From = "a"
		if diff := cmp.Diff(c.want, EstimateFailover(sight, c.to, times)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	f := Failover{To: "b", ProcessSeconds: 0.52, HostSeconds: 1.9}
	if got, want := f.String(), "failover now ≈ 0.5 s to b (≈ 1.9 s if the host of the primary is gone)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	f.Reason = "b sleeps"
	if got, want := f.String(), "failover now ≈ 0.5 s to b (≈ 1.9 s if the host of the primary is gone); b sleeps"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLogBehind(t *testing.T) {
	nodes := []Node{{LogLast: 10_010, LogCommit: 10_000, Reachable: true}, {LogCommit: 20_000}}
	for name, c := range map[string]struct {
		n    Node
		want uint64
	}{
		"as far":            {Node{LogLast: 10_000, Reachable: true}, 0},
		"further":           {Node{LogLast: 10_010, Reachable: true}, 0},
		"as its status old": {Node{LogLast: 9_000, Reachable: true}, 0},
		"far behind":        {Node{LogLast: 5_000, Reachable: true}, 5_000},
		"one entry, away":   {Node{LogLast: 9_999}, 1},
		"away":              {Node{LogLast: 10_001}, 0},
	} {
		if got := c.n.LogBehind(nodes); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// TestFollows: which nodes follow the log, and what stops the others.
func TestFollows(t *testing.T) {
	for name, c := range map[string]struct {
		node    Node
		follows bool
		stopped string
	}{
		"replica":         {Node{Role: RoleReplica}, true, ""},
		"applier stopped": {Node{Role: RoleReplica, ApplierStopped: "error 1062"}, false, "its applier has stopped"},
		"long statement":  {Node{Role: RoleReplica, ApplyStuck: 900}, true, ""},
		"primary":         {Node{Role: RolePrimary}, true, ""},
		"logger":          {Node{Role: RoleLogger}, true, ""},
		"joining":         {Node{Role: RoleJoining}, true, ""},
		"fenced":          {Node{Role: RoleFenced}, false, "it is fenced"},
		"errant":          {Node{Role: RoleErrant}, false, "it is errant"},
		"starting":        {Node{Role: RoleStarting}, false, ""},
		"starts again":    {Node{Role: RoleStarting, ApplierStopped: "error 1062"}, false, ""},
		"unverified":      {Node{Role: RoleUnverified}, false, ""},
		"log is healed":   {Node{Role: RoleStarting, LogState: LogRepairing}, true, ""},
		"data upgraded":   {Node{Role: RoleStarting, Upgrading: true}, true, ""},
		"upgrade failed":  {Node{Role: RoleFenced, Upgrading: true}, false, "it is fenced"},
	} {
		if f, s := c.node.Follows(), c.node.Stopped(); f != c.follows || s != c.stopped {
			t.Errorf("%s: follows %t, stopped %q; want %t, %q", name, f, s, c.follows, c.stopped)
		}
	}
}
