package role

import (
	"cmp"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/cluster"
)

// plan is what an operator asked for and is under way: writes are closed in order,
// and then leadership moves, or mysqld starts again.
type plan struct {
	to      cluster.NodeID // 0 = nowhere: mysqld starts again here
	why     string
	restart bool
	// calledOff says why writes are opened again, which may take until reopenBy;
	// "" = they are not.
	calledOff string
	reopenBy  time.Duration
}

// move begins a switchover, which only a primary can.
func (n *Node) move(in Move) {
	if why := n.notNow(); why != "" || n.phase != PhasePrimary {
		n.emit(Effect{Kind: PlanEnded, Reason: cmp.Or(why, "this node is not the primary but "+string(n.phase))})
		return
	}
	n.plan = &plan{to: in.To, why: in.Reason}
	n.begin(PhaseClosing, Effect{Kind: CloseWrites, Term: n.term, To: in.To})
}

// restart begins to start mysqld again. Of a primary it closes writes first, and
// the node keeps leadership meanwhile.
func (n *Node) restart(in Restart) {
	why := n.noRestart()
	if why != "" || in.DryRun {
		n.emit(Effect{Kind: PlanEnded, Reason: why})
		return
	}
	n.plan = &plan{restart: true, why: in.Reason}
	closing := Effect{Kind: CloseWrites}
	if n.phase == PhasePrimary {
		n.keepsBy, closing.Term = n.now+n.cfg.PromotionTimeout, n.term
	}
	n.begin(PhaseClosing, closing)
}

// noRestart says why mysqld cannot be started again here by plan; "" = it can.
func (n *Node) noRestart() string {
	switch why := n.notNow(); {
	case why != "":
		return why
	case n.phase == PhasePrimary, n.phase == PhaseReplica && !n.raft.Leading:
		return ""
	case n.phase == PhaseReplica:
		return "it was elected, and is about to be the primary: ask again"
	}
	why := fmt.Sprintf("only the mysqld of a replica or of the primary can be started again, and it is %s", n.Role())
	if n.Reason() != "" {
		why += ": " + n.Reason()
	}
	return why
}

// notNow says why no plan can begin; "" = it can.
func (n *Node) notNow() string {
	switch {
	case n.stopping:
		return "the agent stops"
	case n.plan != nil:
		return "another switchover or restart is under way"
	case n.op != 0:
		return fmt.Sprintf("its mysqld is %s now: %s is under way", n.phase, n.opKind)
	}
	return ""
}

// writesClosed goes on with a plan once nothing waits for an ACK any more; false =
// there is none.
func (n *Node) writesClosed() bool {
	switch {
	case n.plan == nil:
		return false
	case n.stopping:
		n.endPlan("the agent stops")
		return false
	case n.plan.restart:
		n.unserve()
		n.begin(PhaseStopping, Effect{Kind: StopMysqld, Reason: n.plan.why})
		return true
	}
	n.begin(PhaseClosing, Effect{Kind: AwaitTarget, Term: n.term, To: n.plan.to})
	return true
}

// targetReady hands leadership over: the other node has everything. mysqld here was
// never stopped, and goes on as a replica.
func (n *Node) targetReady() {
	if n.stopping {
		n.unserve()
		n.endPlan("the agent stops")
		return
	}
	p := *n.plan
	n.unserve()
	n.endPlan("")
	n.transferTo(n.peer(p.to), p.why)
	n.replicateAgain(p.why)
}

// callOff opens writes again: the plan has come to nothing.
func (n *Node) callOff(reason string) {
	n.plan.calledOff, n.plan.reopenBy = reason, n.now+n.cfg.PromotionTimeout
	n.open = true
	n.begin(PhaseClosing, Effect{Kind: OpenWrites, Term: n.term, Reason: reason})
}

// endPlan tells who asked how the plan ended: "" = as it should.
func (n *Node) endPlan(reason string) {
	if n.plan == nil {
		return
	}
	if n.plan.calledOff != "" {
		reason = n.plan.calledOff
	}
	n.plan = nil
	n.emit(Effect{Kind: PlanEnded, Reason: reason})
}

// planFails follows a failed operation of a plan; false = it was none, or there is
// nothing to go back to.
func (n *Node) planFails(kind Kind, reason string) bool {
	switch {
	case n.plan == nil || n.plan.calledOff != "":
		return false
	case kind == AwaitTarget && n.stopping: // writes are closed already
		n.unserve()
		n.endPlan("the agent stops")
		return true
	case n.stopping || kind != AwaitTarget && kind != CloseWrites || !n.leadsTerm() || !n.tapOpen:
		return false
	}
	n.callOff(reason)
	return true
}

// advancePlan ends a plan that cannot go on.
func (n *Node) advancePlan() {
	switch {
	case n.plan == nil:
	case n.plan.to != 0 && !n.open && !n.leadsTerm():
		why := fmt.Sprintf("lost leadership of term %d", n.term)
		n.endPlan(why)
		n.replicateAgain(why)
	case n.plan.calledOff != "" && n.now >= n.plan.reopenBy:
		n.fence("writes could not be opened again: " + n.plan.calledOff)
	}
}

// keepsLeading tells whether mysqld starts again here by plan: nobody else is asked
// to lead meanwhile.
func (n *Node) keepsLeading() bool { return n.now < n.keepsBy }

// peer returns what is known of a node.
func (n *Node) peer(id cluster.NodeID) Peer {
	for _, p := range n.peers {
		if p.ID == id {
			return p
		}
	}
	return Peer{ID: id}
}

// Choice is whom a switchover would go to, and why not to each of the others.
type Choice struct {
	To Peer
	// Why says in a few words why it is the one.
	Why string
	// Refused says why nobody may lead, or why not the named node; "" = To is set.
	Refused string
}

// Choose says to whom a primary would hand over in order: to the node that was
// named, or to the best that there is.
func Choose(self cluster.NodeID, peers []Peer, to string) Choice {
	n := &Node{cfg: Config{Self: self}, peers: peers, asked: map[cluster.NodeID]time.Duration{}}
	if to == "" {
		best, ok := n.candidate()
		if !ok {
			return Choice{Refused: "no other node can take over: " + n.whyNobody()}
		}
		return Choice{To: best, Why: "it is the best by log, lag and weight"}
	}
	for _, p := range peers {
		switch {
		case p.Name != to:
		case p.unfit() != "":
			return Choice{Refused: fmt.Sprintf("node %s cannot take over: it %s", to, p.unfit())}
		default:
			return Choice{To: p, Why: "it was named"}
		}
	}
	return Choice{Refused: fmt.Sprintf("node %s cannot take over: this cluster has no other node of that name", to)}
}
