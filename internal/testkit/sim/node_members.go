package sim

import (
	"context"
	"errors"
	"time"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/raft/transport"
)

// dialEvery is how often a peer is dialled that is not connected.
const dialEvery = 300 * time.Millisecond

// clusterName is in what nodes say.
const clusterName = "sim"

// openKnown is what a process of the node knows of the others' data directories.
func (n *node) openKnown(lives func(cluster.NodeID) bool) (*membership.Directories, error) {
	d := membership.New(membership.Config{Self: n.id, Name: n.member.Name, Store: n.home, Now: n.now, Lives: lives})
	pins, met, err := n.home.Known()
	d.Load(pins, met)
	return d, err
}

// identity is who the node says it is. An empty data directory has no instance.
func (n *node) identity() transport.Identity {
	id := transport.Identity{ClusterName: clusterName, Node: n.id, NodeName: n.member.Name}
	if n.joiner == nil || n.joiner.known != nil { // else it introduces itself
		id.Instance = n.home.Instance()
	}
	return id
}

// members is what the transport knows of the members.
type members struct {
	door *transport.Door
	// conns holds the peers' processes with which there is a connection.
	conns map[cluster.NodeID]*agent
}

// followed is the agent as a membership.Follower drives it.
type followed struct{ *agent }

func (a *agent) newFollower() *membership.Follower {
	return membership.NewFollower(membership.FollowerConfig{
		Node: followed{a}, Table: a.board, Known: a.known, Clock: a.life, Logger: a.n.logger("members"), RunsMysqld: a.n.runsMysqld(),
		Also: a.feeder.Look,
	})
}

// AsSelf implements membership.Node.
func (f followed) AsSelf() membership.Self { return f.asSelf() }

// Leader implements membership.Node.
func (f followed) Leader() (cluster.NodeID, bool) {
	return f.loop.driver.Role().Leader, f.loop.driver.Role().Leading
}

// Committed implements membership.Node.
func (f followed) Committed() (cluster.StatePoint, <-chan struct{}) {
	f.life.sleep(f.n.hiccup())
	return f.group.Committed().StateChanged()
}

// CommittedIndex implements membership.Node.
func (f followed) CommittedIndex() uint64 { return f.group.Committed().Mark().Index }

// Kept implements membership.Node.
func (f followed) Kept() cluster.StatePoint { return f.kept.Point() }

// Keep implements membership.Node.
func (f followed) Keep() { f.keepState() }

// SetPeers implements membership.Node.
func (f followed) SetPeers(former transport.Former) {
	f.members.door.SetFormer(former)
	if f.stages.Bulk != nil {
		f.copyToMembers()
	}
	for _, peer := range f.w.nodes {
		if peer != f.n && !dials(f.agent, peer) {
			f.hangup(peer.id)
		}
	}
}

// Hangup implements membership.Node.
func (f followed) Hangup(id cluster.NodeID) { f.hangup(id) }

// AskState implements membership.Node.
func (f followed) AskState(ctx context.Context, of cluster.NodeID) (cluster.StatePoint, error) {
	return callAgent(ctx, f.life, f.known, f.w.node(of), func(a *agent) (cluster.StatePoint, error) { return a.kept.Point(), nil })
}

// Change implements membership.Node.
func (f followed) Change(ctx context.Context, c cluster.Change) (err error) {
	if f.w.operator == nil {
		return errors.New("the members are not changed so far")
	}
	c.ID, c.By = f.n.member.Name+f.w.sched.now.String(), "quorate on "+f.n.member.Name
	f.w.operator.asked++
	answered := make(chan struct{})
	f.w.proposeMembers(f.agent, c, func(answer error) {
		err = answer
		if err == nil && c.Membership.Op == cluster.OpRebuild {
			f.w.reseeded(f.agent, c.Membership)
		}
		close(answered)
	})
	ctx, cancel := f.life.WithTimeout(ctx, callTimeout)
	defer cancel()
	if late := f.life.Wait(ctx, 0, answered); late != nil {
		return late
	}
	return err
}

// FirstIndex implements membership.Node.
func (f followed) FirstIndex() uint64 { return f.log.FirstIndex() }

// LogHolder implements membership.Node.
func (f followed) LogHolder(s cluster.State, away func(string) bool) (string, int64) {
	return f.purger.Holder(s, away)
}

// Leave implements membership.Node.
func (f followed) Leave(d membership.Departure) { f.departing.Leave(d) }

// hangup ends the connection with a peer, on both sides.
func (a *agent) hangup(id cluster.NodeID) {
	if peer := a.members.conns[id]; peer != nil {
		a.disconnected(id)
		peer.life.after(latencyMin, func() { peer.disconnected(a.n.id) })
	}
}

// disconnected ends the connection with a peer.
func (a *agent) disconnected(id cluster.NodeID) {
	if a.members.conns[id] != nil {
		delete(a.members.conns, id)
		a.peerDown(id, false)
	}
}

// self is this node as package membership sees it.
func (n *node) self(state cluster.State) membership.Self {
	own := n.home.Own()
	return membership.Self{
		ID: n.id, Name: n.member.Name, Instance: own.Instance, Blank: n.home.Blank(), Fenced: n.fenced, State: state, Superseded: own.Superseded,
	}
}

func (a *agent) asSelf() membership.Self { return a.n.self(a.board.State()) }

// knownPeers are judged by their data directories.
type knownPeers struct{ *membership.Directories }

// CheckPeer implements transport.Checker.
func (k knownPeers) CheckPeer(id transport.Identity) error { return k.Check(id) }

