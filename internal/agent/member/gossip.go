package member

import (
	"context"
	"strings"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/role"
	"github.com/quorate/quorate/internal/sys/clock"
)

// Gossip sends this node's status to the peers, and tells the role machine about the peers, until ctx ends: see
// board.Board.Gossip.
func (m *Member) Gossip(ctx context.Context, c clock.Clock, own func() status.Node, send func(status.Node) error) error {
	return m.cfg.Board.Gossip(ctx, c, own, send, func(own status.Node, in role.Peers) {
		m.checkTimings(own, &in)
		m.Inbox.Peers(in)
	})
}

// checkTimings says which nodes' settings do not fit this node's. If this node could get no lease as
// the leader, it tells the role machine not to lead.
func (m *Member) checkTimings(own status.Node, in *role.Peers) {
	table := m.cfg.Board
	nodes := table.Nodes()
	var troubles []string
	for _, n := range nodes {
		if text := status.TimingTrouble(own, n); n.ID != own.ID && n.Reachable && text != "" {
			troubles = append(troubles, text)
		}
	}
	text := strings.Join(troubles, "; ")
	if table.SetTrouble("timings", text) && text != "" {
		m.cfg.Logger.Warn("the nodes' timings do not fit together", "reason", text)
	}
	in.NoLease = status.NoLease(table.Members(), nodes)
	if in.NoLease != "" && !m.Slot.Serving() {
		m.Slot.Doubt(m.Slot.Served(), in.NoLease)
	}
}

// CompleteHealing adds to a status the state of the log that is being healed, and what the node's mysqld holds
// durably. Without that the others would believe that the node needs the whole log.
func CompleteHealing(s *status.Node, log *seglog.Log, durable replay.Mark) {
	s.LogState, s.LogFirst, s.LogLast, s.LogCommit = status.LogRepairing, log.FirstIndex(), log.LastIndex(), log.HardState().Commit
	s.DurableMark = durable.Index
}
