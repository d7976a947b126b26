package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/testkit/sim/fakemysqld"
)

const (
	// spareNodes is the number of machines that wait to be added in worlds where the members change.
	spareNodes = 3
	// memberChangeMean is the mean time between two requests of an operator.
	memberChangeMean = 900 * time.Millisecond
	// loseDiskApart keeps the loss of a disk and a change of the voters apart in time. If a node is gone for
	// good and the change cannot end without it, only a forced recovery would bring the cluster back.
	loseDiskApart = 5 * time.Second
	// stillFor is how long the term must not change once everything has healed.
	stillFor = 5 * time.Second
)

// assignMembers decides whether the members change: in one of four worlds, unless the options
// decide. Some of these worlds begin with fewer nodes than there are machines.
func (w *World) assignMembers() {
	rng := w.random(streamMembers)
	w.membersChange = chance(rng, 25)
	begin := []int{1, 2, 0, 0, 0}[rng.IntN(5)]
	if w.options.Members != 0 {
		w.membersChange = w.options.Members > 0
	}
	if w.options.Members == MembersPair {
		begin = 2
	}
	w.initialNodes = w.options.Nodes
	if w.options.Losses > 0 {
		w.membersChange, w.options.Loggers = true, -1
		return
	}
	if !w.membersChange {
		return
	}
	if begin > 0 {
		w.initialNodes = begin
	}
	w.spares = w.options.Nodes - w.initialNodes + spareNodes
}

// assignSpares prepares the nodes that may be added. Each joins under a name of its own; the operator says what
// it becomes.
func (w *World) assignSpares() {
	rng := w.random(streamMembers + 1<<10)
	for _, n := range w.nodes[w.initialNodes:] {
		n.spare = true
		n.member.Kind = cluster.KindFull
		if chance(rng, 20) {
			n.member.Kind = cluster.KindLogger
		}
	}
	for _, n := range w.nodes {
		n.visit()
		if w.options.Losses > 0 { // no two members have one address
			n.member.Peer = n.member.Name
		}
	}
}

// operator changes the members as people do: one thing after another, not always wisely, and not always to the
// end.
type operator struct {
	w   *World
	rng *rand.Rand
	// removing holds the nodes that lose their vote in order to be removed.
	removing map[string]bool
	asked    int
	// accepted is when a change of the members was last accepted, lost when a disk was last lost.
	accepted, lost time.Duration
	// pair: there are two nodes. One loses its vote and gets it back, again and again. The
	// other may forget, by a loss of power, that it is the last voter.
	pair bool
	// rots: logs are damaged while nodes are added and removed.
	rots bool
	// voted is when a change of the votes was last accepted.
	voted time.Duration
	// calm: little goes wrong except with the sources of learners.
	calm bool
	// waits: the leader has to rebuild nodes that have lost their disk.
	waits bool
	// tidying: all faults have ended, and the operator finishes what is under way.
	tidying bool
}

func (w *World) startOperator() {
	w.operator = &operator{
		w: w, rng: w.random(streamChanges), removing: map[string]bool{},
		accepted: -loseDiskApart, lost: -loseDiskApart, voted: -loseDiskApart,
	}
	w.operator.rots = chance(w.random(streamRots), 33) && w.options.Members != MembersPair
	w.operator.waits = chance(w.random(streamReseeds), 75) && w.losses == nil
	w.operator.pair, w.operator.calm = w.options.Members == MembersPair, w.options.Members == MembersSourced
	w.operator.next()
}

func (o *operator) next() {
	mean := memberChangeMean
	if o.tidying {
		mean /= 4
	}
	o.w.sched.after(around(o.rng, mean), func() {
		o.act()
		o.next()
	})
}

