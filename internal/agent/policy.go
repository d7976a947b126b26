package agent

import (
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/api"
)

// onAckEvent reports that a node's require-ack is dropped, or in force again: in the agent's log, in
// the audit log, in every status, and as a metric.
func (a *Agent) onAckEvent(e cluster.AckEvent) {
	result := "in force"
	if e.Dropped {
		result = "dropped"
		a.ackDrops.Add(1)
		a.logger.Error(e.Text, "node", e.Node)
	} else {
		a.logger.Warn(e.Text, "node", e.Node)
	}
	a.records.Note(e.Text, result)
	a.board.Wake() // peers get the status now
}

// acksStatus completes the node's own status.
func (a *Agent) acksStatus(s *status.Node) {
	if st := a.node.Acks(); st != nil {
		s.AcksWait, s.AcksDropped = st.Waiting, st.Dropped
	}
}

// acksMetrics are a leader's; on other nodes all are 0.
func (p provider) acksMetrics() []api.Metric {
	st := p.node.Acks()
	if st == nil {
		st = &cluster.AckStatus{}
	}
	waits := 0.0
	for _, w := range st.Waiting {
		waits = max(waits, w.Seconds)
	}
	return []api.Metric{
		{Name: "quorate_ack_wait_seconds", Help: "How long the slowest node that ACKs wait for now has not had everything, on the leader.", Value: waits},
		{Name: "quorate_ack_waiting_for", Help: "Nodes that ACKs wait for now beside a majority, on the leader.", Value: float64(len(st.Waiting))},
		{Name: "quorate_require_ack_dropped", Help: "Nodes whose require-ack is dropped now, on the leader.", Value: float64(len(st.Dropped))},
		{Name: "quorate_require_ack_drops_total", Help: "How often this node as the leader dropped a require-ack.", Counter: true, Value: float64(p.ackDrops.Load())},
	}
}
