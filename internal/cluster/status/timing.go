package status

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/internal/cluster"
)

// TimingTrouble says why the settings of a node and of another voter do not fit together, whichever of them
// leads; "" = they fit, or are not known.
func TimingTrouble(own, other Node) string {
	switch {
	case own.ElectionTimeout == 0 || other.ElectionTimeout == 0 || own.Kind == cluster.KindLearner || other.Kind == cluster.KindLearner:
		return ""
	case cluster.ElectionHeartbeatsMin*own.Heartbeat > other.ElectionTimeout:
		return fmt.Sprintf("raft.heartbeat %v is too long for node %s, whose raft.election_timeout is %v: at most a fifth of that",
			own.Heartbeat, other.Name, other.ElectionTimeout)
	case cluster.ElectionHeartbeatsMin*other.Heartbeat > own.ElectionTimeout:
		return fmt.Sprintf("raft.election_timeout %v is too short for node %s, whose raft.heartbeat is %v: at least five times that",
			own.ElectionTimeout, other.Name, other.Heartbeat)
	}
	return ""
}

// NoLease says why a node could get no lease as the leader, even with a majority of the voters: nodes with an
// older quorate promise none. "" = it could.
func NoLease(members []cluster.Member, nodes []Node) string {
	voters, promise := 0, 0
	var silent []string
	for _, m := range members {
		if !m.Votes() {
			continue
		}
		voters++
		i := slices.IndexFunc(nodes, func(n Node) bool { return n.ID == m.ID })
		switch {
		case i < 0 || !nodes[i].Reachable:
		case nodes[i].ElectionTimeout > 0:
			promise++
		default:
			silent = append(silent, fmt.Sprintf("%s runs quorate %s", m.Name, nodes[i].AgentVersion))
		}
	}
	if len(silent) == 0 || promise > voters/2 {
		return ""
	}
	return strings.Join(silent, ", ") + ", which promises no lease: upgrade it"
}