// act asks the leader for one change.
func (o *operator) act() {
	a := o.w.primary().agent
	if a == nil || !a.Raft.Role().Leading || a.n.stalledUntil > o.w.sched.now {
		return
	}
	p := a.Raft.Committed().State()
	if o.w.losses != nil && o.takeBack(a, p) {
		return
	}
	if c, ok := o.due(p); ok {
		o.ask(a, c)
		return
	}
	if o.tidying || o.w.losses != nil {
		return
	}
	if o.pair {
		o.flip(a, p)
		return
	}
	if o.calm && chance(o.rng, 75) {
		return
	}
	if o.w.sources.lacksLearner(p.State) {
		o.add(a, p)
		return
	}
	m := p.State.Members[o.rng.IntN(len(p.State.Members))]
	n := o.w.node(m.ID)
	switch k := o.rng.IntN(100); {
	case k >= 50 && !o.w.dataWithout(n): // the operator looks first
	case k < 35:
		o.add(a, p)
	case k < 50:
		o.promote(a, p)
	case k < 62:
		o.ask(a, cluster.MembershipChange{Op: cluster.OpDemote, Name: m.Name})
	case k < 74:
		if len(p.State.Members) > 2 {
			o.removing[m.Name] = true
			o.ask(a, cluster.MembershipChange{Op: cluster.OpDemote, Name: m.Name})
		}
	case k < 80:
		o.ask(a, cluster.MembershipChange{Op: cluster.OpRebuild, Name: m.Name, Instance: n.newInstance()})
	default:
		o.loseDisk(a, n, p)
	}
}

// dataWithout tells whether there is a sound mysqld beside that of node n.
func (w *World) dataWithout(n *node) bool {
	return slices.ContainsFunc(w.inState(), func(o *node) bool {
		if o == n || o.agent == nil || o.tampered || o.restored {
			return false
		}
		m, err := w.check.state().Member(o.member.Name)
		if err != nil || m.Instance != "" && m.Instance != o.instance() {
			return false // it is about to give up what it has
		}
		role := o.agent.board.Own().Role
		return role == status.RoleReplica || role == status.RolePrimary
	})
}

// mayTamper tells whether the data of a node may be spoilt: no other node is being rebuilt, and another node
// has sound data.
func (w *World) mayTamper(n *node) bool {
	return !w.membersChange || w.operator != nil && w.sched.now > w.operator.accepted+2*time.Second && w.dataWithout(n)
}

// mayRot tells whether the log of a node may be damaged. In worlds where the members change, a voter's log is
// not damaged while another voter loses its vote or its disk. Else two of three voters could be damaged, the
// change would need both, and neither could be healed without the other: no cluster survives that. A change
// that stands in some log may still be committed, however long ago it was asked for. No change of the voters is
// asked for until the leader sees that the node is silent.
func (w *World) mayRot(n *node) bool {
	if !w.membersChange {
		return true
	}
	o, voters := w.operator, w.check.state().Voters()
	pending := func(n *node) bool { return n.durable.changes > uint64(len(w.check.entries)) }
	switch {
	case o == nil || slices.ContainsFunc(w.nodes, pending) || len(voters) < 3 || slices.ContainsFunc(w.nodes, (*node).empty):
		return false
	case !slices.Contains(voters, n.id) && !slices.Contains(w.check.votersBefore, n.id):
		return true
	case w.check.joint || w.sched.now < max(o.voted, o.lost)+loseDiskApart:
		return false
	}
	o.lost = w.sched.now
	return true
}

// due finishes what is under way: a node whose disk is gone is rebuilt; a node that lost its vote in order to
// be removed is removed.
func (o *operator) due(p cluster.StatePoint) (c cluster.MembershipChange, ok bool) {
	for _, m := range p.State.Members {
		n := o.w.node(m.ID)
		switch {
		case n.empty() && m.Instance == n.lostSince && (o.tidying || chance(o.rng, 30)) && !o.reseeds(n):
			return cluster.MembershipChange{Op: cluster.OpRebuild, Name: m.Name, Instance: n.newInstance()}, true
		case o.removing[m.Name] && !m.Votes() && len(p.Outgoing) == 0:
			if !o.tidying && chance(o.rng, 20) {
				delete(o.removing, m.Name) // the operator has changed his mind
				continue
			}
			return cluster.MembershipChange{Op: cluster.OpRemove, Name: m.Name}, true
		}
	}
	return c, false
}

