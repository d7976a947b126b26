package consensus

import (
	"cmp"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/cluster"
)

// Who stands for election first. Raft draws its timeouts by itself and knows no weights. If the winner is not
// the best node, it hands over to a better one before it opens (package role). That costs one more election.
// The code below saves it where that costs nothing.

// inNeed tells whether a member leads only if no other node can.
func inNeed(m cluster.Member) bool { return m.Kind == cluster.KindLogger || m.Weight == 0 }

// standsBefore compares two voters by which should stand for election first. Nodes that lead only in need come
// last, and then the heavier node comes first.
func standsBefore(a, b cluster.Member) int {
	switch aLast, bLast := inNeed(a), inNeed(b); {
	case aLast && !bLast:
		return 1
	case bLast && !aLast:
		return -1
	}
	return cmp.Or(cmp.Compare(b.Weight, a.Weight), cmp.Compare(a.ID, b.ID))
}

// rank counts the voters that should stand before this node. The node that is gone does not count.
func (g *Group) rank(gone cluster.NodeID) (rank int) {
	self := g.self()
	for _, m := range g.cfg.Members {
		if m.ID != gone && m.ID != self.ID && m.Kind != cluster.KindLearner && standsBefore(m, self) < 0 {
			rank++
		}
	}
	return rank
}

func (g *Group) self() cluster.Member {
	for _, m := range g.cfg.Members {
		if m.ID == g.cfg.Self {
			return m
		}
	}
	return cluster.Member{ID: g.cfg.Self}
}

// standsBack tells whether this node leaves elections to others for a while.
func (g *Group) standsBack() bool {
	if !inNeed(g.self()) {
		return false
	}
	for _, m := range g.cfg.Members {
		if m.Kind != cluster.KindLearner && !inNeed(m) {
			return true
		}
	}
	return false
}

// tickRaft gives raft its tick, unless this node stands back. A node that stands back lets an election timeout
// of silence pass, and then withholds half an election timeout of ticks from raft. That only lengthens the
// timeout. The promise not to vote against a live leader counts the same ticks, and has ended before (I5). Half
// a timeout lets seven of eight full nodes stand first, and costs no more where only this node can win.
//
// During the vote delay, which may be longer than this node's own timeout, raft stops one tick before the
// timeout: a node that stands for election votes for itself.
func (g *Group) tickRaft() {
	g.forgetSilentLeader()
	from := g.cfg.ElectionTicks
	switch {
	case g.role.Leading:
		g.silence = 0
	case g.silence >= from-1 && g.now < g.voteAfter:
		return
	case g.silence >= from && g.silence < from+from/2 && g.standsBack():
		g.silence++
		return
	default:
		g.silence++
	}
	g.rn.Tick()
}

// heard ends the silence when a message comes with which raft restarts its timeout.
func (g *Group) heard(m *pb.Message) {
	switch m.GetType() {
	case pb.MsgApp, pb.MsgHeartbeat, pb.MsgSnap:
		if m.GetTerm() >= g.role.Term {
			g.silence = 0
		}
	}
}
