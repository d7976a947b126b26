package role

import (
	"cmp"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/cluster"
)

// plan is what an operator asked for: writes are closed in order, and then leadership
// moves, or mysqld starts again.
type plan struct {
	to  cluster.NodeID // 0 = nowhere: mysqld starts again here
	why string
}

// move begins a switchover. Only a primary can do that.
func (n *Machine) move(in Move) {
	p, ok := n.phase.(primary)
	if why := n.notNow(); why != "" || !ok {
		n.planEnded(cmp.Or(why, "this node is not the primary but "+string(n.Phase())))
		return
	}
	n.begin(closing{term: p.term, plan: &plan{to: in.To, why: in.Reason}}, Effect{Kind: CloseWrites, Term: p.term, To: in.To})
}

// restart begins to start mysqld again. A primary closes writes first, and the node stays the leader meanwhile.
func (n *Machine) restart(in Restart) {
	why := n.noRestart()
	if why != "" || in.DryRun {
		n.planEnded(why)
		return
	}
	p, ok := n.phase.(primary)
	if ok {
		n.keepsBy = n.now + n.cfg.PromotionTimeout
	}
	n.begin(closing{term: p.term, plan: &plan{why: in.Reason}}, Effect{Kind: CloseWrites, Term: p.term})
}

// noRestart says why mysqld cannot be started again here by plan; "" = it can.
func (n *Machine) noRestart() string {
	switch why := n.notNow(); {
	case why != "":
		return why
	case n.Phase() == PhasePrimary, n.Phase() == PhaseReplica && !n.raft.Leading:
		return ""
	case n.Phase() == PhaseReplica:
		return "it was elected, and is about to be the primary: ask again"
	}
	why := fmt.Sprintf("only the mysqld of a replica or of the primary can be started again, and it is %s", n.Role())
	if n.Reason() != "" {
		why += ": " + n.Reason()
	}
	return why
}

// notNow says why no plan can begin; "" = it can.
func (n *Machine) notNow() string {
	switch {
	case n.stopping:
		return "the agent stops"
	case n.planned():
		return "another switchover or restart is under way"
	case n.op != 0:
		return fmt.Sprintf("its mysqld is %s now: %s is under way", n.Phase(), n.opKind)
	}
	return ""
}

func (n *Machine) planned() bool {
	switch p := n.phase.(type) {
	case closing:
		return p.plan != nil
	case awaiting, reopening:
		return true
	case ending:
		return p.planned
	}
	return false
}

// planEnded tells the operator how the plan ended: "" = as it should.
func (n *Machine) planEnded(reason string) { n.emit(Effect{Kind: PlanEnded, Reason: reason}) }

// closing: CloseWrites is under way, for a plan or because the agent stops.
type closing struct {
	plain
	term uint64 // of a primary; 0 = mysqld was not open
	plan *plan  // nil = the agent stops
}

func (closing) name() Phase { return PhaseClosing }

func (p closing) check(n *Machine) {
	if why := n.cannotCommit(p.term); p.term != 0 && why != "" {
		n.fence(why)
	}
}

// cannotCommit says why sessions of this term's primary would wait for ACKs that cannot come; "" = ACKs can
// come.
func (n *Machine) cannotCommit(term uint64) string {
	if !n.leads(term) {
		return lostLeadership(term)
	}
	return n.logTrouble
}

// done goes on with the plan: no session waits for an ACK any more.
func (p closing) done(n *Machine, _ Done) {
	switch {
	case n.stopping:
		if p.plan != nil {
			n.planEnded("the agent stops")
		}
		n.unserve(p.term)
		n.phase = closed{}
	case p.plan.to == 0:
		n.unserve(p.term)
		n.begin(ending{Phase: PhaseStopping, planned: true}, Effect{Kind: StopMysqld, Reason: p.plan.why})
	default:
		n.begin(awaiting{p}, Effect{Kind: AwaitTarget, Term: p.term, To: p.plan.to})
	}
}

func (p closing) failed(n *Machine, in Done) {
	if p.plan != nil && !n.stopping && n.leads(p.term) {
		n.callOff(p.term, in.Reason)
		return
	}
	n.fence(in.Reason)
}

func (p closing) leave(n *Machine, why string) {
	n.unserve(p.term)
	if p.plan != nil {
		n.planEnded(why)
	}
}

// awaiting: writes are closed for a switchover, and AwaitTarget is under way.
type awaiting struct{ closing }

func (p awaiting) check(n *Machine) {
	switch {
	case n.leads(p.term):
	case n.binlogsInVain():
		n.fence(inVain)
	default:
		why := lostLeadership(p.term)
		n.planEnded(why)
		n.phase = closed{tap: p.term}
		n.replicateAgain(why, PhaseUnverified)
	}
}

// done hands leadership over: the other node has everything. mysqld here was never
// stopped, and goes on as a replica.
func (p awaiting) done(n *Machine, _ Done) {
	n.unserve(p.term)
	n.phase = closed{}
	if n.stopping {
		n.planEnded("the agent stops")
		return
	}
	n.planEnded("")
	n.transferTo(n.nodes.peer(p.plan.to), p.plan.why)
	n.replicateAgain(p.plan.why, PhaseUnverified)
}

func (p awaiting) failed(n *Machine, in Done) {
	if n.stopping {
		p.done(n, in) // writes are closed already
		return
	}
	n.callOff(p.term, in.Reason)
}

// reopening: the plan has failed. OpenWrites is under way, in the same epoch.
type reopening struct {
	plain
	term uint64
	why  string
	by   time.Duration
}

// callOff opens writes again.
func (n *Machine) callOff(term uint64, why string) {
	n.begin(reopening{term: term, why: why, by: n.now + n.cfg.PromotionTimeout}, Effect{Kind: OpenWrites, Term: term, Reason: why})
}

func (reopening) name() Phase { return PhaseClosing }

func (p reopening) check(n *Machine) {
	if why := n.cannotCommit(p.term); why != "" {
		n.fence(why)
	} else if n.now >= p.by {
		n.fence("writes could not be opened again: " + p.why)
	}
}

func (p reopening) done(n *Machine, _ Done) {
	n.serve(p.term)
	n.planEnded(p.why)
}

func (p reopening) leave(n *Machine, _ string) {
	n.unserve(p.term)
	n.planEnded(p.why)
}

// closed: no session waits for an ACK. Either the agent stops, or mysqld replicates at once.
type closed struct {
	plain
	tap uint64 // the term of a tap that is still open; 0 = no tap is open
}

func (closed) name() Phase { return PhaseClosing }

func (closed) stop(n *Machine) {
	if !n.awaitSuccessor() {
		n.begin(ending{Phase: PhaseStopping}, Effect{Kind: StopMysqld})
	}
}

func (p closed) leave(n *Machine, _ string) { n.unserve(p.tap) }