// reseeds tells whether the operator waits until the leader rebuilds a node by itself. He does so in three of
// four worlds, as long as the leader gives no reason against it.
func (o *operator) reseeds(n *node) bool {
	held := o.w.primary().agent.board.Trouble(membership.AboutRepairs)
	return o.waits && !strings.Contains(held, "node "+n.member.Name+" is not rebuilt")
}

// add adds a machine that was in no cluster state yet.
func (o *operator) add(a *agent, p cluster.StatePoint) {
	for _, n := range o.w.nodes[o.w.initialNodes:] {
		_, err := p.State.Member(n.member.Name)
		if err == nil || slices.Contains(p.State.Removed, n.id) {
			continue
		}
		kind := n.member.Kind
		if chance(o.rng, 25) || o.w.sources != nil {
			kind = cluster.KindLearner
		}
		o.ask(a, cluster.MembershipChange{Op: cluster.OpAdd, Name: n.member.Name, ID: n.id, Peer: n.member.Name, Kind: kind})
		return
	}
}

// flip takes the vote of the node that does not lead, or gives it back.
func (o *operator) flip(a *agent, p cluster.StatePoint) {
	for _, m := range p.State.Members {
		if m.ID != a.n.id && m.Votes() {
			o.ask(a, cluster.MembershipChange{Op: cluster.OpDemote, Name: m.Name})
			return
		}
	}
	o.promote(a, p)
}

// promote gives a vote to a learner that has caught up.
func (o *operator) promote(a *agent, p cluster.StatePoint) {
	for _, m := range p.State.Members {
		n := o.w.node(m.ID)
		kind := cluster.KindFull
		if !n.runsMysqld() {
			kind = cluster.KindLogger
		}
		if !m.Votes() && a.mayPromote(m, kind) && !o.w.sources.keeps(m) {
			o.ask(a, cluster.MembershipChange{Op: cluster.OpPromote, Name: m.Name, Kind: kind, Instance: m.Instance})
			return
		}
	}
}

// ask makes the leader propose a change. Sometimes a fault strikes the leader at that moment, or at one of the
// next steps of the change.
func (o *operator) ask(a *agent, change cluster.MembershipChange) {
	if !o.tidying && !o.calm && (o.pair || chance(o.rng, 40)) {
		f := fault{id: -1, on: []point{pointMembers, pointJoint, pointJoint, pointJointEnds}[o.rng.IntN(4)], size: o.rng.IntN(100)}
		f.kind = []faultKind{killAgent, losePower, isolate, stall, transfer}[o.rng.IntN(5)]
		if takesVote := change.Op == cluster.OpDemote || change.Op == cluster.OpRebuild; takesVote && (o.pair || chance(o.rng, 50)) {
			f.on, f.kind = pointJointEnds, losePower // the node may forget the end of the change, but not which node leaves
		}
		f.lasts = 200*time.Millisecond + around(o.rng, 1500*time.Millisecond)
		o.w.faults.armed = append(o.w.faults.armed, f)
	}
	if voters := o.w.check.state().Voters(); o.rots && keepsVotes(change) && !o.tidying && len(voters) > 2 {
		o.w.faults.strike(fault{id: -1, kind: rotLog, target: voters[o.rng.IntN(len(voters))], lasts: around(o.rng, time.Second)})
	}
	o.asked++
	c := cluster.Change{ID: fmt.Sprintf("operator %d", o.asked), By: "operator", Membership: &change}
	a.life.Go(func() { _ = o.w.changeMembers(context.Background(), a, c, func() {}) })
}

