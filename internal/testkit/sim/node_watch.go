package sim

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
)

// newBoard is the status table of an agent that knows nothing so far.
func (a *agent) newBoard() *board.Board {
	s := a.n.status()
	s.StateVersion, s.StateFormat, s.Reachable = new(uint64), cluster.StateFormat, true
	return board.New(board.Config{Self: s, Known: a.known, Now: a.n.clock, Woken: a.boardChanged.fire})
}

// status is what a node says of itself whose agent has just started.
func (n *node) status() status.Node {
	s := status.Node{
		ID: n.id, Name: n.member.Name, Kind: n.member.Kind, Weight: n.member.Weight, Instance: n.instance(),
		Role: status.RoleStarting, Mysqld: status.MysqldStopped,
	}
	if !n.runsMysqld() {
		s.Role, s.Mysqld = status.RoleLogger, status.MysqldNone
	}
	return s
}

// clock is the machine's, as production code reads it.
func (n *node) clock() time.Time { return time.Unix(0, int64(n.now())) }

// runGossip sends this node's status to its peers, and the peers' to the role machine.
func (a *agent) runGossip() {
	for {
		own := a.ownStatus().Bounded()
		for _, peer := range a.w.nodes {
			if peer != a.n && a.up[peer.id] {
				a.w.net.send(a.n.id, peer.id, func() { a.w.gossip(a, peer, own) })
			}
		}
		in := a.board.ForRole(own)
		a.w.hold(&in)
		a.inbox.Peers(in)
		a.life.await(board.GossipInterval, &a.boardChanged)
		a.life.sleep(a.n.hiccup())
	}
}

// ownStatus completes the board's status with what others own.
func (a *agent) ownStatus() status.Node {
	s := a.board.Own()
	s.Joined, s.Empty = a.known.Joined(), a.known.Empty()
	s.LogFirst, s.LogLast, s.LogCommit = a.log.FirstIndex(), a.log.LastIndex(), a.group.Committed().Mark().Index
	s.LogState = cmp.Or(s.LogState, status.LogOK)
	s.FedBy = a.learner.FedBy()
	s.DurableMark, s.StateKept = a.durable().Index, a.kept.Point().Index
	return board.Shown(s, a.group.VotesAt()-a.n.now(), a.slot.Serving())
}

func (w *World) gossip(from *agent, to *node, s status.Node) {
	if a := to.agent; a != nil && (!w.membersChange || a.members.conns[from.n.id] == from) {
		a.life.run(func() { a.hear(s) })
	}
}

// hear takes the status that a peer sent.
func (a *agent) hear(s status.Node) {
	if err := a.board.Received(s.ID, s); err != nil {
		a.n.log("members", "%v", err)
	}
}

// runWatch polls mysqld: for the status, and for what must not be.
func (a *agent) runWatch() {
	for n := 1; ; n++ {
		a.life.sleep(watchInterval)
		p, role := a.process, a.board.Own().Role
		if p == nil || !p.ready {
			continue
		}
		server := localServer{a, p}
		if _, err := server.sql(context.Background()); err != nil {
			continue
		}
		set := p.GTIDExecuted()
		a.life.sleep(a.n.hiccup())
		a.doubt(p, primary.WatchExecuted(role, set, a.group.Committed().Contains))
		l := a.lag.Executed(set, a.n.clock())
		a.applier.Applied(role, l, a.n.clock())
		a.board.Update(func(s *status.Node) { a.applier.Show(s, l) })
		if _, err := server.sql(context.Background()); err != nil || p.dead {
			continue
		}
		switch role {
		case status.RolePrimary:
			a.pollPrimary(p)
		case status.RoleReplica:
			a.pollReplica(p, n%primary.GuardEvery == 0)
		}
	}
}

func (a *agent) pollPrimary(p *mysqld) {
	a.board.Update(func(s *status.Node) { s.ApplierStopped = "" })
	on, clients := p.SemiSync()
	a.doubt(p, primary.WatchPrimary(primary.SemiSync{On: on, Clients: clients}, nil))
}

func (a *agent) doubt(p *mysqld, reasons []string) {
	if len(reasons) > 0 {
		a.inbox.Doubt(p.incarnation, strings.Join(reasons, "; "))
	}
}

// pollReplica restarts replication that has stopped, and says why it did.
func (a *agent) pollReplica(p *mysqld, guard bool) {
	replica, err := localServer{a, p}.ReplicaStatus(context.Background())
	if err != nil {
		return
	}
	stopped := a.applier.Stopped(replica, "")
	a.board.Update(func(s *status.Node) { s.ApplierStopped = stopped })
	if guard && a.board.Own().Role == status.RoleReplica && replica.Stopped() {
		a.startReplica(p)
	}
}
