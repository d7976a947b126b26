package member

import (
	"context"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/sys/clock"
)

// spareAgain is how often a node whose log is damaged looks whether the others can do without it.
const spareAgain = 2 * time.Second

// checkLog reads what the start has not read of the log. If that is damaged, it returns the damage: the node has to
// start again, and heals its log then. Nobody has asked for what is damaged, so it waits until the others can do without
// this node.
func (m *Member) checkLog(ctx context.Context) error {
	damage := m.log.Check(ctx, m.cfg.Clock)
	if damage == nil {
		return nil
	}
	m.cfg.Logger.Error("the log is damaged: this node starts again to heal it, once it does not lead and all others that a majority needs are there", "error", damage)
	m.cfg.Board.SetTrouble("damage", "its log is damaged: it starts again to heal it, once it does not lead and a majority is there without it ("+damage.Error()+")")
	for {
		s := m.Raft.Committed().State()
		if canSpare(m.cfg.Self.ID, m.Raft.Role(), s.State.Voters(), s.Outgoing, m.cfg.Board.Lives) {
			return damage
		}
		if clock.Sleep(ctx, m.cfg.Clock, spareAgain) != nil {
			return nil
		}
	}
}

// canSpare tells whether the cluster goes on if this node stops: it does not lead, some other node does, and those that
// live are a majority without it.
func canSpare(self cluster.NodeID, r consensus.RoleState, voters, outgoing []cluster.NodeID, lives func(cluster.NodeID) bool) bool {
	return !r.Leading && r.Leader != 0 && cluster.Majority(voters, outgoing, func(id cluster.NodeID) bool { return id != self && lives(id) })
}