// CheckCaller implements transport.CallChecker.
func (k knownPeers) CheckCaller(id transport.Identity) error { return k.Judge(id) }

// newDoor judges who shakes hands with a process of the node.
func (n *node) newDoor(members func() []cluster.Member, c transport.Checker) *transport.Door {
	return &transport.Door{Self: n.identity(), Checker: c, Peer: func(id cluster.NodeID) (transport.Peer, bool) {
		m, ok := cluster.State{Members: members()}.MemberByID(id)
		return transport.Peer{ID: m.ID, Name: m.Name, Addr: m.Peer}, ok && id != n.id
	}}
}

// host is a process that is shaken hands with.
type host interface {
	at() (*life, *transport.Door)
}

// atDoor is who answers on a node; nil = nobody does.
func (n *node) atDoor() host {
	if n.joiner != nil {
		return n.joiner
	}
	if p := n.process(); p != nil {
		return p
	}
	return nil
}

// process is what dials on a node: an agent, or what runs on one that is out.
type process interface {
	host
	rejected(by *node, r *transport.RejectedError)
}

func (a *agent) at() (*life, *transport.Door) { return a.life, a.members.door }

func (n *node) process() process {
	switch {
	case n.agent != nil:
		return n.agent
	case n.out != nil:
		return n.out
	}
	return nil
}

// dials tells whether a process talks to a node.
func dials(p host, to *node) bool {
	_, door := p.at()
	_, ok := door.Peer(to.id)
	return ok
}

// admits is what a process answers a node that dials it; call: with a question.
func admits(p host, from *node, call bool) *transport.RejectedError {
	l, door := p.at()
	r := door.Admit(l.n.id, from.identity(), call)
	if r != nil {
		r.By = l.n.member.Name
	}
	return r
}

// handshake lets two processes judge each other; true = they are agents that are connected.
func handshake(x, y process) bool {
	at, _ := x.at()
	bt, _ := y.at()
	a, b := at.n, bt.n
	if !dials(x, b) && !dials(y, a) {
		return false // nobody dials
	}
	// Both look: who is refused learns why, if it dialled.
	toX, toY := admits(y, a, false), admits(x, b, false)
	if dials(x, b) && toX != nil {
		at.after(latencyMin, func() { x.rejected(b, toX) })
	}
	if dials(y, a) && toY != nil {
		bt.after(latencyMin, func() { y.rejected(a, toY) })
	}
	if toX == nil && toY == nil {
		a.agent.members.conns[b.id], b.agent.members.conns[a.id] = b.agent, a.agent
		return true
	}
	return false
}

// rejected takes a peer's rejection of this node.
func (a *agent) rejected(by *node, r *transport.RejectedError) {
	switch x := membership.React(a.asSelf(), by.member.Name, r); {
	case x.Recovery != nil:
		a.stance.hear(by, *x.Recovery)
	case x.Departure != nil:
		a.departing.Leave(*x.Departure)
	}
}

// runDial dials the members that are not connected.
func (n *node) runDial(l *life, members func() []cluster.Member) {
	for {
		l.sleep(dialEvery/2 + around(n.rng, dialEvery/2))
		for _, m := range members() {
			if n.agent == nil || n.agent.members.conns[m.ID] == nil || n.agent.members.conns[m.ID].life.ended {
				n.w.connect(n, n.w.node(m.ID))
			}
		}
	}
}

// leaver is a process of a node as membership.Departing drives it.
type leaver struct {
	n       *node
	end     func()
	confirm func(r cluster.Recovery) (accepted bool, err error)
	kept    *datadir.State
}

func (v leaver) departing(l *life) *membership.Departing {
	return membership.NewDeparting(membership.DepartingConfig{Node: v, Home: v.n.home, Clock: l, Now: v.n.clock, Logger: v.n.logger("members")})
}

// End implements membership.Leaver.
func (v leaver) End(error) { v.n.w.sched.after(0, v.end) }

// Confirm implements membership.Leaver.
func (v leaver) Confirm(r cluster.Recovery) (accepted bool, err error) {
	if accepted, err = v.confirm(r); accepted {
		v.n.w.losses.accepted++
	}
	return accepted, err
}

// WriteState implements membership.Leaver.
func (v leaver) WriteState(p cluster.StatePoint) error {
	v.n.w.takenUp++
	return v.kept.Write(p)
}

// settle notes what the node is, whose process has ended, unless that is cut off.
func (n *node) settle(d *membership.Departing) {
	if chance(n.rng, 20) {
		n.disk.callsLeft = n.rng.IntN(8)
	}
	if !chance(n.rng, 15) {
		if _, err := d.Settle(); err != nil {
			n.log("members", "not settled: %v", err)
		}
	}
	n.w.restartAgent(n)
}

// newDeparting is how the agent goes: what it runs takes a while to end.
func (a *agent) newDeparting() *membership.Departing {
	return leaver{n: a.n, kept: &a.kept, confirm: a.stillOut, end: func() {
		a.life.after(around(a.n.rng, 150*time.Millisecond), func() {
			a.w.sched.after(0, func() {
				if a.n.agent == a {
					a.n.killAgent("it leaves")
					a.n.settle(a.departing)
				}
			})
		})
	}}.departing(a.life)
}

// mayPromote is what a leader's agent asks before an operator gives a learner a vote.
func (a *agent) mayPromote(m cluster.Member, kind cluster.Kind) bool {
	for _, n := range a.statuses() {
		if n.ID == m.ID {
			why, _ := membership.RefuseVote(m, n, kind, a.group.Committed().Mark().Index)
			return why == ""
		}
	}
	return false
}
