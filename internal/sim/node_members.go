package sim

import (
	"encoding/hex"
	"errors"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/datadir"
	"github.com/quorate/quorate/internal/membership"
	"github.com/quorate/quorate/internal/transport"
)

// Times of what follows the members, as package agent has them.
const (
	membersEvery  = time.Second
	leaveGrace    = 500 * time.Millisecond
	leaderlessMax = 5
	// dialEvery is how often a peer is dialled that is not connected.
	dialEvery = 300 * time.Millisecond
)

// clusterName is in what nodes say.
const clusterName = "sim"

// openKnown is what a process of the node knows of the others' data directories.
func (n *node) openKnown(files datadir.Dir, lives func(cluster.NodeID) bool) (*membership.Directories, error) {
	d := membership.New(membership.Config{Self: n.id, Name: n.member.Name, Store: files, Now: n.now, Lives: lives})
	pins, met, err := files.Known()
	d.Load(pins, met)
	return d, err
}

// identity is who the node says it is. An empty data directory has no instance.
func (n *node) identity() transport.Identity {
	id := transport.Identity{ClusterName: clusterName, Node: n.id, NodeName: n.member.Name}
	if raw, err := hex.DecodeString(n.instance); err == nil && !n.empty {
		copy(id.Instance[:], raw)
	}
	return id
}

// members is what the transport knows of the members.
type members struct {
	// state has those that it dials.
	state  cluster.State
	former transport.Former
	// conns holds the peers' processes with which there is a connection.
	conns map[cluster.NodeID]*agent
	// leaderless counts the looks without a leader.
	leaderless int
	reminder   membership.Reminder
}

func (m *members) has(id cluster.NodeID) bool {
	_, ok := membership.Find(m.state, id)
	return ok
}

// followMembers makes the cluster state's members those that this node talks to. kept: p
// is on its disk.
func (a *agent) followMembers(p cluster.StatePoint, kept bool) {
	m := &a.members
	if p.State.Version < a.board.State().Version {
		return // what the log says is older than what another node has told
	}
	a.board.SetState(p.State)
	m.state = p.State
	a.copyToMembers()
	if !a.w.membersChange {
		return
	}
	m.former = membership.Former(p.State, kept, a.n.id)
	if err := a.known.Expect(p, kept); err != nil {
		a.n.log("members", "%v", err)
	}
	for _, peer := range a.w.nodes {
		if peer != a.n && !m.has(peer.id) {
			a.hangup(peer.id)
		}
	}
}

// hangup ends the connection with a peer, on both sides.
func (a *agent) hangup(id cluster.NodeID) {
	if peer := a.members.conns[id]; peer != nil {
		a.disconnected(id)
		peer.life.after(latencyMin, func() { peer.disconnected(a.n.id) })
	}
}

// remind ends the connections of nodes that are to be rebuilt and do not know.
func (a *agent) remind() {
	for _, id := range a.members.reminder.Due(a.n.now(), a.statuses()) {
		a.n.log("members", "n%d is told once more", id)
		a.hangup(id)
	}
}

// disconnected ends the connection with a peer.
func (a *agent) disconnected(id cluster.NodeID) {
	if a.members.conns[id] != nil {
		delete(a.members.conns, id)
		a.peerDown(id, false)
	}
}

// asSelf is this node as package membership sees it.
func (a *agent) asSelf() membership.Self {
	return membership.Self{ID: a.n.id, Name: a.n.member.Name, Instance: a.n.instance, State: a.board.State()}
}

// welcome judges the handshake of a node: what the transport and its handler do.
func (a *agent) welcome(id transport.Identity) *transport.RejectedError {
	if !a.w.membersChange {
		return nil
	}
	if !a.members.has(id.Node) {
		if r := a.members.former.Reject(id, clusterName); r != nil {
			return r
		}
		return &transport.RejectedError{Code: transport.CodeUnknown, Text: "it is not a member"}
	}
	err := a.known.Check(id)
	if err == nil {
		return nil
	}
	if r, ok := errors.AsType[*transport.RejectedError](err); ok {
		return r
	}
	return &transport.RejectedError{Code: transport.CodePeer, Text: err.Error()}
}

