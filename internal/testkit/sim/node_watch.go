package sim

import (
	"context"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/cluster/status"
)

// status is the status of a node whose agent has just started.
func (n *node) status() status.Node {
	s := status.Node{
		ID: n.id, Name: n.member.Name, Kind: n.member.Kind, Weight: n.member.Weight, Instance: n.instance(),
		Role: status.RoleStarting, Mysqld: status.MysqldStopped,
		Heartbeat: ticksPerHeartbeat * n.timing.tick, ElectionTimeout: n.timing.election,
	}
	if !n.runsMysqld() {
		s.Role, s.Mysqld = status.RoleLogger, status.MysqldNone
	}
	return s
}

// runGossip sends this node's status to the peers, and gives the peers' statuses to the role machine.
func (a *agent) runGossip() {
	send := func(own status.Node) error {
		for _, peer := range a.w.nodes {
			if peer != a.n && a.up[peer.id] {
				a.w.net.send(a.n.id, peer.id, func() { a.w.gossip(a, peer, own) })
			}
		}
		return nil
	}
	_ = a.Gossip(context.Background(), late{a.life}, a.ownStatus, send)
}

// ownStatus completes the board's status with what other parts know.
func (a *agent) ownStatus() status.Node {
	s := a.board.Own()
	s.Joined, s.Empty = a.known.Joined(), a.known.Empty()
	a.Complete(&s)
	if a.n.older && a.w.healed == nil {
		s.Heartbeat, s.ElectionTimeout = 0, 0
	}
	return board.Shown(s, a.Raft.VotesIn(), a.Slot.Serving())
}

func (w *World) gossip(from *agent, to *node, s status.Node) {
	if a := to.agent; a != nil && (!w.membersChange || from.conns[to.id] == a) {
		a.life.run(func() { a.hear(s) })
	}
}

// hear takes the status that a peer sent.
func (a *agent) hear(s status.Node) {
	if err := a.board.Received(s.ID, s); err != nil {
		a.n.log("members", "%v", err)
	}
}
