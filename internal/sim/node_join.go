package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/board"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/datadir"
	"github.com/quorate/quorate/internal/membership"
	"github.com/quorate/quorate/internal/replay"
	"github.com/quorate/quorate/internal/seglog"
	"github.com/quorate/quorate/internal/transport"
)

// Times of a node that joins, as package agent has them, but for copies that are
// tried again sooner.
const (
	joinRetry      = 500 * time.Millisecond
	seedRetry      = time.Second
	joinAskTimeout = 3 * time.Second
	// seedBarrierTimeout is for how long a member that is asked waits for a majority.
	seedBarrierTimeout = 2 * time.Second
	// cloneSteps is how often a copy of a mysqld's data looks whether it goes on, and
	// cloneStep the mean time between two of them.
	cloneSteps = 20
	cloneStep  = 40 * time.Millisecond
)

var (
	errNotWelcome = errors.New("no member of the cluster answers as one that knows this node")
)

// joiner runs in the agent's place until the node has joined: what package agent's
// join does. Where the data directory is empty that was not, it asks whether the node
// is to be rebuilt, and no more.
type joiner struct {
	n      *node
	w      *World
	life   *life
	log    *seglog.Log // while it is copied
	stages stages
	files  datadir.Dir
	known  *membership.Directories
	// state is the newest cluster state that it was told of.
	state cluster.State
	// rejections are those of the last time that it asked all members.
	rejections []*transport.RejectedError
	leaving    bool
}

// seedPlan is what a member can give.
type seedPlan struct {
	from    *node
	state   cluster.StatePoint
	begin   seglog.Begin
	data    *mysqld // nil: there is none to copy
	primary bool
	backlog float64
	mark    replay.Mark
}

func (n *node) startJoiner() {
	j := &joiner{n: n, w: n.w, life: &life{n: n}}
	n.log("join", "begins, instance %s, empty %t", n.instance, n.empty)
	j.files = n.disk.files()
	var err error
	if j.known, err = n.openKnown(j.files, func(cluster.NodeID) bool { return false }); err == nil {
		err = j.known.Forget()
	}
	if err != nil {
		n.log("join", "cannot start: %v", err)
		n.w.restartAgent(n)
		return
	}
	n.joiner = j
	j.life.start(j.runGossip)
	j.life.start(j.run)
}

func (n *node) endJoiner() {
	if j := n.joiner; j != nil {
		n.joiner, n.fresh = nil, false
		j.life.end()
		j.closeLog()
	}
}

func (j *joiner) closeLog() {
	if j.log != nil {
		j.stages.end()
		_ = j.log.Close()
		j.log = nil
	}
}

// runGossip shows the members that this node has nothing.
func (j *joiner) runGossip() {
	for {
		own := j.n.status()
		own.Role, own.LogState = cluster.RoleJoining, cluster.LogOK
		for _, peer := range j.w.nodes {
			if peer == j.n || j.n.empty {
				continue
			}
			j.w.net.send(j.n.id, peer.id, func() {
				if a := peer.agent; a != nil {
					a.life.run(func() {
						if a.welcome(j.n.identity()) == nil {
							a.hear(own)
						}
					})
				}
			})
		}
		j.life.sleep(board.GossipInterval)
	}
}

func (j *joiner) run() {
	for {
		copying, err := j.try()
		j.closeLog()
		if err == nil {
			j.w.sched.after(0, func() {
				if j.n.joiner == j {
					j.n.endJoiner()
					j.n.startAgent()
				}
			})
			return
		}
		if j.leaving {
			return
		}
		j.n.log("join", "not so far: %v", err)
		retry := joinRetry
		if copying {
			retry = seedRetry
		}
		j.life.sleep(retry)
	}
}

func (j *joiner) try() (copying bool, err error) {
	plans := j.ask()
	if len(plans) == 0 || j.n.empty || j.leaving {
		return false, errNotWelcome
	}
	plan, clone, err := j.choose(plans)
	if err != nil {
		return false, err
	}
	j.n.belongTo(plan.from.check)
	if err := errors.Join(j.n.disk.mem.RemoveAll("log"), j.files.Wipe()); err != nil {
		return false, err
	}
	j.n.durable = durableLog{}
	j.n.forget()
	if clone {
		if err := j.copyData(plan); err != nil {
			return true, fmt.Errorf("copy the data of n%d: %w", plan.from.id, err)
		}
	}
	if err := j.copyLog(plan); err != nil {
		return true, fmt.Errorf("copy the log of n%d: %w", plan.from.id, err)
	}
	j.life.sleep(j.n.disk.appendTime(j.w.sched.now)) // cluster.json, identity.json
	if err := j.files.WriteState(plan.state); err != nil {
		return true, err
	}
	j.n.check.joined(j.n, j.log)
	j.n.joining = false
	j.n.log("join", "done: entries %d to %d, state %d, copied data %t",
		j.log.FirstIndex(), j.log.LastIndex(), plan.state.State.Version, clone)
	j.w.joins++
	if clone {
		j.w.clones++
	}
	return false, nil
}

// call has f run in another node's agent, if that takes a call from this node.
func (j *joiner) call(peer *node, f func(a *agent) any) (answer any) {
	done := signal{}
	j.w.net.send(j.n.id, peer.id, func() {
		a := peer.agent
		reply := func(got any) {
			j.w.net.send(peer.id, j.n.id, func() { j.life.run(func() { answer = got; done.fire() }) })
		}
		switch {
		case a == nil && peer.powered:
			reply(nil) // the dial is refused
			return
		case a == nil:
			return
		}
		a.life.run(func() {
			if r := a.welcome(j.n.identity()); r != nil {
				reply(r)
				return
			}
			if j.life.ended || j.known.Check(peer.identity()) != nil { // the answer of whoever was taken in
				reply(nil)
				return
			}
			a.life.start(func() { reply(f(a)) })
		})
	})
	j.life.await(joinAskTimeout, &done)
	if r, rejected := answer.(*transport.RejectedError); rejected {
		j.rejections = append(j.rejections, r)
		return nil
	}
	return answer
}

