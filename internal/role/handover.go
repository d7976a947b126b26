package role

import (
	"cmp"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
)

// retryDoublings bounds the pause of a leader that never opens, between two attempts to hand over to the same
// node: RetryAfter is doubled at most this often.
const retryDoublings = 4

// tenure is what a node knows of its leadership in one term.
type tenure struct {
	// transferAt is when this node may ask the next node to lead. tries counts the transfers that were asked
	// for in this term.
	transferAt time.Duration
	tries      int
	// servesBy is when a leader that has not even begun to promote its mysqld has to look for another leader.
	servesBy time.Duration
	// spent: no epoch can be opened in this term any more, because it had an epoch or a transfer.
	spent bool
	// weighed: this node has looked for a heavier node.
	weighed bool
	// passed: a promotion failed here, and another node should try. This stays true in a new term of the same
	// leader.
	passed bool
	// restarts: the promotion has to go on with a mysqld whose applier binlogs.
	restarts bool
}

// mayLead tells whether this node may be opened for writes at all.
func (n *Machine) mayLead() bool { return n.mayNotLead() == "" }

// mayNotLead says why this node may not be opened for writes; "" = it may.
func (n *Machine) mayNotLead() string {
	switch {
	case n.cfg.Kind == cluster.KindLogger:
		return "it is a logger"
	case n.nodes.Own.Weight == 0:
		return "its weight is 0"
	case n.nodes.Held && n.nodes.HeldFor != n.cfg.Self:
		if n.nodes.HeldFor == 0 {
			return "maintenance is on, and no node was the primary when it began"
		}
		return fmt.Sprintf("maintenance is on, and only %s may open", n.nodes.peer(n.nodes.HeldFor).Name)
	case n.nodes.NoLease != "":
		return n.nodes.NoLease
	}
	return ""
}

// cannotLog says why this node's log can commit nothing; "" = it can. A disk that hangs shows in the node's own
// status. An open primary is not fenced for that here: it gets a Doubt.
func (n *Machine) cannotLog() string {
	if n.logTrouble == "" && n.nodes.Own.LogBad {
		return "the log's disk does not answer"
	}
	return n.logTrouble
}

// handOver gives leadership away while mysqld here cannot serve soon, or never.
func (n *Machine) handOver() {
	if !n.raft.Leading || n.now < n.tenure.transferAt || n.keepsLeading() {
		return
	}
	switch phase := n.Phase(); {
	case n.cannotLog() != "":
	case n.Role() == status.RolePromoting, phase == PhasePrimary, phase == PhaseClosing:
		n.tenure.servesBy = n.now + n.cfg.IdleLeaderTimeout
		return
	case !n.mayLead():
	case phase == PhaseReplica:
		// It is ready: it promotes itself once before it asks another node.
		if !n.tenure.passed {
			return
		}
	case n.Role() == status.RoleUnverified, phase == PhaseSettling, n.restartsForXA():
		// It is about to promote, unless that has failed or takes too long.
		if !n.tenure.passed && n.now < n.tenure.servesBy {
			return
		}
	}
	n.transfer()
}

// restartsForXA tells whether the promotion in this term waits for a mysqld whose applier
// binlogs.
func (n *Machine) restartsForXA() bool {
	p, ok := n.phase.(starting)
	return n.tenure.restarts || ok && p.replicaBinlog
}

// keepsLeading tells whether mysqld starts again here by plan. Meanwhile no other node is asked to lead.
func (n *Machine) keepsLeading() bool { return n.now < n.keepsBy }

// transfer asks the best candidate to lead. If there is none, it tries again later.
func (n *Machine) transfer() {
	best, ok := n.candidate()
	n.tenure.passed = false
	if !ok {
		return
	}
	if !n.mayLead() && !n.stopping {
		if n.lacksLog(best) {
			return // As a follower, that node gets the log. A transfer would only wait for that.
		}
		at := n.askedAt(best.ID)
		if n.tenure.tries > 0 && at != 0 && n.now < at+n.cfg.RetryAfter<<min(n.tenure.tries-1, retryDoublings) {
			return // every node was asked: ask again less and less often
		}
	}
	n.transferTo(best, cmp.Or(n.cannotLog(), n.reason))
}

