package sim

import (
	"context"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/role"
)

// runPlan has the role machine carry a plan out.
func (a *agent) runPlan(in role.Input, moves bool) {
	a.life.start(func() {
		o := primary.NewOrder("an operator", moves, maxPause, a.life)
		if reason, err := a.Orders.Run(context.Background(), o, func() { a.input(in) }); err == nil && reason == "" {
			a.w.plans++
		}
	})
}

// mayMoveTo tells whether an operator may ask for a move to a node.
func (a *agent) mayMoveTo(to *node) bool {
	return to.runsMysqld() && slices.ContainsFunc(a.board.Members(), func(m cluster.Member) bool { return m.ID == to.id && m.Votes() && m.Weight > 0 })
}

// maxPause is for how long an operator lets writes be closed, by default.
const maxPause = 2 * time.Second

// strikeOperator does what an operator does.
func (i *injector) strikeOperator(f fault, n *node) {
	w := i.w
	if f.kind == move { // of another node it would be refused
		n = w.primary()
	}
	a := n.agent
	switch f.kind {
	case move:
		to := w.nodes[i.rng.IntN(len(w.nodes))]
		if a == nil || to == n || !a.mayMoveTo(to) {
			return
		}
		if w.held {
			w.heldFor = to.id
		}
		a.life.run(func() { a.runPlan(role.Move{To: to.id, Reason: "an operator moves it"}, true) })
	case restartMysqld:
		if a != nil {
			a.life.run(func() { a.runPlan(role.Restart{Reason: "an operator restarts it"}, false) })
		}
	case maintain:
		w.held, w.heldFor = true, n.id
		i.until(2*f.lasts, func() { w.held, w.heldFor = false, 0 })
	case fenceNode:
		if !n.runsMysqld() || n.fenced {
			return
		}
		n.setFenced(true)
		i.until(f.lasts, func() { n.setFenced(false) })
	}
}

// setFenced has an operator fence a node, or let it in again.
func (n *node) setFenced(fenced bool) {
	n.fenced = fenced
	if n.agent != nil {
		a := n.agent
		a.life.run(func() { a.input(n.operatorsFence()) })
	}
}

func (n *node) operatorsFence() role.Fenced {
	if n.fenced {
		return role.Fenced{Reason: "fenced by an operator"}
	}
	return role.Fenced{}
}

// hold tells the role machine of maintenance.
func (w *World) hold(in *role.Peers) {
	in.Held, in.HeldFor = w.held, w.heldFor
}