// judgeRejections acts on the weightiest rejection, if there is one.
func (j *joiner) judgeRejections() {
	r := membership.Weightiest(j.rejections)
	if r == nil || j.leaving {
		return
	}
	self := membership.Self{ID: j.n.id, Name: j.n.member.Name, Instance: j.n.instance, Blank: true, State: j.state}
	d := membership.React(self, "", r).Departure
	if d == nil {
		return
	}
	j.leaving = true
	j.n.log("members", "cannot go on as it is: %v, %s", d, d.Instance)
	j.w.sched.after(0, func() {
		if j.n.joiner == j {
			j.n.endJoiner()
			j.n.settle(*d)
		}
	})
}

// ask asks every member what it can give.
func (j *joiner) ask() (plans []seedPlan) {
	j.rejections = nil
	defer j.judgeRejections()
	for _, k := range j.n.rng.Perm(len(j.w.nodes)) {
		peer := j.w.nodes[k]
		if peer == j.n {
			continue
		}
		p, ok := j.call(peer, func(a *agent) any { return a.seedPlan(j.n) }).(seedPlan)
		if !ok {
			continue
		}
		plans = append(plans, p)
		if p.state.State.Version >= j.state.Version {
			j.state = p.state.State
			if err := j.known.Expect(p.state, false); err != nil {
				j.n.log("members", "%v", err)
			}
		}
	}
	return plans
}

// seedPlan answers a node that joins: agent.controlSeedPlan. nil = it is refused.
func (a *agent) seedPlan(n *node) any {
	ctx, cancel := a.life.WithTimeout(context.Background(), seedBarrierTimeout)
	defer cancel()
	if err := a.loop.barriers.Wait(ctx); err != nil {
		return nil
	}
	p := seedPlan{from: a.n, state: a.group.Committed().State(), mark: a.durable()}
	if err := membership.Seedable(p.state, n.member.Name); err != nil {
		return nil
	}
	var err error
	if p.begin, err = a.seedBegin(n); err != nil {
		return nil
	}
	own := a.ownStatus()
	healthy := own.Role == cluster.RoleReplica || own.Role == cluster.RolePrimary
	if a.n.runsMysqld() && healthy && own.LogState == cluster.LogOK && (p.begin.First == 1 || p.mark.Index+1 >= p.begin.First) {
		p.data, p.primary, p.backlog = a.process, own.Role == cluster.RolePrimary, own.LagSeconds
	}
	return p
}

// seedBegin is the beginning of the log that a node that joins is given.
func (a *agent) seedBegin(joiner *node) (b seglog.Begin, err error) {
	segments := a.log.Segments()
	others := slices.DeleteFunc(a.statuses(), func(s cluster.NodeStatus) bool { return s.Name == joiner.member.Name })
	at := replay.SeedSegment(segments, others, a.stateNeed(), a.group.Committed().Mark().Index)
	s := segments[at]
	b = seglog.Begin{First: s.FirstIndex, GTIDs: s.GTIDsBefore.Clone(), FormatDescription: slices.Clone(s.FormatDescription)}
	if s.FirstIndex > 1 {
		b.PreviousTerm, err = a.log.Term(s.FirstIndex - 1)
	}
	return b, err
}

// choose chooses where from, and whether mysqld's data are copied.
func (j *joiner) choose(plans []seedPlan) (seedPlan, bool, error) {
	offers := make([]membership.Offer, len(plans))
	for i, p := range plans {
		offers[i] = membership.Offer{
			First: p.begin.First, Through: p.state.Through, Data: p.data != nil, Primary: p.primary, Backlog: p.backlog,
		}
	}
	at, clone, err := membership.ChooseSource(offers, j.n.runsMysqld())
	if err != nil {
		return seedPlan{}, false, err
	}
	return plans[at], clone, nil
}

// copyData copies a mysqld's data: what it has at the end of the copy. It breaks off
// with the connection, and with either process.
func (j *joiner) copyData(plan seedPlan) error {
	for range cloneSteps {
		j.life.sleep(around(j.n.rng, cloneStep))
		from := plan.from
		there := from.agent != nil && from.agent.process == plan.data && j.w.net.connected(from.id, j.n.id)
		if !there || plan.data == nil || plan.data.dead {
			return errNoAnswer
		}
		for from.stalledUntil > j.w.sched.now {
			j.life.sleep(from.stalledUntil - j.w.sched.now)
		}
	}
	j.n.mysqlDisk = plan.from.mysqlDisk.Copy(j.n.uuid)
	delete(j.n.check.engines, j.n)
	j.n.check.engine(j.n)
	// What that node's InnoDB held durably before, the copy holds.
	j.n.marked = plan.mark.Index
	if plan.mark.Index == 0 {
		return nil
	}
	return j.files.WriteMark(j.n.uuid.String(), plan.mark)
}

// copyLog makes this node's log, with all that is committed now.
func (j *joiner) copyLog(plan seedPlan) (err error) {
	o := j.n.logOptions(false)
	if plan.begin.First > 1 {
		o.Begin = &plan.begin
	}
	if j.log, err = seglog.Open(o); err != nil {
		return err
	}
	j.stages.init(j.n, j.log, j.life, noEpoch)
	c := copyPeers{j.n, j.life, j.log, j.stages, j.call}.newCopy(plan.begin.First-1, func(cluster.NodeID) {})
	return c.Join(context.Background(), j.n.id, plan.from.id, max(plan.state.Index, plan.begin.First))
}
