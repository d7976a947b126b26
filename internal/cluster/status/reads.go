package status

import (
	"fmt"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config/units"
)

// Reads says to which nodes clients that only read are sent.
type Reads struct {
	// LagMax is how old the data of a replica may be.
	LagMax time.Duration
	// Primary: the primary serves where no replica may.
	Primary bool
}

// lagStaleSeconds is the age of the figures from which on a lag that is shown grows with it.
const lagStaleSeconds = 1

// Lag is the lag that is shown, in seconds. It is LagSeconds, and grows while mysqld does not answer.
func (n Node) Lag() float64 {
	if n.Role == RoleReplica && n.LagAge >= lagStaleSeconds {
		return n.LagSeconds + n.LagAge
	}
	return n.LagSeconds
}

// Unreadable says why a replica may not serve reads that must not be older than lagMax; "" = it may.
func (n Node) Unreadable(lagMax time.Duration) string {
	lag := n.DataAge()
	switch {
	case !n.Reachable:
		return "it is not heard of"
	case n.Role != RoleReplica:
		return fmt.Sprintf("it is no replica, but %s", n.Role)
	case n.Mysqld != MysqldRunning:
		return "its mysqld does not run"
	case n.Leader == 0:
		return "it has no leader, so nobody knows how old its data are"
	case n.LagUnknown:
		return "its lag is not known"
	case n.ApplierStopped != "":
		return "it does not apply: " + n.ApplierStopped
	case lag > lagMax:
		return fmt.Sprintf("its data may be %s old, and %s are allowed", units.Duration(lag.Round(100*time.Millisecond)), units.Duration(lagMax))
	}
	return ""
}

// DataAge is how old the data of a replica may be. The age of its lag is the age of its status, plus the age of its answer
// from mysqld at that time.
func (n Node) DataAge() time.Duration {
	return seconds(n.LagSeconds) + seconds(n.LagAge) + time.Duration(n.AgeMs)*time.Millisecond
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// May tells whether clients may read from a node.
func (r Reads) May(n Node) bool {
	if n.Role == RolePrimary {
		return r.Primary && n.Reachable
	}
	return n.Unreadable(r.LagMax) == ""
}

// Choose returns the node from which a client of self reads: the nearest node that may be read, and among
// equally near nodes the one with the fewest sessions. turn chooses among equals. Nodes in tried are no
// candidates, nor are nodes without a port for reads: these are kept free of reads.
func (r Reads) Choose(self cluster.NodeID, nodes []Node, sessions func(cluster.NodeID) int, tried []cluster.NodeID, turn uint64) (cluster.NodeID, bool) {
	own := slices.IndexFunc(nodes, func(n Node) bool { return n.ID == self })
	site := ""
	if own >= 0 {
		site = nodes[own].Site
	}
	type rank struct{ far, sessions int }
	var best rank
	var equals []cluster.NodeID
	for _, n := range nodes {
		if !r.May(n) || slices.Contains(tried, n.ID) || n.ReadOnly == "" {
			continue
		}
		now := rank{far(n, self, site), sessions(n.ID)}
		if len(equals) == 0 || now.far < best.far || now.far == best.far && now.sessions < best.sessions {
			best, equals = now, equals[:0]
		}
		if now == best {
			equals = append(equals, n.ID)
		}
	}
	if len(equals) == 0 {
		return 0, false
	}
	return equals[turn%uint64(len(equals))], true
}

// far ranks how far a node is: this node, its site, another site, and the primary last.
func far(n Node, self cluster.NodeID, site string) int {
	switch {
	case n.Role == RolePrimary:
		return 3
	case n.ID == self:
		return 0
	case n.Site == site:
		return 1
	}
	return 2
}
