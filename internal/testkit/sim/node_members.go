package sim

import (
	"context"
	"errors"
	"time"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/agent/quorumloss"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/raft/transport"
)

// clusterName is the cluster's name in the nodes' identities.
const clusterName = "sim"

// identity returns what the node says about itself to a peer. A node with an empty data directory names no
// instance.
func (n *node) identity() transport.Identity {
	id := transport.Identity{ClusterName: clusterName, Node: n.id, NodeName: n.member.Name}
	if n.joiner == nil || n.joiner.knocks == nil { // else the node introduces itself
		id.Instance = n.home.Instance()
	}
	return id
}

// host is the part of a process that all lives of a node have in common: the peers that it talks to, and how it
// leaves.
type host struct {
	n    *node
	w    *World
	life *life

	known     *membership.Directories
	board     *board.Board
	door      *transport.Door
	stance    *quorumloss.Stance
	departing *membership.Departing
	kept      datadir.State // cluster.json
	mark      datadir.Mark
	// rejecting: the process is finding out what a rejection by this peer means.
	rejecting map[cluster.NodeID]bool
}

// newHost reads what every process needs. The process begins with the cluster state given.
func (n *node) newHost(state cluster.State) (p *host, err error) {
	if n.timing == (timing{}) {
		n.retime()
	}
	p = &host{n: n, w: n.w, life: &life{n: n}, rejecting: map[cluster.NodeID]bool{}}
	p.known = membership.New(membership.Config{
		Initial: cluster.State{Members: n.w.members()[:n.w.initialNodes]}.Voters(),
		Self:    n.id, Name: n.member.Name, Store: n.home, Now: n.now, Lives: func(id cluster.NodeID) bool { return p.board.Lives(id) },
	})
	s := n.status()
	s.StateVersion, s.StateFormat, s.Reachable = new(uint64), cluster.StateFormat, true
	p.board = board.New(board.Config{Self: s, State: state, Known: p.known, Now: n.clock})
	p.door = &transport.Door{Self: n.identity(), Checker: knownPeers{p.known}, Peer: func(id cluster.NodeID) (transport.Peer, bool) {
		m, ok := cluster.State{Members: p.board.Members()}.MemberByID(id)
		return transport.Peer{ID: m.ID, Name: m.Name, Addr: m.Peer}, ok && id != n.id
	}}
	p.stance = quorumloss.New(quorumloss.Config{
		Node: formerMember{p}, Board: p.board, Dir: refusals{n}, ElectionTimeout: n.timing.election, Clock: p.life, Logger: n.logger("recovery"),
	})
	p.departing = leaver{host: p, end: func() {}}.departing()
	if n.home.Has(datadir.IdentityFile) { // else the directory belongs to nobody yet
		var pins, met datadir.Instances
		pins, met, err = n.home.Known()
		p.known.Load(pins, met)
	}
	return p, errors.Join(err, p.stance.Load(), p.mark.Load(n.home.Dir))
}

// followed is the agent's way to the other members. It implements member.Peers.
type followed struct{ *agent }

// SetPeers implements member.Peers.
func (f followed) SetPeers(former transport.Former) {
	f.door.SetFormer(former)
	for _, peer := range f.w.nodes {
		if peer != f.n && !dials(f.host, peer) {
			f.hangup(peer.id)
			delete(f.conns, peer.id)
			delete(f.up, peer.id)
		}
	}
}

// Hangup implements member.Peers.
func (f followed) Hangup(id cluster.NodeID) bool { return f.hangup(id) }

// AskState implements member.Peers.
func (f followed) AskState(ctx context.Context, of cluster.NodeID) (cluster.StatePoint, error) {
	return callAgent(ctx, f.life, f.known, f.w.node(of), func(a *agent) (cluster.StatePoint, error) { return a.kept.Point(), nil })
}

// Change implements member.Peers.
func (f followed) Change(ctx context.Context, c cluster.Change) error {
	if f.w.operator == nil {
		return errors.New("the members are not changed so far")
	}
	c.ID, c.By = f.n.member.Name+f.w.sched.now.String(), "quorate on "+f.n.member.Name
	f.w.operator.asked++
	ctx, cancel := f.life.WithTimeout(ctx, callTimeout)
	defer cancel()
	return f.w.changeMembers(ctx, f.agent, c, func() {
		if c.Membership.Op == cluster.OpRebuild {
			f.w.reseeded(f.agent, c.Membership)
		}
	})
}

// AsSelf returns this node as package membership sees it.
func (p *host) AsSelf() membership.Self {
	return membership.SelfOf(p.n.member, p.n.home, p.board.State())
}

// knownPeers checks callers by their data directories.
type knownPeers struct{ *membership.Directories }

// CheckPeer implements transport.Checker.
func (k knownPeers) CheckPeer(id transport.Identity) error { return k.Check(id) }

// CheckCaller implements transport.CallChecker.
func (k knownPeers) CheckCaller(id transport.Identity) error { return k.Compare(id) }

// leaver is a process as membership.Departing uses it.
type leaver struct {
	*host
	end func()
}

func (v leaver) departing() *membership.Departing {
	return membership.NewDeparting(membership.DepartingConfig{Node: v, Home: v.n.home, Clock: v.life, Now: v.n.clock, Logger: v.n.logger("members")})
}

// End implements membership.Leaver.
func (v leaver) End(error) { v.w.sched.after(0, v.end) }

// Confirm implements membership.Leaver.
func (v leaver) Confirm(r cluster.Recovery) (accepted bool, err error) {
	if accepted, err = v.stance.Confirm(r); accepted {
		v.w.losses.accepts(v.host, r)
	}
	return accepted, err
}

// WriteState implements membership.Leaver.
func (v leaver) WriteState(p cluster.StatePoint) error {
	v.w.takenUp++
	return v.kept.Write(p)
}

// persistExit writes down what became of the node whose process has ended. Sometimes a fault prevents that, or
// cuts it off.
func (n *node) persistExit(d *membership.Departing) {
	n.check.givesUp(n, d.Because())
	if chance(n.rng, 20) {
		n.disk.callsLeft = n.rng.IntN(8)
	}
	if !chance(n.rng, 15) {
		if _, err := d.PersistExit(); err != nil {
			n.log("members", "not settled: %v", err)
		}
	}
	n.w.restartAgent(n)
}

// newDeparting returns how the agent leaves: its goroutines take a while to end.
func (a *agent) newDeparting() *membership.Departing {
	return leaver{host: a.host, end: func() {
		a.life.after(around(a.n.rng, 150*time.Millisecond), func() {
			a.w.sched.after(0, func() {
				if a.n.agent == a {
					a.n.killAgent("it leaves")
					a.n.persistExit(a.departing)
				}
			})
		})
	}}.departing()
}

// mayPromote tells whether a leader's agent agrees that an operator gives a learner a vote.
func (a *agent) mayPromote(m cluster.Member, kind cluster.Kind) bool {
	for _, n := range a.Nodes() {
		if n.ID == m.ID {
			why, _ := membership.RefuseVote(m, n, kind, a.Raft.Committed().Mark().Index)
			return why == ""
		}
	}
	return false
}
