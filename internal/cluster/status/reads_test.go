package status

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quorate/quorate/internal/cluster"
)

// readable returns a replica that may be read, with the changes of a test.
func readable(id cluster.NodeID, change ...func(*Node)) Node {
	n := Node{ID: id, Role: RoleReplica, Mysqld: MysqldRunning, Leader: 9, Reachable: true, ReadOnly: ":6447"}
	for _, f := range change {
		f(&n)
	}
	return n
}

func TestUnreadable(t *testing.T) {
	for _, c := range []struct {
		change func(*Node)
		want   string
	}{
		{func(*Node) {}, ""},
		{func(n *Node) { n.LagSeconds, n.LagAge, n.AgeMs = 1, 0.5, 500 }, ""},
		{func(n *Node) { n.LagSeconds = 2.3 }, "its data may be 2.3s old, and 2s are allowed"},
		{func(n *Node) { n.LagAge = 2.1 }, "its data may be 2.1s old, and 2s are allowed"},
		{func(n *Node) { n.AgeMs = 2100 }, "its data may be 2.1s old, and 2s are allowed"},
		{func(n *Node) { n.LagSeconds, n.LagAge, n.AgeMs = 1, 0.6, 500 }, "its data may be 2.1s old, and 2s are allowed"},
		{func(n *Node) { n.Reachable = false }, "it is not heard of"},
		{func(n *Node) { n.Role = RolePromoting }, "it is no replica, but promoting"},
		{func(n *Node) { n.Role = RolePrimary }, "it is no replica, but primary"},
		{func(n *Node) { n.Mysqld = MysqldStopped }, "its mysqld does not run"},
		{func(n *Node) { n.Leader = 0 }, "it has no leader, so nobody knows how old its data are"},
		{func(n *Node) { n.LagUnknown = true }, "its lag is not known"},
		{func(n *Node) { n.ApplierStopped = "replication has stopped" }, "it does not apply: replication has stopped"},
	} {
		if got := readable(1, c.change).Unreadable(2 * time.Second); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestChooseWhomToRead(t *testing.T) {
	at := func(site string) func(*Node) { return func(n *Node) { n.Site = site } }
	lags := func(n *Node) { n.LagSeconds = 5 }
	primary := func(n *Node) { n.Role = RolePrimary }
	noPort := func(n *Node) { n.ReadOnly = "" }
	for _, c := range []struct {
		name     string
		reads    Reads
		nodes    []Node
		sessions map[cluster.NodeID]int
		tried    []cluster.NodeID
		want     cluster.NodeID // 0 = none
	}{
		{"this node first", Reads{}, []Node{readable(2), readable(1), readable(3)}, map[cluster.NodeID]int{1: 100}, nil, 1},
		{"own site before others", Reads{}, []Node{readable(1, at("x"), lags), readable(2, at("y")), readable(3, at("x"))}, map[cluster.NodeID]int{3: 7}, nil, 3},
		{"others where the own site has none", Reads{}, []Node{readable(1, at("x"), lags), readable(2, at("y")), readable(3, at("x"), lags)}, nil, nil, 2},
		{"the fewest sessions among equals", Reads{}, []Node{readable(1, primary), readable(2), readable(3)}, map[cluster.NodeID]int{2: 2, 3: 1}, nil, 3},
		{"the next after one that was tried", Reads{}, []Node{readable(1, primary), readable(2), readable(3)}, map[cluster.NodeID]int{2: 2, 3: 1}, []cluster.NodeID{3}, 2},
		{"nobody where all were tried", Reads{}, []Node{readable(1), readable(2)}, nil, []cluster.NodeID{1, 2}, 0},
		{"no primary", Reads{}, []Node{readable(1, primary), readable(2, lags)}, nil, nil, 0},
		{"the primary if it may be", Reads{Primary: true}, []Node{readable(1, lags), readable(2, primary)}, nil, nil, 2},
		{"the primary last, also if it is here", Reads{Primary: true}, []Node{readable(1, primary), readable(2, at("far"))}, nil, nil, 2},
		{"no node without a port", Reads{}, []Node{readable(1, lags), readable(2, noPort), readable(3, at("far"))}, nil, nil, 3},
		{"no primary without a port", Reads{Primary: true}, []Node{readable(1, lags), readable(2, primary, noPort)}, nil, nil, 0},
	} {
		c.reads.LagMax = 2 * time.Second
		for turn := range uint64(4) {
			got, ok := c.reads.Choose(1, c.nodes, func(id cluster.NodeID) int { return c.sessions[id] }, c.tried, turn)
			if got != c.want || ok != (c.want != 0) {
				t.Errorf("%s, turn %d: %d, %t, want %d", c.name, turn, got, ok, c.want)
			}
		}
	}
	equal := []Node{readable(2), readable(3), readable(4)}
	for turn, want := range []cluster.NodeID{2, 3, 4, 2} {
		if got, _ := (Reads{LagMax: time.Second}).Choose(1, equal, func(cluster.NodeID) int { return 0 }, nil, uint64(turn)); got != want {
			t.Errorf("turn %d: %d, want %d", turn, got, want)
		}
	}
}

// TestChoiceIsTheBest: the chosen node may be read. No other readable node is nearer, or as near with fewer
// sessions. Clients that come one after the other are spread evenly, to within one session.
func TestChoiceIsTheBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Reads{LagMax: 2 * time.Second, Primary: rapid.Bool().Draw(t, "primary")}
		var nodes []Node
		sessions := map[cluster.NodeID]int{}
		for id := range cluster.NodeID(rapid.IntRange(0, 7).Draw(t, "nodes")) {
			nodes = append(nodes, readable(id+1, func(n *Node) {
				n.Role = rapid.SampledFrom([]Role{RoleReplica, RoleReplica, RoleReplica, RolePrimary, RolePromoting}).Draw(t, "role")
				n.LagSeconds = rapid.SampledFrom([]float64{0, 1, 3}).Draw(t, "lag")
				n.Leader = rapid.SampledFrom([]cluster.NodeID{9, 9, 9, 0}).Draw(t, "leader")
				n.Reachable = rapid.IntRange(0, 4).Draw(t, "reachable") > 0
				n.Site = rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "site")
				n.ReadOnly = rapid.SampledFrom([]string{":1", ":1", ":1", ""}).Draw(t, "port")
			}))
		}
		self := cluster.NodeID(rapid.IntRange(1, 8).Draw(t, "self"))
		site := ""
		for _, n := range nodes {
			if n.ID == self {
				site = n.Site
			}
		}
		load := func(id cluster.NodeID) int { return sessions[id] }
		for turn := range uint64(20) {
			got, ok := r.Choose(self, nodes, load, nil, turn)
			i := slices.IndexFunc(nodes, func(n Node) bool { return n.ID == got })
			if ok && (i < 0 || !r.May(nodes[i]) || nodes[i].ReadOnly == "") {
				t.Fatalf("chose %d", got)
			}
			for _, n := range nodes {
				switch {
				case !r.May(n) || n.ReadOnly == "":
				case !ok:
					t.Fatalf("chose nobody, and %d may be read", n.ID)
				case far(n, self, site) < far(nodes[i], self, site):
					t.Fatalf("chose %d, and %d is nearer", got, n.ID)
				case far(n, self, site) == far(nodes[i], self, site) && sessions[n.ID] < sessions[got]:
					t.Fatalf("chose %d with %d sessions, and %d has %d", got, sessions[got], n.ID, sessions[n.ID])
				}
			}
			if !ok {
				return
			}
			sessions[got]++
		}
	})
}

// TestLagOfAFrozenMysqld: the figures that a replica's mysqld gave last say less and less while it does not answer.
func TestLagOfAFrozenMysqld(t *testing.T) {
	for _, c := range []struct {
		role           Role
		lag, age, want float64
	}{
		{RoleReplica, 0, 0.5, 0}, {RoleReplica, 0, 4.5, 4.5}, {RoleReplica, 2, 1, 3}, {RolePrimary, 0, 4.5, 0},
	} {
		if got := (Node{Role: c.role, LagSeconds: c.lag, LagAge: c.age}).Lag(); got != c.want {
			t.Errorf("%s, lag %v s, %v s old: %v", c.role, c.lag, c.age, got)
		}
	}
}
