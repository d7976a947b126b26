package sim

import (
	"context"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/consensus"
	"github.com/quorate/quorate/internal/core"
	"github.com/quorate/quorate/internal/membership"
)

// status is what nodes tell each other.
type status struct {
	role               cluster.Role
	term               uint64
	applied, logLast   uint64
	lag                time.Duration
	lagBytes           int64
	logCommit, durable uint64
	logFirst           uint64
	logState           cluster.LogState
	// instance is its data directory's; noMysqld: it has none.
	instance string
	noMysqld bool
	// kept is the newest change of the cluster state that it has on its disk.
	kept uint64
	// stateVersion is that of the state whose members it follows.
	stateVersion uint64
	// joined are the nodes without a vote that were met over their new data directory.
	joined membership.Known
}

type peerReport struct {
	status
	at    time.Duration
	up    bool
	heard bool
}

// board holds what is known of this node and what its peers say of themselves.
type board struct {
	n      *node
	self   status
	leader cluster.NodeID
	// ledAt is when a leader was lost that was known, 0 = there was none.
	ledAt time.Duration
	// leaderAt is since when it knows the leader.
	leaderAt time.Duration
	peers    []peerReport // by id
	lag      consensus.LagTracker
	changed  signal
}

func (b *board) init(n *node) {
	b.n, b.peers = n, make([]peerReport, len(n.w.nodes)+1)
	b.self.role = cluster.RoleStarting
	if !n.runsMysqld() {
		b.self.role = cluster.RoleLogger
	}
}

func (b *board) wake() { b.changed.fire() }

func (b *board) setRole(r cluster.Role) {
	if b.self.role != r {
		b.self.role = r
		b.wake()
	}
}

func (b *board) setRaft(r consensus.RoleState) {
	if b.leader != 0 {
		b.ledAt = b.n.now()
	}
	if b.leader != r.Leader {
		b.leaderAt = b.n.now()
	}
	b.self.term, b.leader = r.Term, r.Leader
	b.wake()
}

func (b *board) peerUp(id cluster.NodeID, up bool) {
	b.peers[id].up = up
	b.wake()
}

func (b *board) received(from cluster.NodeID, s status) {
	p := &b.peers[from]
	matters := p.role != s.role || p.term != s.term
	if a := b.n.agent; a != nil {
		if err := a.known.Hear(s.joined); err != nil {
			b.n.log("members", "%v", err)
			return // whoever was heard lets this node purge
		}
	}
	p.status, p.at, p.heard = s, b.n.now(), true
	if matters {
		b.wake()
	}
}

// lives tells whether a node runs over the data directory that is known.
func (b *board) lives(id cluster.NodeID) bool { return b.live(b.peers[id]) }

func (b *board) live(p peerReport) bool { return p.up && p.heard && b.n.now()-p.at < peerLiveFor }

// forCore returns the peers as core wants them.
func (b *board) forCore(own status) core.Peers {
	var in core.Peers
	for _, m := range b.n.agent.members.state.Members {
		if p := b.peers[m.ID]; m.ID != b.n.id {
			in.Peers = append(in.Peers, forCore(m, p.status, b.live(p)))
		} else {
			in.Own = forCore(m, own, true)
		}
	}
	b.n.w.hold(&in)
	return in
}

func forCore(m cluster.Member, s status, live bool) core.Peer {
	return core.Peer{
		ID: m.ID, Name: m.Name, Kind: m.Kind, Weight: m.Weight, Live: live, LogBad: s.logState != cluster.LogOK,
		Role: s.role, Applied: s.applied, Lag: s.lag, LogLast: s.logLast,
	}
}

// primary returns the live peer that says that it is primary, of the highest
// term.
func (b *board) primary() (id cluster.NodeID, ok bool) {
	term := uint64(0)
	for i, p := range b.peers {
		if p.role == cluster.RolePrimary && b.live(p) && p.term > term {
			id, term = cluster.NodeID(i), p.term
		}
	}
	return id, id != 0
}

// runGossip sends this node's status to its peers, and the peers' to core.
func (a *agent) runGossip() {
	for {
		own := a.ownStatus()
		for _, peer := range a.w.nodes {
			if peer != a.n && a.board.peers[peer.id].up {
				a.w.net.send(a.n.id, peer.id, func() { a.w.gossip(a, peer, own) })
			}
		}
		in := a.board.forCore(own)
		a.mail.peers = &in
		a.coreWork.fire()
		a.life.await(gossipInterval, &a.board.changed)
		a.life.sleep(a.n.hiccup())
	}
}

func (a *agent) ownStatus() status {
	own := a.board.self
	own.logLast, own.logCommit = a.log.LastIndex(), a.group.Committed().Mark().Index
	own.logFirst, own.durable, own.logState = a.log.FirstIndex(), a.durable().Index, cluster.LogOK
	own.instance, own.noMysqld, own.kept = a.n.instance, !a.n.runsMysqld(), a.kept.Point().Index
	own.stateVersion = a.members.state.Version
	own.joined = a.known.Joined()
	if a.loop.driver.Full() {
		own.logState = cluster.LogFull
	}
	if own.role == cluster.RoleReplica && a.n.now() < a.group.VotesAt() {
		own.role = cluster.RoleStarting
	}
	if own.role == cluster.RolePrimary && !a.serving() {
		own.role = cluster.RoleDemoting
	}
	return own
}

func (w *World) gossip(from *agent, to *node, s status) {
	if a := to.agent; a != nil && (!w.membersChange || a.members.conns[from.n.id] == from) {
		a.life.run(func() { a.board.received(from.n.id, s) })
	}
}

// runWatch polls mysqld: for the status, and for what must not be.
func (a *agent) runWatch() {
	for n := 1; ; n++ {
		a.life.sleep(watchInterval)
		p, role := a.process, a.board.self.role
		if p == nil || !p.ready {
			continue
		}
		if _, err := a.sql(context.Background()); err != nil {
			continue
		}
		set := p.GTIDExecuted()
		a.life.sleep(a.n.hiccup())
		if role == cluster.RolePrimary || role == cluster.RoleReplica {
			if !a.group.Committed().Contains(set) {
				a.doubt(p.incarnation, "mysqld holds transactions that are not committed")
			}
		}
		l := a.board.lag.Executed(set, time.Unix(0, int64(a.n.now())))
		a.board.self.applied, a.board.self.lagBytes, a.board.self.lag = l.Applied, l.Bytes, time.Duration(l.Seconds*float64(time.Second))
		if _, err := a.sql(context.Background()); err != nil || p.dead {
			continue
		}
		switch role {
		case cluster.RolePrimary:
			a.pollPrimary(p)
		case cluster.RoleReplica:
			if io, applier, _ := p.ReplicaRunning(); n%guardEvery == 0 && a.board.self.role == role && (!io || !applier) {
				a.startReplica(p)
			}
		}
	}
}

func (a *agent) pollPrimary(p *mysqld) {
	on, clients := p.SemiSync()
	if !on {
		a.doubt(p.incarnation, "semi-sync was switched off")
	}
	if clients > 1 {
		a.doubt(p.incarnation, "a foreign semi-sync replica is attached")
	}
}
