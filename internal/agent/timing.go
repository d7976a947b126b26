package agent

import (
	"strings"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/role"
)

// judgeTimings says which nodes' settings do not fit this node's. If this node could get no lease as
// the leader, it tells the role machine not to lead.
func (a *Agent) judgeTimings(own status.Node, in *role.Peers) {
	nodes := a.board.Nodes()
	var troubles []string
	for _, n := range nodes {
		if text := status.TimingTrouble(own, n); n.ID != own.ID && n.Reachable && text != "" {
			troubles = append(troubles, text)
		}
	}
	text := strings.Join(troubles, "; ")
	if a.board.SetTrouble("timings", text) && text != "" {
		a.logger.Warn("the nodes' timings do not fit together", "reason", text)
	}
	in.NoLease = status.NoLease(a.board.Members(), nodes)
	if in.NoLease != "" && !a.Slot.Serving() {
		a.Slot.Doubt(a.Slot.Served(), in.NoLease)
	}
}
