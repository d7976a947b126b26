package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/agent/history"
	"github.com/quorate/quorate/internal/agent/quorumloss"
	"github.com/quorate/quorate/internal/agent/recovery"
	"github.com/quorate/quorate/internal/cluster"
)

const (
	// rescueAgain is the mean time after which an operator tries a recovery again.
	rescueAgain = 2 * time.Second
	// ledWithin is how long a lost leader still counts.
	ledWithin = 10 * time.Second
	// hearWithin is how long a former member that reaches a recovered node may go on as before: some dials, the
	// question to the other nodes, and the end of its process. leaderWithin is the same if some former member
	// had a leader just before.
	hearWithin   = 4 * time.Second
	leaderWithin = ledWithin + hearWithin
	// nearAfter is how long two nodes must be able to talk until each is expected to know what
	// the other knows.
	nearAfter = 2 * time.Second
)

// losses is the world in which a majority is lost for good. Operators force a recovery on a
// node that is left, and the lost nodes come back late.
type losses struct {
	w     *World
	rng   *rand.Rand
	forks []*fork
	// over: the faults have ended, and all nodes are back. chosen: one side goes on.
	over, chosen bool
	accepted     int
	rejections   int
	givenUp      int
	twoSides     bool
}

// besideLosses are the faults that this world does not have. Some spoil data that a person restores from other
// nodes; some keep a node from opening. A torn small file would cut off a recovery that this world does not
// know to have been made: when this world itself cuts one off, it finishes it.
func besideLosses(f fault) bool {
	return slices.Contains([]faultKind{rotLog, rotTail, startByHand, restore, maintain, fenceNode, fillDisk, split, tearFile}, f.kind)
}

func (w *World) startLosses() {
	l := &losses{w: w, rng: w.random(streamLosses)}
	w.losses = l
	w.operator = &operator{w: w, rng: w.random(streamChanges), removing: map[string]bool{}, accepted: -loseDiskApart, lost: -loseDiskApart, voted: -loseDiskApart}
	w.sched.at(quietAtStart+2*time.Second+around(l.rng, 3*time.Second), l.lose)
}

// lose takes a majority away within a short time. Then operators look at the nodes that are left.
func (l *losses) lose() {
	order := l.rng.Perm(len(l.w.nodes))
	least := len(order)/2 + 1
	if chance(l.rng, 25) {
		l.cutOff(l.w.nodes[order[0]])
		order, least = nil, 0
	}
	for _, k := range order[:least+l.rng.IntN(max(1, len(order)-least))] {
		n, destroyed := l.w.nodes[k], chance(l.rng, 35)
		away := around(l.rng, 9*time.Second)
		if chance(l.rng, 40) { // about when the others are recovered
			away = 500*time.Millisecond + around(l.rng, 3*time.Second)
		}
		l.w.sched.after(around(l.rng, 200*time.Millisecond), func() {
			if l.over {
				return
			}
			n.log("loss", "of the machine, disk destroyed %t, for %v", destroyed, away)
			n.losePower()
			n.off = true
			if destroyed {
				n.wipe("")
			}
		})
		l.w.sched.after(500*time.Millisecond+away, func() { l.comeBack(n) })
	}
	operators := 1
	if chance(l.rng, 40) {
		operators = 2
	}
	for range operators {
		l.w.sched.after(500*time.Millisecond+around(l.rng, 3*time.Second), l.rescue)
	}
}

// cutOff leads operators to a mistake: the majority runs, but one node cannot reach it for a while.
func (l *losses) cutOff(n *node) {
	lasts := 2*time.Second + around(l.rng, 6*time.Second)
	n.log("loss", "of the way to all others, for %v", lasts)
	for _, o := range l.w.nodes {
		if o != n {
			l.w.faults.until(lasts, l.w.net.cutLink(o.id, n.id, false))
			l.w.faults.until(lasts, l.w.net.cutLink(n.id, o.id, false))
			l.w.watchConnection(n, o)
		}
	}
}

func (l *losses) comeBack(n *node) {
	if n.off {
		n.off = false
		n.powerOn()
	}
}

// rescue is an operator who looks for a node without a leader and recovers it.
func (l *losses) rescue() {
	again := func() { l.w.sched.after(around(l.rng, rescueAgain), l.rescue) }
	if l.chosen {
		return
	}
	var left []*node
	for _, n := range l.w.nodes {
		switch a := n.agent; {
		case n.off || n.held || n.blank() || !n.powered || n.isRecovered():
		case a == nil && n.out == nil, a != nil && (a.Raft.Role().Leader != 0 || a.kept.Point().Index == 0 && a.log.LastIndex() == 0):
		default:
			left = append(left, n)
		}
	}
	if len(l.forks) > 0 && (chance(l.rng, 75) || l.over) || len(l.forks) >= 3 {
		left = nil // another operator has done it already
	}
	if len(left) == 0 {
		again()
		return
	}
	l.stop(left[l.rng.IntN(len(left))], again)
}

