package agent

import (
	"context"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/role"
)

// promiseRetry is the pause between two tries to write it.
const promiseRetry = 10 * time.Second

// runPromise forgets the former promises once they are over. It began after the time from which
// consensus counts them. If the disk takes nothing it tries again: the longer promise is the safe
// one.
func (a *Agent) runPromise(ctx context.Context) error {
	own := a.cfg.Raft.ElectionTimeout
	if a.promised == own && a.promiseNoted {
		return nil
	}
	for wait := a.promised; ; wait = promiseRetry {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		err := a.data.WritePromise(own)
		if err == nil {
			return nil
		}
		a.logger.Warn("note what this node promises: it is tried again", "error", err)
	}
}

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
		a.logger.Warn("the nodes' timings cannot live together", "reason", text)
	}
	in.NoLease = status.NoLease(a.board.Members(), nodes)
	if in.NoLease != "" && !a.slot.Serving() {
		a.slot.Doubt(a.slot.Served(), in.NoLease)
	}
}
