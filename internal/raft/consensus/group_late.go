package consensus

import (
	"cmp"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/quorate/quorate/internal/cluster"
)

// Who stands for election first. Raft draws its timeouts by itself and knows no
// weights; the winner hands over to a better node before it opens (package
// the role machine). That is an election more, which this saves where it costs nothing.

// inNeed tells whether a member leads in need only.
func inNeed(m cluster.Member) bool { return m.Kind == cluster.KindLogger || m.Weight == 0 }

// standsBefore compares two voters by who should stand for election first: those
// who lead in need come last, then the heavier is first.
func standsBefore(a, b cluster.Member) int {
	switch aLast, bLast := inNeed(a), inNeed(b); {
	case aLast && !bLast:
		return 1
	case bLast && !aLast:
		return -1
	}
	return cmp.Or(cmp.Compare(b.Weight, a.Weight), cmp.Compare(a.ID, b.ID))
}

// rank counts the voters that should stand before this node, without one that is
// gone.
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

// tickRaft gives raft its tick, unless this node stands back: then raft misses half
// an election timeout of them, after a whole one of silence. A timeout is so only
// lengthened, and the promise not to vote against a live leader, which counts the
// same ticks, has ended before (I5). Half a timeout lets seven of eight full nodes
// stand first, and costs no more where only this node can win.
//
// Within the vote delay, which may be longer than this node's own timeout, raft stops one
// tick short of it: who stands votes for itself.
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

// heard ends the silence, with what makes raft begin its timeout anew.
func (g *Group) heard(m *pb.Message) {
	switch m.GetType() {
	case pb.MsgApp, pb.MsgHeartbeat, pb.MsgSnap:
		if m.GetTerm() >= g.role.Term {
			g.silence = 0
		}
	}
}