// stop stops a node's agent, and recovers the node if that is allowed.
func (l *losses) stop(n *node, again func()) {
	n.log("recovery", "an operator stops the agent")
	n.held = true
	n.killAgent("stopped for a recovery")
	release := func() {
		n.held = false
		l.w.sched.after(around(l.rng, 200*time.Millisecond), n.startAgent)
	}
	l.w.sched.after(50*time.Millisecond+around(l.rng, 300*time.Millisecond), func() {
		node, v, err := l.check(n)
		if node != nil {
			_ = node.Close()
		}
		why := ""
		if err == nil {
			why, err = v.Refusal("")
		}
		if err != nil || !v.Overridable() {
			n.log("recovery", "not made: %s, %v", why, err)
			release()
			again()
			return
		}
		accept := ""
		if why != "" {
			accept = v.Loss()
			if better := l.best(v); better != nil && chance(l.rng, 80) { // as the command advises
				release()
				l.w.sched.after(around(l.rng, 200*time.Millisecond), func() {
					if better.agent != nil && !better.held && !l.chosen {
						l.stop(better, again)
						return
					}
					again()
				})
				return
			}
		}
		l.w.sched.after(100*time.Millisecond+around(l.rng, time.Second), func() {
			if err := l.force(n, v, accept); err != nil {
				n.log("recovery", "not made: %v", err)
				again()
			}
			release()
		})
	})
}

// best returns the node with the newest log, among the nodes that answer; nil = this node's own is the newest.
func (l *losses) best(v recovery.Verdict) (best *node) {
	newest := v.Log
	for _, o := range v.Nodes {
		if o.Report != nil && o.Report.Out == "" && (o.Report.Log.Term > newest.Term || o.Report.Log.Term == newest.Term && o.Report.Log.Last > newest.Last) {
			newest, best = o.Report.Log, l.named(o.Name)
		}
	}
	return best
}

func (l *losses) named(name string) *node {
	i := slices.IndexFunc(l.w.nodes, func(n *node) bool { return n.member.Name == name })
	return l.w.nodes[i]
}

// check opens a node whose agent does not run, and asks the other members. Unless it returns nil,
// the caller closes the node.
func (l *losses) check(n *node) (s *quorumloss.Survivor, v recovery.Verdict, err error) {
	if !n.powered {
		return nil, v, fmt.Errorf("n%d has no power", n.id)
	}
	s, err = quorumloss.OpenSurvivor(quorumloss.SurvivorConfig{
		Self: n.member, Cluster: clusterName, Home: n.home, Members: l.w.initial.Members, Log: n.logOptions(false),
		Records: history.New(n.home.FS(), n.home.Path(), n.member.Name, n.logger("recovery")),
	})
	if err != nil {
		return nil, v, err
	}
	v, err = s.Check(func(others []cluster.Member) (nodes []recovery.Finding, _ []recovery.Caller) {
		for _, m := range others {
			report, answered, err := l.ask(n, l.w.node(m.ID))
			nodes = append(nodes, quorumloss.NodeOf(m, report, answered, err))
		}
		return nodes, nil
	})
	return s, v, err
}

// ask returns what a node learns about another member. An empty node does not answer: its agent was stopped.
func (l *losses) ask(n, peer *node) (report *recovery.Report, answered bool, err error) {
	switch {
	case !l.w.net.connected(n.id, peer.id) || peer.stalledUntil > l.w.sched.now:
	case peer.agent != nil:
		if r := admits(peer.agent.host, n, true); r != nil {
			return nil, false, r
		}
		report, err = peer.agent.report()
		return report, true, err
	case peer.out != nil:
		r, err := quorumloss.ClosedReport(peer.member.Name, peer.home.Own().Superseded, peer.logOptions(false))
		return &r, true, err
	}
	return nil, false, errNoAnswer
}

// force makes a node be recovered, if the judgement still holds. Sometimes the process ends in the middle of
// that, and the next process finishes what was begun.
func (l *losses) force(n *node, seen recovery.Verdict, accept string) error {
	if l.chosen {
		return fmt.Errorf("one side goes on")
	}
	s, v, err := l.check(n)
	if s != nil {
		defer func() { _ = s.Close() }()
	}
	if err != nil {
		return err
	}
	if seen.Changed(v) {
		return fmt.Errorf("the others say something else now")
	}
	if why, err := v.Refusal(accept); why != "" || err != nil {
		return fmt.Errorf("%s %w", why, err)
	}
	if chance(l.rng, 30) {
		n.disk.callsLeft = l.rng.IntN(40)
	}
	_, err = s.Do("operator", v, time.Unix(0, int64(l.w.sched.now)), n.newInstance())
	if err != nil {
		n.log("recovery", "cut off: %v", err)
		finish := quorumloss.Finish(n.disk.open(), ".")
		// The record may be gone already: removing it is the last step but one.
		if made := n.state(s.Log.FirstIndex()).State.Version > s.Survey.State.State.Version; !made || finish != nil {
			return errors.Join(finish, err)
		}
	}
	n.disk.callsLeft = -1
	n.visit()
	state := n.state(s.Log.FirstIndex()).State
	n.log("recovery", "forced at entry %d, lacking %s, accepting %q: version %d", s.Log.LastIndex(), v.Record(), accept, state.Version)
	n.stateBefore = s.Survey.State
	n.uuid[1]++
	n.mysqlDisk.Rename(n.uuid)
	l.forks = append(l.forks, n.check.fork(n, state, s.Log, v))
	if rng := l.w.random(streamOrders + uint64(n.id)); chance(rng, 50) {
		l.w.sched.after(around(rng, 2*time.Second), func() { l.order(n, 20) })
	}
	return nil
}

