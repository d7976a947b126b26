package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config"
)

// TestFailoverIsToWhoWouldBeChosen: the estimate goes by weight among nodes that are about equally far, not to the
// node with the least lag, and says why there is none.
func TestFailoverIsToWhoWouldBeChosen(t *testing.T) {
	a := &Agent{cfg: config.Config{Raft: config.Raft{Heartbeat: 100 * time.Millisecond, ElectionTimeout: time.Second}}}
	primary := status.Node{ID: 1, Name: "a", Kind: cluster.KindFull, Weight: 9, Reachable: true, Role: status.RolePrimary, LogCommit: 100}
	replica := func(id cluster.NodeID, name string, change func(*status.Node)) status.Node {
		n := status.Node{ID: id, Name: name, Kind: cluster.KindFull, Weight: 5, Reachable: true, Role: status.RoleReplica, Applied: 100, LogLast: 100}
		change(&n)
		return n
	}
	same := func(*status.Node) {}
	lags := func(seconds float64) func(*status.Node) {
		return func(n *status.Node) { n.LagTransactions, n.LagSeconds = 1, seconds }
	}
	for name, c := range map[string]struct {
		b, c   status.Node
		to     string
		reason string
	}{
		"the heavier, which lags a little": {replica(2, "b", func(n *status.Node) { lags(0.4)(n); n.Weight = 7 }), replica(3, "c", same), "b", ""},
		"the one that lags less":           {replica(2, "b", lags(3)), replica(3, "c", same), "c", "3.0 s more if b wins the election"},
		"not one that does not apply":      {replica(2, "b", func(n *status.Node) { n.Weight, n.ApplierStopped = 9, "replication has stopped" }), replica(3, "c", lags(3)), "c", ""},
		"none that applies": {replica(2, "b", func(n *status.Node) { n.ApplierStopped = "replication has stopped" }),
			replica(3, "c", func(n *status.Node) { n.Kind, n.Role = cluster.KindLogger, status.RoleLogger }), "", "no other node can take over: b does not apply"},
		"not a logger": {replica(2, "b", func(n *status.Node) { n.Kind, n.Role = cluster.KindLogger, status.RoleLogger }), replica(3, "c", same), "c", ""},
		"nobody": {replica(2, "b", func(n *status.Node) { n.Weight = 0 }), replica(3, "c", func(n *status.Node) { n.Reachable = false }),
			"", "no other node can take over: b has weight 0, c is not heard of"},
	} {
		got := a.failover(status.Sight{Nodes: []status.Node{primary, c.b, c.c}, Primary: "a"})
		if d := cmp.Diff([]string{c.to, c.reason}, []string{got.To, got.Reason}); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// TestFailoverIsToWhoCouldOpen: in an upgrade out of order only those nodes can open that need no lease, or get one.
func TestFailoverIsToWhoCouldOpen(t *testing.T) {
	a := &Agent{cfg: config.Config{Raft: config.Raft{Heartbeat: 100 * time.Millisecond, ElectionTimeout: time.Second}}}
	for _, c := range []struct {
		newer  string // the nodes with the newer quorate; d is away
		to     string
		reason string
	}{
		{"", "b", ""},
		{"abcde", "b", ""},
		{"bcd", "e", ""},
		{"bcde", "b", ""},
		{"bde", "c", ""},
		{"bce", "b", ""},
		{"cd", "b", ""},
	} {
		s := status.Sight{Primary: "a"}
		for i, name := range []string{"a", "b", "c", "d", "e"} {
			id := cluster.NodeID(i + 1)
			s.State.Members = append(s.State.Members, cluster.Member{ID: id, Name: name, Kind: cluster.KindFull, Weight: 5})
			n := status.Node{ID: id, Name: name, Kind: cluster.KindFull, Weight: 5, Reachable: name != "d", Role: status.RoleReplica, AgentVersion: "1"}
			if name == "a" {
				n.Role = status.RolePrimary
			}
			if strings.Contains(c.newer, name) {
				n.ElectionTimeout = time.Second
			}
			s.Nodes = append(s.Nodes, n)
		}
		if f := a.failover(s); f.To != c.to || f.Reason != c.reason {
			t.Errorf("with %q newer it goes to %q, %q", c.newer, f.To, f.Reason)
		}
		if q := s.Quorum(); q.Survives != 1 {
			t.Errorf("with %q newer it survives %d", c.newer, q.Survives)
		}
	}
}
