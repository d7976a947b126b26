package role

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/cluster"
)

// Nodes whose mysqlds are so close to each other count as equally far, and their
// weights decide. What is known of them is as old as a poll of mysqld and a
// message between agents, half a second each: a smaller difference says nothing.
// Nor does what is committed meanwhile, at 4000 entries a second.
const (
	lagEqual     = 500 * time.Millisecond
	entriesEqual = 4096
)

// retryDoublings bounds the pause between two tries of a leader that never opens
// to hand over to the same node: RetryAfter, doubled so often.
const retryDoublings = 4

// mayLead tells whether this node may be opened for writes at all.
func (n *Node) mayLead() bool { return n.mayNotLead() == "" }

// mayNotLead says why this node may not be opened for writes; "" = it may.
func (n *Node) mayNotLead() string {
	switch {
	case n.cfg.Kind == cluster.KindLogger:
		return "it is a logger"
	case n.own.Weight == 0:
		return "its weight is 0"
	case n.held && n.heldFor != n.cfg.Self:
		if n.heldFor == 0 {
			return "maintenance is on, and no node was the primary when it began"
		}
		return fmt.Sprintf("maintenance is on, and %s may open alone", n.peer(n.heldFor).Name)
	case n.noLease != "":
		return n.noLease
	}
	return ""
}

// cannotLog says why nothing can be committed by this node's log; "" = it can. A disk
// that hangs shows in the node's own status. An open primary is fenced for it by a Doubt.
func (n *Node) cannotLog() string {
	if n.logTrouble == "" && n.own.LogBad {
		return "the log's disk does not answer"
	}
	return n.logTrouble
}

// handOver gives leadership away while mysqld here cannot serve soon, or never.
func (n *Node) handOver() {
	if !n.raft.Leading || n.now < n.transferAt || n.keepsLeading() {
		return
	}
	switch {
	case n.cannotLog() != "":
	case n.promoting(), n.phase == PhasePrimary, n.phase == PhaseClosing:
		n.servesBy = n.now + n.cfg.IdleLeaderTimeout
		return
	case !n.mayLead():
	case n.phase == PhaseReplica:
		// Ready: it tries itself once before it asks anybody.
		if !n.passed {
			return
		}
	case n.phase == PhaseVerified, n.phase == PhaseUnverified, n.phase == PhaseSettling, n.restarting():
		// About to promote, unless that has failed or takes too long.
		if !n.passed && n.now < n.servesBy {
			return
		}
	}
	n.transfer()
}

// transfer asks the best candidate to lead; with none it tries again later.
func (n *Node) transfer() {
	best, ok := n.candidate()
	n.passed = false
	if !ok {
		return
	}
	if !n.mayLead() && !n.stopping {
		if n.lacksLog(best) {
			return // as a follower it gets it; a transfer would only wait for it
		}
		at := n.askedAt(best.ID)
		if n.tries > 0 && at != 0 && n.now < at+n.cfg.RetryAfter<<min(n.tries-1, retryDoublings) {
			return // everybody was asked: less and less often
		}
	}
	n.transferTo(best, cmp.Or(n.cannotLog(), n.reason))
}

func (n *Node) transferTo(p Peer, why string) {
	n.transferAt = n.now + n.cfg.RetryAfter
	n.tries++
	n.spentTerm = n.raft.Term
	n.asked[p.ID] = n.now
	n.emit(Effect{Kind: Transfer, Term: n.raft.Term, To: p.ID, Reason: why})
}

// preferHeavier hands over to a heavier node that is as far as this one. That is
// before anything is opened, so it costs an election of a node that is ready, and
// only once in a term: a node that does not take it keeps nobody from serving.
func (n *Node) preferHeavier() bool {
	if n.weighedTerm == n.raft.Term || n.chosenTerm == n.raft.Term || n.keepsLeading() {
		return false
	}
	n.weighedTerm = n.raft.Term
	best, ok := n.candidate()
	if !ok || best.Weight <= n.own.Weight || n.askedAt(best.ID) != 0 || !best.asFarAs(n.own.Applied, n.own.Lag) {
		return false
	}
	n.transferTo(best, fmt.Sprintf("its weight is %d, this node's %d", best.Weight, n.own.Weight))
	return true
}

// awaitSuccessor hands over while the node stops; true = wait for it to be done.
func (n *Node) awaitSuccessor() bool {
	if !n.raft.Leading || n.now >= n.stopBy {
		return false
	}
	if n.now >= n.transferAt {
		n.transfer()
	}
	_, ok := n.candidate()
	return ok
}

// standing takes what is known of all nodes. A peer that came to be the primary
// counts as one that was never asked.
func (n *Node) standing(in Peers) {
	n.own, n.peers = in.Own, in.Peers
	n.held, n.heldFor, n.noLease = in.Held, in.HeldFor, in.NoLease
	for _, p := range in.Peers {
		if p.Role == cluster.RolePrimary {
			delete(n.asked, p.ID)
		}
	}
}

