package sim

import (
	"slices"
	"time"

	"github.com/quorate/quorate/internal/cluster"
)

// Times and bounds of what follows the members, as package agent has them.
const (
	membersEvery      = time.Second
	promoteEntriesMax = 1024
	promoteLagMax     = 2 * time.Second
	leaveGrace        = 500 * time.Millisecond
	leaderlessMax     = 5
	// dialEvery is how often a peer is dialled that is not connected.
	dialEvery = 300 * time.Millisecond
)

// membership is what an agent knows of the members: the board's list, whom the
// transport refuses, and whose data directory is another one now.
type membership struct {
	list         []cluster.Member
	removed      []cluster.NodeID
	rebuilt      map[cluster.NodeID]bool
	stateVersion uint64
	// conns holds the peers' processes with which there is a connection.
	conns map[cluster.NodeID]*agent
	// leaderless counts the looks without a leader.
	leaderless int
}

func (m *membership) has(id cluster.NodeID) bool {
	return slices.ContainsFunc(m.list, func(o cluster.Member) bool { return o.ID == id })
}

// member is what the cluster state says of this node.
func (a *agent) member() cluster.Member {
	for _, m := range a.members.list {
		if m.ID == a.n.id {
			return m
		}
	}
	return cluster.Member{ID: a.n.id, Name: a.n.member.Name, Kind: cluster.KindLearner}
}

// followMembers makes the cluster state's members those that this node talks to.
func (a *agent) followMembers(p cluster.StatePoint) {
	m := &a.members
	if p.State.Version < m.stateVersion {
		return // what the log says is older than what another node has told
	}
	m.list, m.removed, m.stateVersion = p.State.Members, p.State.Removed, p.State.Version
	if !a.w.membersChange {
		return
	}
	a.n.expect(m, p)
	for id := range a.board.peers {
		id := cluster.NodeID(id)
		if id == a.n.id || m.has(id) || a.members.conns[id] == nil {
			continue
		}
		peer := a.members.conns[id]
		a.disconnected(id)
		peer.life.after(latencyMin, func() { peer.disconnected(a.n.id) })
	}
	for id := range a.board.peers {
		if !m.has(cluster.NodeID(id)) {
			a.board.peers[id].status, a.board.peers[id].heard = status{}, false
		}
	}
}

// disconnected ends the connection with a peer.
func (a *agent) disconnected(id cluster.NodeID) {
	if a.members.conns[id] != nil {
		delete(a.members.conns, id)
		a.peerDown(id, false)
	}
}

// expect pins the data directories of nodes that are rebuilt, or were.
func (n *node) expect(m *membership, p cluster.StatePoint) {
	m.rebuilt = map[cluster.NodeID]bool{}
	for _, o := range p.State.Members {
		if o.Instance != "" && o.ID != n.id && !slices.Contains(p.Outgoing, o.ID) {
			n.pins[o.ID] = o.Instance
			m.rebuilt[o.ID] = !o.Votes()
		}
	}
}

// order is why a peer refuses a node for good: it was removed, or is to have another
// data directory.
type order struct {
	removed  bool
	instance string
	version  uint64
	// state is that from which it starts again, which another node keeps.
	state *cluster.StatePoint
}

// welcome tells whether this agent takes a connection from a node, with a data
// directory; if not, what it says.
func (a *agent) welcome(from *node, instance string) (ok bool, said order) {
	m, pins := &a.members, a.n.pins
	pinned, known := pins[from.id]
	switch {
	case !a.w.membersChange:
		return true, said
	case !m.has(from.id):
		return false, order{removed: a.member().Votes() && slices.Contains(m.removed, from.id)}
	case known && pinned == instance:
		return true, said
	case known && m.rebuilt[from.id] && (a.member().Votes() || instance == ""):
		return false, order{instance: pinned, version: m.stateVersion}
	case known:
		return false, said
	}
	if instance != "" { // else it only asks
		pins[from.id] = instance
	}
	return true, said
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
	welcomeA, toA := b.welcome(a.n, a.n.instance)
	welcomeB, toB := a.welcome(b.n, b.n.instance)
	if a.members.has(b.n.id) && !welcomeA {
		a.life.after(latencyMin, func() { a.rejected(toA) })
	}
	if b.members.has(a.n.id) && !welcomeB {
		b.life.after(latencyMin, func() { b.rejected(toB) })
	}
	if welcomeA && welcomeB {
		a.members.conns[b.n.id], b.members.conns[a.n.id] = b, a
		return true
	}
	return false
}

// rejected takes what a peer says that refuses this node.
func (a *agent) rejected(o order) {
	switch {
	case o.removed:
		a.leave(order{removed: true})
	case o.instance == "" || o.version < a.members.stateVersion:
	case o.version > a.members.stateVersion || o.instance == a.member().Instance:
		a.leave(o)
	}
}

// runDial dials the members that are not connected.
func (a *agent) runDial(t *task) {
	for {
		_ = t.wait(a.scope, dialEvery/2+around(a.n.rng, dialEvery/2))
		for _, m := range slices.Clone(a.members.list) {
			if c := a.members.conns[m.ID]; m.ID != a.n.id && (c == nil || c.life.ended) {
				a.w.connect(a.n, a.w.node(m.ID))
			}
		}
	}
}

