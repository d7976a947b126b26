package member

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/sys/clock"
)

// spareAgain is how often a node whose log is damaged looks whether the others can do without it.
const spareAgain = 2 * time.Second

// checkLog reads what the start has not read of the log. If that is damaged, it returns the damage: the node has to
// start again, and heals its log then. Nobody has asked for what is damaged, so it waits until the others can do without
// this node.
func (m *Member) checkLog(ctx context.Context) error {
	for {
		damage := m.log.Check(ctx, m.cfg.Clock)
		corrupt, ok := errors.AsType[*seglog.CorruptError](damage)
		if !ok {
			return damage
		}
		m.cfg.Logger.Error("the log is damaged: this node starts again to heal it, once the others can do without it", "error", damage)
		m.cfg.Board.SetTrouble("damage", "its log is damaged: it starts again to heal it, once it is not the primary and writes go on without it ("+damage.Error()+")")
		for m.holds(corrupt.File) {
			if m.spared(ctx, corrupt.Index) {
				m.log.Doubt(corrupt.File)
				return damage
			}
			if clock.Sleep(ctx, m.cfg.Clock, spareAgain) != nil {
				return nil
			}
		}
		m.cfg.Board.SetTrouble("damage", "") // it was purged
	}
}

// holds tells whether the log still has a segment.
func (m *Member) holds(segment string) bool {
	return slices.ContainsFunc(m.log.Segments(), func(s seglog.SegmentInfo) bool { return s.Name == segment })
}

// spared tells whether another node has the entry, and the others can do without this node, also a little later. Each node
// waits for another time, so two nodes that ask at the same moment do not both go.
func (m *Member) spared(ctx context.Context, entry uint64) bool {
	look := func() bool {
		return canSpare(m.cfg.Self.ID, entry, m.cfg.Board.Own().Role, m.Raft.Role(), m.Sight(m.cfg.Board.Nodes()))
	}
	place := slices.IndexFunc(m.cfg.Board.State().Members, func(o cluster.Member) bool { return o.ID == m.cfg.Self.ID })
	return look() && clock.Sleep(ctx, m.cfg.Clock, time.Duration(place+1)*spareAgain) == nil && look()
}

// canSpare tells whether writes go on if this node stops, and whether it can heal an entry then: it does not lead, nor settle
// what it led, some other node does, and the others carry what they carry now without it. One of them has the entry.
func canSpare(self cluster.NodeID, entry uint64, role status.Role, r consensus.RoleState, s status.Sight) bool {
	if r.Leading || r.Leader == 0 || role == status.RolePrimary || role == status.RoleDemoting || role == status.RolePromoting {
		return false
	}
	nodes, healable := slices.Clone(s.Nodes), false
	for i := range nodes {
		n := &nodes[i]
		if n.ID == self {
			n.Reachable = false
		}
		healable = healable || n.Reachable && n.LogFirst > 0 && n.LogFirst <= entry
	}
	s.Nodes = nodes
	return healable && s.Quorum().Survives >= 0
}