// unfit says why a node cannot take leadership over; "" = it can.
func (p Peer) unfit() string {
	switch {
	case p.Kind == cluster.KindLogger || p.Kind == cluster.KindLearner:
		return "is a " + string(p.Kind)
	case p.Weight == 0:
		return "has weight 0"
	case !p.Live:
		return "is not heard of"
	case p.LogBad:
		return "has trouble with its log"
	case p.Role != cluster.RoleReplica:
		return "is " + string(p.Role)
	case p.Stopped:
		return "does not apply"
	}
	return ""
}

// asFarAs tells whether a mysqld is about as far as one with this state.
func (p Peer) asFarAs(applied uint64, lag time.Duration) bool {
	return p.Applied+entriesEqual >= applied && p.Lag <= lag+lagEqual
}

// othersAreFurther tells whether a node that was not asked lately has applied more than
// this one: it must not wait until this one has as much. Lags say nothing here: inside
// of one transaction they grow, and a peer's is older than the own.
func (n *Node) othersAreFurther() bool {
	best, ok := n.candidate()
	return ok && n.askedAt(best.ID) == 0 && best.Applied > n.own.Applied
}

// lacksLog tells whether a node has to be sent much before it can win: raft gives
// a transfer up that takes longer than an election timeout.
func (n *Node) lacksLog(p Peer) bool { return p.LogLast+entriesEqual < n.own.LogLast }

// candidate returns the node to hand over to: a live replica that was not asked
// lately before one that was (and did not come to lead, or gave it back); of these
// the heaviest of those that are about as far as the furthest, then that one.
func (n *Node) candidate() (Peer, bool) {
	fit := slices.DeleteFunc(slices.Clone(n.peers), func(p Peer) bool {
		return p.ID == n.cfg.Self || p.unfit() != "" || n.held && p.ID != n.heldFor
	})
	if len(fit) == 0 {
		return Peer{}, false
	}
	first := n.askedAt(slices.MinFunc(fit, func(a, b Peer) int { return cmp.Compare(n.askedAt(a.ID), n.askedAt(b.ID)) }).ID)
	fit = slices.DeleteFunc(fit, func(p Peer) bool { return n.askedAt(p.ID) != first })
	furthest := slices.MaxFunc(fit, func(a, b Peer) int { return cmp.Compare(a.Applied, b.Applied) }).Applied
	// A lag is a node's own, by what it knows to be committed: only among those
	// whose logs go equally far it says something.
	fit = slices.DeleteFunc(fit, func(p Peer) bool { return p.Applied+entriesEqual < furthest })
	least := slices.MinFunc(fit, func(a, b Peer) int { return cmp.Compare(a.Lag, b.Lag) }).Lag
	fit = slices.DeleteFunc(fit, func(p Peer) bool { return !p.asFarAs(furthest, least) })
	return slices.MaxFunc(fit, func(a, b Peer) int {
		return cmp.Or(cmp.Compare(a.Weight, b.Weight), cmp.Compare(a.Applied, b.Applied),
			cmp.Compare(a.LogLast, b.LogLast), cmp.Compare(b.ID, a.ID))
	}), true
}

// askedAt is when a peer was asked to lead, 0 if that is long ago: it has had
// time for a promotion, and the nodes after it, too.
func (n *Node) askedAt(id cluster.NodeID) time.Duration {
	if at := n.asked[id]; n.now < at+4*n.cfg.PromotionTimeout {
		return at
	}
	return 0
}

// explain says that a node has no leader, or why it leads and never opens: a cluster
// without a primary should tell what it waits for.
func (n *Node) explain() {
	n.unled = ""
	switch {
	case n.raft.Leader == 0:
		if n.phase == PhaseUnverified || n.phase == PhaseReplica || n.phase == PhaseLogger {
			n.unled = "no leader: waiting for a majority"
		}
		return
	case !n.raft.Leading, n.phase == PhasePrimary, n.phase == PhaseClosing, n.mayLead():
		return
	}
	what := n.mayNotLead()
	if best, ok := n.candidate(); ok {
		n.unled = "leads until another node takes over: " + what
		if n.lacksLog(best) {
			n.unled = fmt.Sprintf("leads until %s has its log, %d of %d: %s", best.Name, best.LogLast, n.own.LogLast, what)
		}
		return
	}
	n.unled = fmt.Sprintf("leads and cannot open, %s; no other node can take over: %s", what, n.whyNobody())
}

// whyNobody says of each node why it cannot take over.
func (n *Node) whyNobody() string {
	why := []string{}
	for _, p := range n.peers {
		if p.Kind != cluster.KindLogger && p.Kind != cluster.KindLearner && (!n.held || p.ID == n.heldFor) {
			why = append(why, p.Name+" "+p.unfit())
		}
	}
	return cmp.Or(strings.Join(why, ", "), "there is none")
}