func (n *Machine) transferTo(p Peer, why string) {
	n.tenure.transferAt = n.now + n.cfg.RetryAfter
	n.tenure.tries++
	n.tenure.spent = true
	n.asked[p.ID] = n.now
	n.emit(Effect{Kind: Transfer, Term: n.raft.Term, To: p.ID, Reason: why})
}

// preferHeavier hands over to a heavier node that is as far as this node, or to a node that names tables as the last
// primary if this one does not. It does so before anything is opened, so it costs only the election of a node that is
// ready. It does so only once in a term: if that node does not take over, this node serves.
func (n *Machine) preferHeavier() bool {
	if n.tenure.weighed || n.chosenTerm == n.raft.Term || n.keepsLeading() {
		return false
	}
	n.tenure.weighed = true
	best, ok := n.candidate()
	why := fmt.Sprintf("its weight is %d, this node's %d", best.Weight, n.nodes.Own.Weight)
	switch own := n.nodes.Own; {
	case !ok || n.askedAt(best.ID) != 0 || !best.asFarAs(own.Applied, own.Lag):
		return false
	case own.Unlike && !best.Unlike:
		why = "this node names tables in another way than the last primary (lower_case_table_names)"
	case best.Weight <= own.Weight || best.Unlike && !own.Unlike:
		return false
	}
	n.transferTo(best, why)
	return true
}

// awaitSuccessor hands over while the node stops. It returns true while the node has to wait for its successor.
func (n *Machine) awaitSuccessor() bool {
	if !n.raft.Leading || n.now >= n.stopBy {
		return false
	}
	if n.now >= n.tenure.transferAt {
		n.transfer()
	}
	_, ok := n.candidate()
	return ok
}

// standing takes what is known of all nodes. A peer that has become the primary counts as never asked.
func (n *Machine) standing(in Peers) {
	n.nodes = in
	for _, p := range in.Peers {
		if p.Role == status.RolePrimary {
			delete(n.asked, p.ID)
		}
	}
}

// candidate returns the node to hand over to.
func (n *Machine) candidate() (Peer, bool) { return n.nodes.candidate(n.askedAt) }

// othersAreFurther tells whether a node that was not asked lately has applied more than this node. Such a node
// must not wait until this node has caught up. Lags say nothing here: they grow inside of one transaction, and
// a peer's lag is older than this node's own. A mysqld whose applier binlogs had everything when it was started again
// for prepared XA transactions, and applies those once more. The other node's mysqld would have to do the same.
func (n *Machine) othersAreFurther() bool {
	best, ok := n.candidate()
	return ok && !n.mysqld.replicaBinlog && n.askedAt(best.ID) == 0 && best.Applied > n.nodes.Own.Applied
}

// lacksLog tells whether a node lacks much of the log. Raft gives a transfer up that takes longer than an
// election timeout.
func (n *Machine) lacksLog(p Peer) bool { return p.LogLast+entriesEqual < n.nodes.Own.LogLast }

// askedAt is when a peer was asked to lead; 0 = never, or so long ago that this peer and those asked after it
// have had time for a promotion.
func (n *Machine) askedAt(id cluster.NodeID) time.Duration {
	if at := n.asked[id]; n.now < at+4*n.cfg.PromotionTimeout {
		return at
	}
	return 0
}

// explain says that a node has no leader, or why it leads and never opens. A cluster without a primary should
// say what it waits for.
func (n *Machine) explain() {
	n.unled = ""
	switch {
	case n.raft.Leader == 0:
		switch n.Phase() {
		case PhaseUnverified, PhaseReplica, PhaseLogger:
			n.unled = "no leader: waiting for a majority"
		}
		return
	case !n.raft.Leading, n.Phase() == PhasePrimary, n.Phase() == PhaseClosing, n.mayLead():
		return
	}
	what := n.mayNotLead()
	if best, ok := n.candidate(); ok {
		n.unled = "leads until another node takes over: " + what
		if n.lacksLog(best) {
			n.unled = fmt.Sprintf("leads until %s has the whole log (entry %d of %d): %s", best.Name, best.LogLast, n.nodes.Own.LogLast, what)
		}
		return
	}
	n.unled = fmt.Sprintf("leads and cannot open, %s; %s", what, n.nodes.whyNobody())
}