// handshake lets two agents judge each other; true = they are connected.
func (w *World) handshake(a, b *agent) bool {
	if !w.membersChange {
		return true
	}
	if !a.members.has(b.n.id) && !b.members.has(a.n.id) {
		return false // nobody dials
	}
	// Both look: who is refused learns why, if it dialled.
	toA, toB := b.welcome(a.n.identity()), a.welcome(b.n.identity())
	if a.members.has(b.n.id) && toA != nil {
		a.life.after(latencyMin, func() { a.rejected(b.n, toA) })
	}
	if b.members.has(a.n.id) && toB != nil {
		b.life.after(latencyMin, func() { b.rejected(a.n, toB) })
	}
	if toA == nil && toB == nil {
		a.members.conns[b.n.id], b.members.conns[a.n.id] = b, a
		return true
	}
	return false
}

// rejected takes a peer's rejection of this node.
func (a *agent) rejected(by *node, r *transport.RejectedError) {
	switch x := membership.React(a.asSelf(), by.member.Name, r); {
	case x.Recovery != nil:
		a.hearOfRecovery(by, *x.Recovery)
	case x.Departure != nil:
		a.leave(*x.Departure)
	}
}

// runDial dials the members that are not connected.
func (a *agent) runDial() {
	for {
		a.life.sleep(dialEvery/2 + around(a.n.rng, dialEvery/2))
		for _, m := range slices.Clone(a.members.state.Members) {
			if c := a.members.conns[m.ID]; m.ID != a.n.id && (c == nil || c.life.ended) {
				a.w.connect(a.n, a.w.node(m.ID))
			}
		}
	}
}

// runMembers follows the members of the cluster state and, as the leader, promotes
// those that have caught up.
func (a *agent) runMembers() {
	for at := a.n.now(); ; {
		if a.group.Committed().State().Index > a.kept.Point().Index {
			a.keepState()
		}
		p := a.kept.Point()
		a.followMembers(p, true)
		a.followSelf(p)
		if a.n.now() >= at+membersEvery {
			at = a.n.now()
			a.learnState()
			a.promoteReady()
			a.repairNodes()
			a.remind()
		}
		a.life.await(membersEvery, &a.stateChanged)
		a.life.sleep(a.n.hiccup())
	}
}

// followSelf ends a node that the cluster has removed, or that is to be rebuilt.
func (a *agent) followSelf(p cluster.StatePoint) {
	kept := map[cluster.NodeID]uint64{}
	for _, n := range a.board.Nodes() {
		kept[n.ID] = n.StateKept
	}
	if d := membership.Follow(p, a.asSelf(), kept); d != nil {
		a.leave(*d)
	}
}

// learnState asks the members that know a newer cluster state for it, until one helps.
func (a *agent) learnState() {
	a.members.leaderless++
	if a.loop.role.Leader != 0 {
		a.members.leaderless = 0
	}
	stuck := a.members.leaderless > leaderlessMax
	own := a.board.State().Version
	for _, n := range a.board.Nodes() {
		if n.ID == a.n.id || a.members.conns[n.ID] == nil || !n.Reachable || n.StateVersion == nil {
			continue
		}
		if *n.StateVersion <= own && (!stuck || n.StateKept <= a.kept.Point().Index) {
			continue
		}
		kept, ok := a.askState(n.ID)
		switch {
		case !ok:
		case stuck && kept.TakenUpBy(a.n.id, a.n.instance, a.kept.Point()):
			a.leave(membership.Departure{State: &kept})
			return
		case kept.State.Version > own:
			a.followMembers(kept, false)
			return
		}
	}
}

// askState asks a member for the state that it has on its disk.
func (a *agent) askState(id cluster.NodeID) (kept cluster.StatePoint, ok bool) {
	peer, done := a.members.conns[id], signal{}
	a.w.net.send(a.n.id, id, func() {
		peer.life.run(func() {
			answer := peer.kept.Point()
			a.w.net.send(id, a.n.id, func() {
				a.life.run(func() {
					kept, ok = answer, true
					done.fire()
				})
			})
		})
	})
	a.life.await(joinAskTimeout, &done)
	return kept, ok
}

