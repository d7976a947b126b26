package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/role"
)

// moving is the operator's plan that the role machine has under way: there is one at most.
type moving struct {
	moves bool
	limit time.Duration
	// began: writes are being closed since; 0 = not yet.
	began time.Duration
}

func (m *moving) begin(now time.Duration) {
	if m.began == 0 {
		m.began = now
	}
}

func (m *moving) plan(a *agent) primary.Plan {
	return primary.Plan{
		Server: localServer{a}, Moves: m.moves, Limit: m.limit, Left: max(0, m.began+m.limit-openTime-a.n.now()), Clock: a.life,
		NotClosed: func(err error) error { return err },
	}
}

// runPlan has the role machine carry a plan out.
func (a *agent) runPlan(in role.Input, moves bool) {
	if a.moving == nil {
		a.moving = &moving{moves: moves, limit: maxPause}
		a.input(in)
	}
}

// AwaitTarget waits until another node's mysqld has everything. It is the call between two
// agents.
func (a steps) AwaitTarget(ctx context.Context, to cluster.NodeID, term uint64) error {
	if a.moving == nil {
		return errors.New("nobody asks for it any more")
	}
	return a.moving.plan(a.agent).AwaitTarget(ctx, func(ctx context.Context) error {
		index := a.group.Committed().Mark().Index
		for {
			if err := a.life.Wait(ctx, time.Millisecond, nil); err != nil {
				return fmt.Errorf("wait for n%d: %w", to, err)
			}
			if a.w.net.link(a.n.id, to).cut > 0 || a.w.net.link(to, a.n.id).cut > 0 {
				continue
			}
			if b := a.w.node(to).agent; b != nil && b.has(index) {
				b.input(role.Chosen{Term: term + 1})
				return nil
			}
		}
	})
}

// has tells whether this node is a replica that may stand for election, and whose mysqld has
// the log up to an index.
func (a *agent) has(index uint64) bool {
	p := a.process
	return a.n.stalledUntil <= a.w.sched.now && a.role.Phase() == role.PhaseReplica && p != nil && !p.dead &&
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
	return to.runsMysqld() && slices.ContainsFunc(a.board.Members(), func(m cluster.Member) bool { return m.ID == to.id && m.Votes() && m.Weight > 0 })
}

const (
	// maxPause is for how long an operator lets writes be closed, by default.
	maxPause = 2 * time.Second
	// openTime is what opening them again takes, as package agent has it.
	openTime = 100 * time.Millisecond
)

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
