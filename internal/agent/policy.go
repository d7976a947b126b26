package agent

import (
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/sys/metrics"
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
	if st := a.Raft.Acks(); st != nil {
		s.AcksWait, s.AcksDropped = st.Waiting, st.Dropped
	}
}

// acksMetrics are about the ACKs of a leader; on other nodes all are 0.
func (p provider) acksMetrics() []metrics.Sample {
	st := p.Raft.Acks()
	if st == nil {
		st = &cluster.AckStatus{}
	}
	waits := 0.0
	for _, w := range st.Waiting {
		waits = max(waits, w.Seconds)
	}
	return []metrics.Sample{
		metrics.Of("quorate_ack_wait_seconds", waits),
		metrics.Of("quorate_ack_waiting_for", len(st.Waiting)),
		metrics.Of("quorate_require_ack_dropped", len(st.Dropped)),
		metrics.Of("quorate_require_ack_drops_total", p.ackDrops.Load()),
	}
}