// order has an operator have a former member rebuilt on a recovered node, whatever that member does: he takes it for lost, and a
// majority may run.
func (l *losses) order(n *node, tries int) {
	a := n.agent
	if tries == 0 || l.over || !n.isRecovered() {
		return
	}
	if a == nil || !a.Raft.Role().Leading {
		l.w.sched.after(300*time.Millisecond, func() { l.order(n, tries-1) })
		return
	}
	p := a.Raft.Committed().State()
	if r := p.State.Recovered; r != nil && len(r.Without) > 0 && len(p.Outgoing) == 0 {
		m := r.Without[0]
		l.w.operator.ask(a, cluster.MembershipChange{Op: cluster.OpRebuild, Name: m.Name, Instance: l.w.node(m.ID).newInstance()})
	}
}

func (n *node) isRecovered() bool { return n.check.before != nil && n.check.before.by == n }

// converge runs when all faults have ended. Like an operator, it chooses one of the sides that run, and makes
// that side take in the nodes of the other sides.
func (l *losses) converge() {
	l.over = true
	for _, n := range l.w.nodes {
		l.comeBack(n)
	}
	var sides []*checker
	l.w.runWhile(l.w.sched.now+2*healWithin, "nobody leads, and nobody was recovered", func() bool {
		sides = l.sides()
		return len(sides) == 0
	})
	l.w.sched.runUntil(l.w.sched.now + leaderWithin + 2*time.Second)
	l.decided()
	sides = l.sides()
	if len(sides) == 0 {
		l.w.fail("liveness", "no side leads any more: %s", l.w.describe())
	}
	l.twoSides = len(sides) > 1
	l.choose(sides[l.rng.IntN(len(sides))])
	l.w.runWhile(l.w.sched.now+2*healWithin, "not all nodes were taken in again", func() bool { return !l.allBack() })
}

// sides returns the sides that have a leader.
func (l *losses) sides() (sides []*checker) {
	for _, n := range l.w.nodes {
		if n.agent != nil && n.agent.Raft.Role().Leading && !slices.Contains(sides, n.check) {
			sides = append(sides, n.check)
		}
	}
	return sides
}

// choose ends the other sides, and every node that cannot be rebuilt on this side without a
// person's help. Their data directories are moved away.
func (l *losses) choose(side *checker) {
	l.w.log(0, "recovery", "one side goes on, of %d recoveries", len(l.forks))
	l.chosen, l.w.check = true, side
	var by *cluster.Recovery
	if side.before != nil {
		by = &side.before.recovery
	}
	for _, n := range l.w.nodes {
		superseded := n.home.Own().Superseded
		obeys := by != nil && superseded != nil && superseded.Is(*by)
		if n.check == side && superseded == nil || obeys || n.empty() {
			n.lostSince = l.instanceIn(side, n)
			continue
		}
		n.log("recovery", "its data directory is moved away")
		n.killAgent("its side is given up")
		n.wipe(l.instanceIn(side, n))
		n.rejected = nil
		l.w.sched.after(around(l.rng, time.Second), n.startAgent)
	}
	l.w.operator.tidying = true
	l.w.operator.next()
}

// instanceIn returns the data directory by which a side knows a node.
func (l *losses) instanceIn(side *checker, n *node) string {
	m, _ := side.state().Member(n.member.Name)
	return m.Instance
}

// takeBack rebuilds a node that a recovery went on without.
func (o *operator) takeBack(a *agent, p cluster.StatePoint) bool {
	if r := p.State.Recovered; o.tidying && a.n.check == o.w.check && r != nil && len(r.Without) > 0 && len(p.Outgoing) == 0 {
		m := r.Without[0]
		o.ask(a, cluster.MembershipChange{Op: cluster.OpRebuild, Name: m.Name, Instance: o.w.node(m.ID).newInstance()})
		return true
	}
	return false
}

func (l *losses) allBack() bool {
	s := l.w.check.state()
	if len(s.Members) < len(l.w.nodes) || s.Recovered != nil && len(s.Recovered.Without) > 0 {
		return false
	}
	ok, _ := l.w.membersSettled()
	return ok
}
