package consensus

import (
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/quorate/quorate/internal/cluster"
)

// acks knows which committed entries a leader may acknowledge. With another durability policy than majority, or
// where a member requires its own ACK, these are not all. What counts is what each member has on its disk, as
// it has told this leader in this term. A new leader knows nothing of that yet, and waits.
type acks struct {
	// state is the newest cluster state, whose policy is in force. waits is state.AcksWait().
	state cluster.State
	waits bool
	// index is the index up to which ACKs were allowed in this term.
	index uint64
	// clock counts ticks, so it stands still when this node does.
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

// endAcks forgets what this leader knows, because it does not lead any more, or not in that term.
func (g *Group) endAcks() {
	g.acks.index = 0
	clear(g.acks.heard)
	g.out.AckEvents = append(g.out.AckEvents, g.acks.watch.End(g.acks.state)...)
}

// ackSight returns what this leader knows of all members.
func (g *Group) ackSight() cluster.AckSight {
	a := &g.acks
	a.heardOf(g.cfg.Self)
	clear(a.on)
	g.rn.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) { a.on[cluster.NodeID(id)] = p.Match })
	for _, m := range a.state.Members {
		if m.Rebuilding() {
			// It may have said that of the data that it gives up.
			delete(a.on, m.ID)
		}
	}
	return cluster.AckSight{
		Now: a.clock, Commit: g.committed.Mark().Index, On: a.on, Heard: a.heard,
		Silence: time.Duration(g.cfg.ElectionTicks) * g.cfg.Tick,
	}
}

// tickAcks looks which members were away for too long, and which are back.
func (g *Group) tickAcks() {
	g.acks.clock += g.cfg.Tick
	if g.role.Leading {
		if !g.acks.waits && len(g.acks.watch.Dropped()) == 0 {
			return
		}
		g.out.AckEvents = append(g.out.AckEvents, g.acks.watch.Look(g.acks.state, g.ackSight())...)
	}
}

// acknowledge returns the index up to which ACKs may be sent, if that is further than before; else 0. It never
// goes back in a term, even if the policy changes.
func (g *Group) acknowledge() uint64 {
	if !g.role.Leading {
		return 0
	}
	index := g.committed.Mark().Index
	if index == g.acks.index {
		// Nothing more is committed, so the members' disks do not matter.
		return 0
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

// Acks says which members ACKs wait for; nil = for none: this node does not lead, or ACKs need only the commit.
func (g *Group) Acks() *cluster.AckStatus {
	if !g.role.Leading || !g.acks.waits {
		return nil
	}
	st := g.acks.watch.Status(g.acks.state, g.ackSight(), g.acks.index)
	return &st
}
