package role

import (
	"fmt"
	"time"
)

// promotion makes a replica the primary of a term, up to the commit of its epoch. mysqld is read-only all the
// time, so after any failure it simply replicates again.
type promotion struct {
	plain
	Phase // PhaseCatchingUp, PhaseJudging, PhaseTapping, or PhaseEpoch
	term  uint64
	// by is when the promotion has taken too long. Progress postpones it.
	by time.Duration
}

// promote begins a promotion. If this term can have no epoch any more, it resigns first.
func (n *Machine) promote() {
	if !n.raft.Leading || n.now < n.tenure.transferAt || n.cannotLog() != "" || !n.mayLead() {
		return
	}
	if n.preferHeavier() {
		return
	}
	if n.tenure.spent {
		n.tenure.transferAt = n.now + n.cfg.RetryAfter
		n.emit(Effect{Kind: Resign, Term: n.raft.Term})
		return
	}
	p := &promotion{term: n.raft.Term, by: n.now + n.cfg.PromotionTimeout}
	p.begin(n, PhaseCatchingUp, Effect{Kind: CatchUp})
}

func (p *promotion) begin(n *Machine, step Phase, e Effect) {
	p.Phase, e.Term = step, p.term
	n.begin(p, e)
}

func (p *promotion) done(n *Machine, _ Done) {
	switch p.Phase {
	case PhaseCatchingUp:
		p.begin(n, PhaseJudging, Effect{Kind: Judge, Promote: true})
	case PhaseJudging:
		p.begin(n, PhaseTapping, Effect{Kind: OpenTap})
	case PhaseTapping:
		p.begin(n, PhaseEpoch, Effect{Kind: CommitEpoch})
		n.tenure.spent = true
	case PhaseEpoch:
		n.begin(opening{term: p.term, by: p.by}, Effect{Kind: OpenWrites, Term: p.term})
	}
}

func (p *promotion) failed(n *Machine, in Done) {
	switch {
	case in.Verdict == Errant:
		n.kill(ending{Phase: PhaseErrant}, in.Reason)
	case in.Verdict == XAPending && !n.mysqld.replicaBinlog:
		n.tenure.restarts = true
		n.tenure.servesBy = n.now + n.cfg.PromotionTimeout
		// This node keeps leadership.
		n.begin(ending{Phase: PhaseKilling}, Effect{Kind: KillMysqld, Reason: in.Reason})
	case in.Verdict == Unfit && p.Phase == PhaseCatchingUp:
		n.kill(ending{Phase: PhaseKilling, doubted: true}, in.Reason)
	case in.Verdict == ApplierStopped:
		p.giveUp(n, in.Reason, PhaseUnverified)
	default:
		p.giveUp(n, in.Reason, p.before())
	}
}

func (p *promotion) check(n *Machine) {
	switch why := n.cannotLog(); {
	case why != "":
		p.giveUp(n, why, p.before())
	case !n.leads(p.term):
		n.replicateAgain(lostLeadership(p.term), p.before())
	case !n.mayLead():
		p.giveUp(n, n.mayNotLead(), p.before())
	case n.now >= p.by:
		p.tooLate(n)
	}
}

func (p *promotion) leave(n *Machine, _ string) {
	if p.Phase == PhaseTapping || p.Phase == PhaseEpoch {
		n.emit(Effect{Kind: CloseTap})
	}
}

func (*promotion) stop(n *Machine) { n.closeUnopened() }

// before is the phase in which mysqld goes on without the promotion. During the catch-up it is still a replica,
// and goes on with the transaction that it applies. If replication were set up again, that transaction would
// begin from its start.
func (p *promotion) before() Phase {
	if p.Phase == PhaseCatchingUp {
		return PhaseReplica
	}
	return PhaseUnverified
}

// giveUp ends the promotion: mysqld replicates again, and another node is asked to lead.
func (p *promotion) giveUp(n *Machine, reason string, from Phase) {
	n.reason = reason
	n.tenure.passed = true
	n.retryAt = n.now + n.cfg.RetryAfter
	n.replicateAgain(reason, from)
}

// progress postpones the limit of a catch-up.
func (n *Machine) progress() {
	n.mysqld.still = 0
	if p, ok := n.phase.(*promotion); ok && p.Phase == PhaseCatchingUp && !n.othersAreFurther() {
		p.by = n.now + n.cfg.PromotionTimeout
	}
}

// tooLate ends a promotion that got no further within its limit.
func (p *promotion) tooLate(n *Machine) {
	best, others := n.candidate()
	catchesUp := p.Phase == PhaseCatchingUp
	why := n.gotNoFurther(p.Phase)
	if catchesUp && n.othersAreFurther() {
		why = fmt.Sprintf("node %s has applied more, and this node did not finish within %s", best.Name, n.cfg.PromotionTimeout)
	}
	switch {
	case catchesUp && n.mysqld.standsStill(n.nodes.Own.Applied):
		n.mysqld.still = 0
		p.giveUp(n, why, PhaseUnverified)
	case catchesUp && n.mysqld.replicaBinlog && !others:
		// A kill would throw away the work of this mysqld, and no other node could lead.
		n.reason, p.by = why, n.now+n.cfg.PromotionTimeout
	default:
		p.giveUp(n, why, p.before())
	}
}

func (n *Machine) gotNoFurther(step Phase) string {
	return fmt.Sprintf("the promotion made no progress for %s in phase %s", n.cfg.PromotionTimeout, step)
}

func lostLeadership(term uint64) string { return fmt.Sprintf("lost leadership of term %d", term) }

// stillMax is the number of promotion timeouts that a catch-up may pass without progress. Then replication is
// set up again, because something hangs.
const stillMax = 3

// standsStill counts one more promotion timeout, and tells whether the catch-up got nowhere in the last
// stillMax of them.
func (m *process) standsStill(applied uint64) bool {
	if applied != m.stillAt {
		m.still = 0
	}
	m.still, m.stillAt = m.still+1, applied
	return m.still >= stillMax
}

// opening: OpenWrites is under way, and sessions of mysqld may wait for an ACK. If anything goes wrong from
// here on, mysqld is killed.
type opening struct {
	plain
	term uint64
	by   time.Duration // the limit of the promotion
}

func (opening) name() Phase { return PhaseOpening }

func (p opening) check(n *Machine) {
	switch {
	case !n.leads(p.term):
		n.fence(lostLeadership(p.term))
	case n.cannotLog() != "":
		n.fence(n.cannotLog())
	case n.now >= p.by:
		n.fence(n.gotNoFurther(PhaseOpening))
	}
}

func (p opening) done(n *Machine, _ Done) { n.serve(p.term) }

func (opening) stop(n *Machine) { n.fence("the agent stops") }

func (opening) leave(n *Machine, _ string) { n.emit(Effect{Kind: CloseTap}) }