// leave ends a node that cannot go on as it is.
func (a *agent) leave(d membership.Departure) {
	if a.leaving {
		return
	}
	a.leaving = true
	a.n.log("members", "cannot go on as it is: %v, %s", &d, d.Instance)
	grace := leaveGrace
	if d.Superseded != nil { // nobody waits for an answer, and it must elect nobody
		grace = around(a.n.rng, 150*time.Millisecond)
	}
	a.life.after(grace, func() {
		a.w.sched.after(0, func() {
			if a.n.agent == a {
				a.n.killAgent("it leaves")
				if d.Superseded != nil {
					if !a.stillOut(*d.Superseded) {
						a.w.restartAgent(a.n)
						return
					}
					a.w.losses.accepts(a, *d.Superseded)
				}
				a.n.settle(d)
			}
		})
	})
}

// settle notes what the node is now, unless it ends before: then it learns it again.
func (n *node) settle(d membership.Departure) {
	files := n.disk.files()
	if chance(n.rng, 20) {
		n.disk.callsLeft = n.rng.IntN(6)
	}
	switch {
	case chance(n.rng, 15):
	case d.Superseded != nil:
		n.superseded = d.Superseded
		n.w.losses.accepted++
	case d.State != nil:
		if err := files.WriteState(*d.State); err != nil {
			n.log("members", "%v", err)
			break
		}
		n.w.takenUp++
	case d.Instance == "":
		n.removed = true
	default:
		n.instance, n.joining, n.empty = d.Instance, true, false
	}
	n.w.restartAgent(n)
}

// promoteReady gives a vote to each node that joined for one and has caught up.
func (a *agent) promoteReady() {
	if !a.loop.role.Leading || a.w.operator == nil {
		return
	}
	committed := a.group.Committed().Mark().Index
	for _, n := range a.statuses() {
		m, ok := membership.Find(a.members.state, n.ID)
		if !ok || !membership.ReadyForVote(m, n, committed) {
			continue
		}
		a.w.operator.asked++
		a.w.proposeMembers(a, cluster.Change{
			ID: a.n.member.Name + a.w.sched.now.String(), By: "quorate on " + a.n.member.Name,
			Membership: &cluster.MembershipChange{Op: cluster.OpPromote, Name: m.Name, Kind: m.Becomes, Instance: m.Instance},
		}, func(error) {})
	}
}

// repairNodes has nodes rebuilt, as the leader, as far as the cluster's settings let it.
func (a *agent) repairNodes() {
	if !a.loop.role.Leading || a.w.operator == nil {
		a.repair.Follow()
		a.unrepaired = nil
		return
	}
	first, state := a.log.FirstIndex(), a.group.Committed().State().State
	a.unrepaired = a.repair.Look(a.n.now(), membership.Repairs{
		Self: a.n.id, State: state, Nodes: a.board.Nodes(), First: first, Known: a.known,
		Holder: func(func(string) bool) (string, int64) { return "", 0 }, // no bound on the log
	}, func(m cluster.Member, why string) error { return a.repairNode(m, why, state.Version) })
}

// repairNode asks for what an operator asks for, of the state that it was judged on.
func (a *agent) repairNode(m cluster.Member, why string, judged uint64) error {
	n, answered, err := a.w.node(m.ID), signal{}, errors.New("no answer")
	a.w.operator.asked++
	a.w.proposeMembers(a, cluster.Change{
		ID: a.n.member.Name + a.w.sched.now.String(), By: "quorate on " + a.n.member.Name, Judged: judged,
		Membership: &cluster.MembershipChange{Op: cluster.OpRebuild, Name: m.Name, Instance: n.newInstance(), Why: why},
	}, func(answer error) {
		err = answer
		answered.fire()
		if b := n.agent; err == nil && !n.empty && b != nil && b.log.LastIndex()+1 >= a.log.FirstIndex() {
			a.w.fail("reseed", "n%d has n%d rebuilt, which has its disk, and a log that goes on from n%d's: %s", a.n.id, n.id, a.n.id, why)
		}
	})
	a.life.await(joinAskTimeout, &answered)
	if err == nil {
		a.w.reseeds++
	}
	return err
}

// mayPromote is what a leader's agent asks before an operator gives a learner a vote.
func (a *agent) mayPromote(m cluster.Member, kind cluster.Kind) bool {
	for _, n := range a.statuses() {
		if n.ID == m.ID {
			return !membership.GivesUp(m, n) && membership.CaughtUp(n, kind, a.group.Committed().Mark().Index)
		}
	}
	return false
}