// reseeded checks a node that a leader has rebuilt by itself.
func (w *World) reseeded(a *agent, c *cluster.MembershipChange) {
	w.reseeds++
	n := w.nodes[slices.IndexFunc(w.nodes, func(n *node) bool { return n.member.Name == c.Name })]
	if b := n.agent; !n.empty() && b != nil && b.log.LastIndex()+1 >= a.log.FirstIndex() {
		w.fail("reseed", "n%d has n%d rebuilt, which has its disk, and a log that goes on from n%d's: %s", a.n.id, n.id, a.n.id, c.Why)
	}
}

// changeMembers makes a leader change the members. It calls accepted only for a change that the leader accepts.
func (w *World) changeMembers(ctx context.Context, a *agent, c cluster.Change, accepted func()) error {
	o := w.operator
	began := o.tidying
	err := a.Raft.CheckState(ctx, c)
	if w.sched.now < o.lost+loseDiskApart && !w.rebuildsEmpty(c.Membership) && !(o.rots && keepsVotes(*c.Membership)) || o.tidying != began {
		err = errors.New("a disk was lost just before")
	}
	if err != nil {
		a.n.log("members", "%s: %v", c, err)
		return err
	}
	accepted()
	o.accepted = w.sched.now
	if !keepsVotes(*c.Membership) {
		o.voted = o.accepted
	}
	w.happened(pointMembers, a.n)
	return a.propose(ctx, "members", c)
}

// keepsVotes tells whether a change neither takes nor gives a vote: a learner comes or goes.
func keepsVotes(c cluster.MembershipChange) bool {
	return c.Op == cluster.OpAdd || c.Op == cluster.OpRemove
}

// rebuildsEmpty tells whether a change rebuilds a node with an empty disk.
func (w *World) rebuildsEmpty(c *cluster.MembershipChange) bool {
	named := func(n *node) bool { return n.member.Name == c.Name }
	i := slices.IndexFunc(w.nodes, named)
	return c.Op == cluster.OpRebuild && i >= 0 && w.nodes[i].empty()
}

// loseDisk makes a node come back under its name with an empty disk. It is refused until it is rebuilt. This
// strikes one node at a time, and only where the others are a majority without it. It does not strike while a
// leader's log has uncommitted entries: one of these could be a change of the voters.
func (o *operator) loseDisk(a *agent, n *node, p cluster.StatePoint) {
	now := o.w.sched.now
	if a.Raft.Group().LastIndex() > a.Raft.Committed().Mark().Index {
		return
	}
	soon := now < max(o.accepted, o.lost)+loseDiskApart
	leads := func(m cluster.Member) bool { return m.ID != n.id && m.Kind == cluster.KindFull && m.Weight > 0 }
	if len(p.Outgoing) > 0 || len(p.State.Voters()) < 3 || soon || !n.powered || !slices.ContainsFunc(p.State.Members, leads) {
		return
	}
	for _, other := range o.w.nodes {
		if other.empty() || other.tampered || other.restored || other.rotten {
			return
		}
	}
	if n.blank() || n.removed() || n.agent == nil || n.agent.departing.Because() != nil {
		return
	}
	o.lost = now
	n.log("disk", "is lost")
	n.killAgent("its disk is lost")
	m, _ := p.State.Member(n.member.Name)
	n.wipe(m.Instance)
	o.w.sched.after(around(o.rng, time.Second), n.startAgent)
}

// wipe leaves the node with an empty disk. since is the data directory by which the cluster still knows it.
func (n *node) wipe(since string) {
	n.lost, n.lostSince = true, since
	n.oldFile = chance(n.rng, 33)
	n.disk.mem, n.disk.bad = vfs.NewMem(), nil
	n.visit()
	n.forget()
}

