package consensus

import (
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/quorate/quorate/internal/cluster"
)

// acks is what a leader may acknowledge of what is committed: under another
// durability policy than majority, or where a member requires its own ACK, that is
// less than all of it. What a member has on its disk is what it said to this
// leader, in this term: a new one knows nothing, and waits.
type acks struct {
	// state is the newest cluster state, whose policy holds; waits is its
	// AcksWait.
	state cluster.State
	waits bool
	// index is up to which ACKs were let go in this term.
	index uint64
	// clock counts ticks: it stands still while this node does.
	clock time.Duration
	heard map[cluster.NodeID]time.Duration
	on    map[cluster.NodeID]uint64
	watch cluster.AckWatch
}

func newAcks(s cluster.State) acks {
	a := acks{on: map[cluster.NodeID]uint64{}, heard: map[cluster.NodeID]time.Duration{}}
	a.setState(s)
	return a
}

// setState takes a newer cluster state.
func (a *acks) setState(s cluster.State) { a.state, a.waits = s, s.AcksWait() }

// heardOf notes that a member was heard.
func (a *acks) heardOf(id cluster.NodeID) { a.heard[id] = a.clock }

// endAcks ends what this leader knows: it does not lead, or not in that term.
func (g *Group) endAcks() {
	g.acks.index = 0
	clear(g.acks.heard)
	g.out.AckEvents = append(g.out.AckEvents, g.acks.watch.End(g.acks.state)...)
}

// ackSight is what this leader sees.
func (g *Group) ackSight() cluster.AckSight {
	a := &g.acks
	a.heardOf(g.cfg.Self)
	clear(a.on)
	g.rn.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) { a.on[cluster.NodeID(id)] = p.Match })
	for _, m := range a.state.Members {
		if m.Rebuilding() {
			delete(a.on, m.ID) // what it said, it may have said of the data that it gives up
		}
	}
	return cluster.AckSight{
		Now: a.clock, Commit: g.committed.Mark().Index, On: a.on, Heard: a.heard,
		Silence: time.Duration(g.cfg.ElectionTicks) * g.cfg.Tick,
	}
}

// tickAcks looks which members were away too long, and which are back.
func (g *Group) tickAcks() {
	g.acks.clock += g.cfg.Tick
	if g.role.Leading {
		if !g.acks.waits && len(g.acks.watch.Dropped()) == 0 {
			return
		}
		g.out.AckEvents = append(g.out.AckEvents, g.acks.watch.Look(g.acks.state, g.ackSight())...)
	}
}

// acknowledge returns up to which index ACKs may go, if that is further than it
// was; else 0. It never goes back in a term, whatever the policy becomes.
func (g *Group) acknowledge() uint64 {
	if !g.role.Leading {
		return 0
	}
	index := g.committed.Mark().Index
	if index == g.acks.index {
		return 0 // there is nothing more, whatever the members have
	}
	if g.acks.waits {
		sight := g.ackSight()
		index = g.acks.state.AckIndex(sight.Commit, sight.On, g.acks.watch.Dropped())
	}
	if index <= g.acks.index {
		return 0
	}
	g.acks.index = index
	return index
}

// Acks says whom ACKs wait for; nil: for nobody, this node does not lead or a
// commit is all that they need.
func (g *Group) Acks() *cluster.AckStatus {
	if !g.role.Leading || !g.acks.waits {
		return nil
	}
	st := g.acks.watch.Status(g.acks.state, g.ackSight(), g.acks.index)
	return &st
}