// runMembers follows the members of the cluster state and, as the leader, promotes
// those that have caught up.
func (a *agent) runMembers(t *task) {
	for at := a.n.now(); ; {
		if a.group.Committed().State().Index > a.n.point.Index {
			a.keepState(t)
		}
		p := a.n.point
		a.followMembers(p)
		a.followSelf(p)
		if a.n.now() >= at+membersEvery {
			at = a.n.now()
			a.learnState(t)
			a.promoteReady()
		}
		_ = t.wait(a.scope, membersEvery, &a.stateChanged)
		_ = t.wait(a.scope, a.n.hiccup())
	}
}

// followSelf ends a node that the cluster has removed, or that is to be rebuilt.
func (a *agent) followSelf(p cluster.StatePoint) {
	m := a.member()
	removed := slices.Contains(p.State.Removed, a.n.id)
	if !removed && (m.Votes() || m.Instance == "" || m.Instance == a.n.instance) {
		return
	}
	kept := map[cluster.NodeID]uint64{}
	for id, peer := range a.board.peers {
		kept[cluster.NodeID(id)] = peer.kept
	}
	if p.MayLeave(kept) {
		a.leave(order{removed: removed, instance: m.Instance})
	}
}

// learnState asks the members that know a newer cluster state for it, until one helps.
func (a *agent) learnState(t *task) {
	a.members.leaderless++
	if a.loop.role.Leader != 0 {
		a.members.leaderless = 0
	}
	stuck := a.members.leaderless > leaderlessMax
	for _, m := range slices.Clone(a.members.list) {
		p := a.board.peers[m.ID]
		newer := p.stateVersion > a.members.stateVersion || stuck && p.kept > a.n.point.Index
		if a.members.conns[m.ID] == nil || !a.board.live(p) || !newer {
			continue
		}
		kept, ok := a.askState(t, m.ID)
		switch {
		case !ok:
		case stuck && kept.TakenUpBy(a.n.id, a.n.instance, a.n.point):
			a.leave(order{state: &kept})
			return
		case kept.State.Version > a.members.stateVersion:
			a.followMembers(kept)
			return
		}
	}
}

// askState asks a member for the state that it has on its disk.
func (a *agent) askState(t *task, id cluster.NodeID) (kept cluster.StatePoint, ok bool) {
	peer, done := a.members.conns[id], signal{}
	a.w.net.send(a.n.id, id, func() {
		peer.life.run(func() {
			answer := peer.n.point
			a.w.net.send(id, a.n.id, func() {
				a.life.run(func() {
					kept, ok = answer, true
					done.fire()
				})
			})
		})
	})
	_ = t.wait(a.scope, joinAskTimeout, &done)
	return kept, ok
}

// leave ends a node that cannot go on as it is.
func (a *agent) leave(o order) {
	if a.leaving {
		return
	}
	a.leaving = true
	a.n.log("members", "cannot go on as it is: %+v", o)
	a.life.after(leaveGrace, func() {
		a.w.sched.after(0, func() {
			if a.n.agent == a {
				a.n.killAgent("it leaves")
				a.n.settle(o)
			}
		})
	})
}

// settle notes what the node is now, unless it ends before: then it learns it again.
func (n *node) settle(o order) {
	switch {
	case chance(n.rng, 15):
	case o.removed:
		n.removed = true
	case o.state != nil:
		n.point = *o.state
		n.w.takenUp++
	default:
		n.instance, n.joining, n.empty, n.pins = o.instance, true, false, map[cluster.NodeID]string{}
	}
	n.w.restartAgent(n)
}

// promoteReady gives a vote to each node that joined for one and has caught up.
func (a *agent) promoteReady() {
	if !a.loop.role.Leading || a.w.operator == nil {
		return
	}
	for _, m := range a.members.list {
		if m.Kind != cluster.KindLearner || m.Becomes == "" || !a.caughtUp(m, m.Becomes) {
			continue
		}
		a.w.operator.asked++
		a.w.proposeMembers(a, cluster.Change{
			ID: a.n.member.Name + a.w.sched.now.String(), By: "quorate on " + a.n.member.Name,
			Membership: &cluster.MembershipChange{Op: cluster.OpPromote, Name: m.Name, Kind: m.Becomes, Instance: m.Instance},
		})
	}
}

// caughtUp tells whether a learner may get a vote as a node of a kind.
func (a *agent) caughtUp(m cluster.Member, kind cluster.Kind) bool {
	p := a.board.peers[m.ID]
	committed := a.group.Committed().Mark().Index
	switch {
	case !p.heard || a.n.now()-p.at > peerLiveFor || !p.up:
		return false
	case m.Instance != "" && p.instance != m.Instance: // it is about to give up what it has
		return false
	case p.logState != cluster.LogOK || p.logLast+promoteEntriesMax < committed:
		return false
	case kind == cluster.KindLogger:
		return p.role == cluster.RoleLogger
	}
	return p.role == cluster.RoleReplica && p.applied+promoteEntriesMax >= committed && p.lag <= promoteLagMax
}