// forget drops everything that is known of a node whose data directory is empty. But the cluster counts on the
// promises of its old log until its vote is gone, so the checker keeps those in durable.
func (n *node) forget() {
	n.uuid[1]++
	n.mysqlDisk = fakemysqld.NewDisk(n.uuid)
	n.marked, n.incarnation = 0, 0
	n.lastBinlog.dir, n.lastBinlog.base = "", ""
	n.lastACK.incarnation = 0
	n.tampered, n.restored = false, false
	delete(n.check.engines, n)
}

func (n *node) newInstance() string {
	n.instances++
	return fmt.Sprintf("%016x%016x", n.id, n.instances)
}

// state returns the newest committed cluster state.
func (c *checker) state() cluster.State { return c.policies[len(c.policies)-1].state }

// joined takes the log of a node that has joined as its promise from now on. Transactions before the beginning
// of the log are in its mysqld, or no node needs them.
func (c *checker) joined(n *node, log *seglog.Log) {
	n.durable = durableLog{hs: log.HardState()}
	for i := uint64(1); i <= log.LastIndex(); i++ {
		term := c.entries[i-1].term
		if i >= log.FirstIndex() {
			if got, err := log.Term(i); err != nil || got != term {
				c.w.fail("agreement", "n%d copied entry %d of term %d, committed is that of term %d (%v)", n.id, i, got, term, err)
			}
		}
		n.durable.terms = append(n.durable.terms, term)
	}
}

// membersChanged notes the voters after a committed change of Raft's configuration. Until the change is
// complete, the former voters count, too.
func (c *checker) membersChanged(before cluster.State, change cluster.StateChange) {
	old, now := slices.Clone(before.Voters()), slices.Clone(change.State.Voters())
	slices.Sort(old)
	slices.Sort(now)
	if !slices.Equal(old, now) {
		c.votersBefore, c.joint, c.changedAt = old, true, c.policies[len(c.policies)-1].index
	}
	c.w.memberChanges++
}

// held tells whether a majority of the voters has promised to keep an entry. Until a change of the voters is
// complete, the former voters count. After the end of the change only the present voters count. Earlier entries
// may have been committed by either group.
func (c *checker) held(index, term uint64) (ok bool, text string) {
	electorates := [][]cluster.NodeID{c.state().Voters()}
	switch {
	case c.joint:
		electorates = [][]cluster.NodeID{c.votersBefore}
	case index <= c.beforeUpTo:
		electorates = append(electorates, c.votersBefore)
	}
	for _, voters := range electorates {
		count := 0
		for _, id := range voters {
			if c.durableOf(id).has(index, term) {
				count++
			}
		}
		if 2*count > len(voters) {
			return true, ""
		}
		text += fmt.Sprintf("%d of %d voters, ", count, len(voters))
	}
	return false, text
}

// leads checks a node that was elected. After a loss of power it may not know any more that the last change of
// the voters is committed. Then the former voters have elected it. They alone commit its first entry, and all
// entries before, maybe even the end of the change. That is safe: the two groups of voters differ in one node
// only, so each majority of one group has a node in common with each majority of the other.
func (c *checker) leads(a *agent) {
	if a.Raft.Committed().State().Index < c.changedAt {
		c.beforeUpTo = max(c.beforeUpTo, a.Raft.Group().LastIndex())
	}
}

// opens checks a node that is about to be writable: it has a vote in the newest configuration
// that it knows to be committed.
func (c *checker) opens(a *agent) {
	c.xaOpens(a)
	for _, m := range c.policyOf(a).Members {
		if m.ID == a.n.id && m.Votes() && m.Weight > 0 {
			return
		}
	}
	c.w.fail("members", "n%d opens for writes, and is no voter that may lead: %+v", a.n.id, c.policyOf(a).Members)
}

