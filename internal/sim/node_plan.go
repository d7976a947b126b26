package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/core"
)

// planLimit is for how long writes are closed at most before an operator's plan is
// called off.
const planLimit = 2 * time.Second

// awaitTarget waits until another node's mysqld has everything: writes are closed
// here, so what is committed is all there is. It is the call between two agents.
func (a *agent) awaitTarget(ctx context.Context, e core.Effect) error {
	index := a.group.Committed().Mark().Index
	for deadline := a.n.now() + planLimit; a.n.now() < deadline; {
		if err := a.life.Wait(ctx, time.Millisecond, nil); err != nil {
			return err
		}
		if a.w.net.link(a.n.id, e.To).cut > 0 || a.w.net.link(e.To, a.n.id).cut > 0 {
			continue
		}
		if b := a.w.node(e.To).agent; b != nil && b.has(index) {
			b.input(core.Chosen{Term: e.Term + 1})
			return nil
		}
	}
	return fmt.Errorf("n%d has not applied everything in time", e.To)
}

// has tells whether this node is a replica that may stand for election, and whose mysqld has
// the log up to an index.
func (a *agent) has(index uint64) bool {
	p := a.process
	return a.n.stalledUntil <= a.w.sched.now && a.core.Phase() == core.PhaseReplica && p != nil && !p.dead &&
		a.group.VotesAt() <= a.n.now() && a.group.Committed().Mark().Index >= index && p.GTIDExecuted().ContainsSet(a.committedGTIDs())
}

// mayOpen says whether maintenance lets this node open.
func (a *agent) mayOpen() error {
	if a.w.held && a.w.heldFor != a.n.id {
		return errors.New("maintenance is on")
	}
	return nil
}

// mayMoveTo tells whether an operator may ask for a move to a node.
func (a *agent) mayMoveTo(to *node) bool {
	return to.runsMysqld() && slices.ContainsFunc(a.members.state.Members, func(m cluster.Member) bool { return m.ID == to.id && m.Votes() && m.Weight > 0 })
}

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
		a.life.run(func() { a.input(core.Move{To: to.id, Reason: "an operator moves it"}) })
	case restartMysqld:
		if a != nil {
			a.life.run(func() { a.input(core.Restart{Reason: "an operator restarts it"}) })
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

func (n *node) operatorsFence() core.Fenced {
	if n.fenced {
		return core.Fenced{Reason: "fenced by an operator"}
	}
	return core.Fenced{}
}

// hold tells core of maintenance.
func (w *World) hold(in *core.Peers) {
	in.Held, in.HeldFor = w.held, w.heldFor
}
