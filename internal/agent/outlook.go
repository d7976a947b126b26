package agent

import (
	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/role"
)

// nodes returns the status of every member; this node's own is up to date.
func (a *Agent) nodes() []status.Node { return a.board.NodesWith(a.ownStatus()) }

// primaryName returns the name of the node that is open for writes as far as this one
// knows; "" = there is none.
func (a *Agent) primaryName() string {
	if t, ok := (routeBackend{a}).primary(); ok {
		return a.board.Name(t.Node)
	}
	return ""
}

// serves tells whether this node is the primary, its writes are open, and it is not about to hand over.
func (a *Agent) serves() bool {
	return a.board.Own().Role == status.RolePrimary && a.Slot.Serving() && !a.Orders.MovesAway()
}

// sight is what this node sees of the cluster; own is its whole status.
func (a *Agent) sight(own status.Node) status.Sight {
	return a.Sight(a.board.NodesWith(own))
}

// outlook says how many failures the cluster survives, and how long a failover would take. A primary
// tells all nodes: its own view decides, not the others'.
func (a *Agent) outlook(s status.Sight) (*status.Quorum, *status.Failover) {
	role := a.board.Own().Role
	if _, member := s.State.MemberByID(a.self.ID); !member || role == status.RoleRemoved || role == status.RoleJoining {
		return nil, nil // it is not yet, or no longer, a member: the members that it knows are old
	}
	quorum := s.Quorum()
	if role == status.RoleForming {
		quorum.Start = nil // a majority would not do: all must start
	}
	if s.Primary == "" {
		return &quorum, nil
	}
	return &quorum, new(a.failover(s))
}

// failover says how long a failover would take now. It chooses the next primary as a leader does that
// hands over (role.Choose), among the nodes that could open.
func (a *Agent) failover(s status.Sight) status.Failover {
	if s.State.Maintenance != nil {
		return status.Failover{From: s.Primary, Reason: "none, maintenance is on"}
	}
	var from status.Node
	for _, n := range s.Nodes {
		if n.Name == s.Primary {
			from = n
		}
	}
	var peers, able []role.Peer
	for _, n := range s.Nodes {
		if n.Name != s.Primary {
			m := cluster.Member{ID: n.ID, Name: n.Name, Kind: n.Kind, Weight: n.Weight}
			peers = append(peers, board.RolePeer(m, n, n.Reachable, from))
			if s.NoLease(n.Name) == "" {
				able = append(able, peers[len(peers)-1])
			}
		}
	}
	choice := role.Choose(0, able, "")
	if choice.Refused != "" {
		choice = role.Choose(0, peers, "") // the estimate says why that node cannot open
	}
	if choice.Refused != "" {
		return status.Failover{From: s.Primary, Reason: choice.Refused}
	}
	return status.EstimateFailover(s, choice.To.Name, a.failoverTimes())
}

// failoverTimes are the times of a failover beside the backlog. A dead process is noticed by a
// refused dial, and the node that notices it campaigns within a heartbeat or two. A silent host
// costs an election timeout, which raft draws between the timeout and its double.
func (a *Agent) failoverTimes() status.FailoverTimes {
	return status.FailoverTimes{
		Process: 2 * a.cfg.Raft.Heartbeat, Host: a.cfg.Raft.ElectionTimeout * 3 / 2, Open: primary.OpenTime,
	}
}