// membersSettled tells whether the members are those that the operator asked for, and all nodes
// know it: no node joins, no change is under way, and removed nodes have gone.
func (w *World) membersSettled() (bool, string) {
	last := w.check.state()
	for _, n := range w.nodes {
		m, err := last.Member(n.member.Name)
		switch a := n.agent; {
		case slices.Contains(last.Removed, n.id):
			if !n.removed() {
				return false, fmt.Sprintf("n%d does not know that it was removed", n.id)
			}
		case err != nil: // the node was never added
		case a == nil || n.blank() || a.departing.Because() != nil || m.Instance != "" && m.Instance != n.instance():
			return false, fmt.Sprintf("n%d has not joined", n.id)
		case m.Becomes != "":
			return false, fmt.Sprintf("n%d is not %s", n.id, m.Becomes)
		case w.operator.removing[m.Name] && !m.Votes():
			return false, fmt.Sprintf("n%d is not removed", n.id)
		default:
			if p := a.Raft.Committed().State(); p.State.Version != last.Version || len(p.Outgoing) > 0 {
				return false, fmt.Sprintf("n%d is at version %d of %d, outgoing %v", n.id, p.State.Version, last.Version, p.Outgoing)
			}
		}
	}
	return true, ""
}

// still wants the term to stay the same for a while: no removed node, and no node without a
// vote, stands for election.
func (w *World) still() {
	// A leader that was asked to go just before the faults ended resigns some seconds later,
	// and a node that has just started votes after its own election timeout.
	slowest := electionTimeout
	for _, n := range w.nodes {
		slowest = max(slowest, n.timing.election)
	}
	w.sched.runUntil(max(w.sched.now, quietAtStart+w.options.Lasts+3*electionTimeout+2*slowest))
	term := w.term()
	w.sched.runUntil(w.sched.now + stillFor)
	if after := w.term(); after != term {
		w.fail("members", "the term went from %d to %d after everything had healed: %s", term, after, w.describe())
	}
}

func (w *World) term() (term uint64) {
	for _, n := range w.nodes {
		if n.agent != nil {
			term = max(term, n.agent.Raft.Role().Term)
		}
	}
	return term
}

// inState returns the members of the newest committed state; in worlds where members never change, all nodes.
func (w *World) inState() (nodes []*node) {
	if !w.membersChange {
		return w.nodes
	}
	for _, m := range w.check.state().Members {
		nodes = append(nodes, w.node(m.ID))
	}
	return nodes
}

// steps notes how far a leader has come with a change of the members.
func (a *agent) steps(before, now cluster.StatePoint) {
	if !a.Raft.Role().Leading {
		return
	}
	a.w.resetRebuilt(before, now)
	switch {
	case len(before.Outgoing) == 0 && len(now.Outgoing) > 0:
		a.w.happened(pointJoint, a.n)
	case len(before.Outgoing) > 0 && len(now.Outgoing) == 0:
		a.w.joints++
		a.w.happened(pointJointEnds, a.n)
	}
}

// someReplica returns a member with a mysqld.
func (w *World) someReplica() *node {
	for _, n := range w.inState() {
		if n.runsMysqld() {
			return n
		}
	}
	w.fail("members", "no member has a mysqld")
	return nil
}

// configuration takes a committed change of Raft's configuration.
func (c *checker) configuration(e seglog.Entry) {
	cc := &pb.ConfChangeV2{}
	if err := proto.Unmarshal(e.Data, cc); err != nil || pb.EntryType(e.Type) != pb.EntryConfChangeV2 {
		c.w.fail("members", "committed entry %d changes Raft's configuration, type %d: %v", e.Index, e.Type, err)
	}
	if cc.LeaveJoint() {
		if !c.joint {
			c.w.fail("members", "committed entry %d ends a change of the voters, there is none", e.Index)
		}
		c.joint, c.beforeUpTo = false, max(c.beforeUpTo, e.Index)
		return
	}
	change, err := entry.UnmarshalState(cc.GetContext())
	if err != nil {
		c.w.fail("members", "committed entry %d: %v", e.Index, err)
	}
	if c.joint && change.State.Version == c.state().Version+1 {
		c.w.fail("members", "committed entry %d changes the members in the middle of another change", e.Index)
	}
	c.swap(e.Index, change)
}
