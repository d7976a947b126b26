package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/role"
)

// runPlan makes the role machine carry out a plan.
func (a *agent) runPlan(in role.Input, moves bool) (done bool) {
	o := primary.NewOrder("an operator", moves, maxPause, a.life)
	reason, err := a.Orders.Run(context.Background(), o, func() { a.input(in) })
	if done = err == nil && reason == ""; done {
		a.w.plans++
	}
	return done
}

// moveTo moves the primary to another node. If maintenance is on, that node is first made the one that may
// open.
func (a *agent) moveTo(to *node) {
	m := a.board.State().Maintenance
	if m != nil && a.appoint(m.Appoint(to.member.Name)) != nil {
		return
	}
	moved := a.runPlan(role.Move{To: to.id, Reason: "an operator moves it"}, true)
	if m != nil && !moved && a.Raft.Role().Leading {
		_ = a.appoint(m.Appoint(a.n.member.Name))
	}
}

// appoint makes another node the one that may open, unless maintenance ends meanwhile.
func (a *agent) appoint(c *cluster.MaintenanceChange) error {
	if a.w.maintenance.On {
		*a.w.maintenance = *c // the fault that switched it on still ends it
	}
	return a.proposeMaintenance(*c)
}

// proposeMaintenance asks for a change of the maintenance, as the command does.
func (a *agent) proposeMaintenance(c cluster.MaintenanceChange) error {
	c.Designate(a.board.State(), a.n.id)
	a.w.changes++
	return a.propose(context.Background(), "maintenance", cluster.Change{
		ID: fmt.Sprint("maintenance ", a.w.changes), By: "operator", At: a.n.clock(), Maintenance: &c,
	})
}

// maintain makes an operator want maintenance, or want its end. The operator asks for it until the cluster
// state says so, and looks again and again: a proposal of a leader that has fallen may be committed late.
func (w *World) maintain(c *cluster.MaintenanceChange) {
	begun := w.maintenance != nil
	if w.maintenance = c; !begun {
		w.keepMaintained()
	}
}

func (w *World) keepMaintained() {
	w.sched.after(askedEvery, w.keepMaintained)
	a := w.primary().agent
	if a == nil || !a.Raft.Role().Leading {
		return
	}
	want, m := *w.maintenance, a.Raft.Committed().State().State.Maintenance
	if want.On == (m != nil) && (m == nil || want.Primary == "" || want.Primary == m.Primary) {
		return
	}
	a.life.Go(func() {
		if a.proposeMaintenance(want) == nil && m == nil {
			w.maintained++
		}
	})
}

// mayMoveTo tells whether an operator may ask for a move to a node.
func (a *agent) mayMoveTo(to *node) bool {
	return to.runsMysqld() && slices.ContainsFunc(a.board.Members(), func(m cluster.Member) bool { return m.ID == to.id && m.Votes() && m.Weight > 0 })
}

// askedEvery is how often an operator looks whether something is as it should be.
const askedEvery = 300 * time.Millisecond

// maxPause is for how long an operator lets writes be closed, by default.
const maxPause = 2 * time.Second

// strikeOperator does what operators do.
func (i *injector) strikeOperator(f fault, n *node) {
	w := i.w
	if f.kind == move { // any other node would refuse it
		n = w.primary()
	}
	a := n.agent
	switch f.kind {
	case move:
		to := w.nodes[i.rng.IntN(len(w.nodes))]
		if a == nil || to == n || !a.mayMoveTo(to) {
			return
		}
		a.life.run(func() { a.life.start(func() { a.moveTo(to) }) })
	case restartMysqld:
		if a != nil {
			a.life.run(func() {
				a.life.start(func() { a.runPlan(role.Restart{Reason: "an operator restarts it"}, false) })
			})
		}
	case maintain:
		c := &cluster.MaintenanceChange{On: true}
		if a != nil && f.size%2 == 0 && a.mayMoveTo(n) {
			c.Primary = n.member.Name
		}
		w.maintain(c)
		i.until(2*f.lasts, func() {
			if w.maintenance == c {
				w.maintain(&cluster.MaintenanceChange{})
			}
		})
	case fenceNode:
		if f, err := n.home.Fence(); a == nil || !n.runsMysqld() || f != nil || err != nil {
			return
		}
		over := false
		a.life.run(func() {
			a.life.start(func() {
				if !over { // else the machine stood still until now
					a.fence(&cluster.Fence{By: "operator", At: n.clock(), Reason: "a fault"})
				}
			})
		})
		i.until(f.lasts, func() {
			over = true
			n.unfence()
		})
	}
}

// fence makes an agent note an operator's fence, or its end (f=nil), and tell its role machine.
func (a *agent) fence(f *cluster.Fence) {
	home := a.n.home
	a.n.fencing++
	defer func() { a.n.fencing-- }()
	err := a.n.write(a.life, func() error {
		if f == nil {
			return home.RemoveFence()
		}
		return home.WriteFence(*f)
	})
	in, read := a.Fenced()
	if a.n.log("fence", "%q: %v, %v", in.Reason, err, read); read == nil {
		a.input(in)
	}
}

// unfence makes an operator let a node in again, and repeat that until it is done. By then the earlier requests
// have an answer, or their process has ended.
func (n *node) unfence() {
	f, err := n.home.Fence()
	switch {
	case err != nil:
		n.w.fail("fence", "n%d: %v", n.id, err)
	case f == nil && n.fencing == 0:
		n.w.fenced++
		return
	}
	if a := n.agent; a != nil && n.fencing == 0 {
		a.life.run(func() { a.life.start(func() { a.fence(nil) }) })
	}
	n.w.sched.after(askedEvery, n.unfence)
}
