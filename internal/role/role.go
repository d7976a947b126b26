package role

import (
	"cmp"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/sys/invariant"
)

// Node is the state machine. Build it with New.
type Node struct {
	cfg   Config
	now   time.Duration
	raft  RaftChanged
	own   Peer
	peers []Peer

	phase       Phase
	incarnation uint64
	// exited is the newest incarnation that is known to have ended: its end may
	// be reported before its start is.
	exitedUpTo uint64
	// startedAt is when it was ready, crashes how often one ended soon after that.
	startedAt time.Duration
	crashes   int
	// doubted: the mysqld that is being killed is killed for a doubt about it.
	doubted bool
	reason  string // why the phase is not what one would like
	unled   string // why a node leads that never opens; "" = it does not

	op     OpID // under way; 0 = none
	opKind Kind
	lastOp OpID

	// retryAt holds the next attempt back; transferAt the next transfer.
	retryAt, transferAt time.Duration
	// term is the one for which the promotion runs or the primary serves.
	term uint64
	// promoteBy is when the promotion under way has taken too long; progress
	// puts it off.
	promoteBy time.Duration
	// still counts the promotion timeouts in which a catch-up got nowhere, since
	// Progress or a new mysqld, while stillAt was what it had applied.
	still   int
	stillAt uint64
	// servesBy is when a leader that does not even promote its mysqld has to
	// look for another one; 0 = it does not lead.
	servesBy time.Duration
	// asked holds when each peer was last asked to lead, so that a node that fails
	// is not asked again before the others were.
	asked map[cluster.NodeID]time.Duration
	// spentTerm can open no epoch any more: it had one, or a transfer.
	spentTerm uint64
	// tries counts the hand-overs of this term that came to nothing so far, and
	// weighedTerm is the newest in which a heavier node was looked for.
	tries       int
	weighedTerm uint64
	// passed notes that the promotion failed here and another node should try.
	passed bool

	// restartTerm is the term in which the promotion has to go on with a mysqld
	// whose applier binlogs; 0 = none. replicaBinlog: the newest mysqld is one.
	restartTerm   uint64
	replicaBinlog bool

	// logTrouble says why the log takes no entries; "" = it does.
	logTrouble string

	stopping bool
	stopBy   time.Duration
	// settleBy is when a deposed primary has to be settled.
	settleBy time.Duration
	// plan is the operator's that is under way, nil = none. keepsBy bounds how long
	// leadership is kept for it. chosenTerm is the newest that an operator gave to
	// this node. fencedBy says why an operator wants no mysqld here; "" = he does.
	plan       *plan
	keepsBy    time.Duration
	chosenTerm uint64
	fencedBy   string
	// held: maintenance is on, and heldFor is the node that may open.
	held    bool
	heldFor cluster.NodeID
	// noLease is Peers.NoLease.
	noLease string

	// open: sessions of mysqld may wait for an ACK. From the moment that writes
	// may have been opened until CloseWrites was OK or the process has ended.
	open    bool
	tapOpen bool

	out []Effect
}

// New returns a node whose mysqld is down, or a logger.
func New(cfg Config) *Node {
	n := &Node{cfg: cfg, phase: PhaseDown, asked: map[cluster.NodeID]time.Duration{}}
	n.own = Peer{ID: cfg.Self, Kind: cfg.Kind, Weight: cfg.Weight}
	if cfg.Kind == cluster.KindLogger {
		n.phase = PhaseLogger
	}
	return n
}

// Phase returns the node's phase.
func (n *Node) Phase() Phase { return n.phase }

// Reason says why the node is in its phase or what it waits for; "" = all well.
func (n *Node) Reason() string { return cmp.Or(n.unled, n.reason) }

// Role returns the phase as people read it.
func (n *Node) Role() cluster.Role {
	switch n.phase {
	case PhaseUnverified, PhaseVerified:
		return cluster.RoleUnverified
	case PhaseReplica:
		return cluster.RoleReplica
	case PhaseCatchingUp, PhaseJudging, PhaseTapping, PhaseEpoch, PhaseOpening:
		return cluster.RolePromoting
	case PhasePrimary:
		return cluster.RolePrimary
	case PhaseClosing, PhaseSettling, PhaseKilling, PhaseStopping, PhaseEnded:
		return cluster.RoleDemoting
	case PhaseErrant:
		return cluster.RoleErrant
	case PhaseFenced:
		return cluster.RoleFenced
	case PhaseLogger:
		return cluster.RoleLogger
	}
	return cluster.RoleStarting
}

// Idle tells that time alone changes nothing: a Tick may wait, but must come before the
// next input.
func (n *Node) Idle() bool {
	if n.op != 0 || n.plan != nil || n.stopping || n.cannotLog() != "" || n.now < n.retryAt {
		return false
	}
	switch n.phase {
	case PhaseReplica, PhaseLogger:
		return n.raft.Leader != 0 && !n.raft.Leading
	case PhasePrimary:
		return n.leadsTerm()
	}
	return false
}

// Step takes one input and returns what follows from it, in order.
func (n *Node) Step(in Input) []Effect {
	n.out = nil
	if _, ok := in.(Tick); ok && n.Idle() {
		defer func(phase Phase, reason string) {
			invariant.Check(len(n.out) == 0 && n.phase == phase && n.Reason() == reason, "role",
				"a tick changes an idle node: %s, %q, then %s, %q", phase, reason, n.phase, n.Reason())
		}(n.phase, n.Reason())
	}
	switch in := in.(type) {
	case Tick:
		n.now = in.Now
	case RaftChanged:
		if in.Term != n.raft.Term {
			n.transferAt, n.tries = 0, 0 // the pause was for the old term
			n.servesBy = n.now + n.cfg.IdleLeaderTimeout
		}
		n.raft = in
		n.passed = n.passed && in.Leading
	case Peers:
		n.standing(in)
	case Stop:
		n.stop()
	case Move:
		n.move(in)
	case Restart:
		n.restart(in)
	case Chosen:
		n.chosenTerm = in.Term
	case Fenced:
		if in.Reason == "" && n.reason == n.fencedBy {
			n.reason = "" // it starts, and not for being fenced
		}
		n.fencedBy = in.Reason
	case Progress:
		n.still = 0
		if n.phase == PhaseCatchingUp && !n.othersAreFurther() {
			n.promoteBy = n.now + n.cfg.PromotionTimeout
		}
	case MysqldExited:
		n.exited(in)
	case Doubt:
		n.doubt(in)
	case LogTrouble:
		n.logTrouble = in.Reason
	case Done:
		n.done(in)
	}
	n.advance()
	return n.out
}

func (n *Node) emit(e Effect) { n.out = append(n.out, e) }

// begin starts an operation. There is never more than one.
func (n *Node) begin(phase Phase, e Effect) {
	invariant.Check(n.op == 0, "role", "%s while operation %d (%s) is under way", e, n.op, n.opKind)
	n.lastOp++
	e.Op = n.lastOp
	n.phase, n.op, n.opKind = phase, e.Op, e.Kind
	n.emit(e)
}

func (n *Node) cancel() {
	if n.op != 0 {
		n.emit(Effect{Kind: Cancel, Op: n.op})
		n.op, n.opKind = 0, ""
	}
}

func (n *Node) promoting() bool {
	switch n.phase {
	case PhaseCatchingUp, PhaseJudging, PhaseTapping, PhaseEpoch, PhaseOpening:
		return true
	}
	return false
}

// leadsTerm tells whether this node still leads in the term of its promotion.
func (n *Node) leadsTerm() bool { return n.raft.Leading && n.raft.Term == n.term }

// fence ends whatever mysqld does by SIGKILL, the one way that is always right.
func (n *Node) fence(reason string) {
	n.unserve()
	n.endPlan(reason)
	n.keepsBy = 0
	n.cancel()
	n.reason = reason
	n.begin(PhaseKilling, Effect{Kind: KillMysqld, Reason: reason})
}

// unserve closes the router first, then the tap.
func (n *Node) unserve() {
	if n.phase == PhasePrimary || n.phase == PhaseClosing || n.phase == PhaseSettling {
		n.emit(Effect{Kind: Unserve})
	}
	if n.tapOpen {
		n.tapOpen = false
		n.emit(Effect{Kind: CloseTap})
	}
}

// ending tells that an operation is under way whose Done says that mysqld has
// ended.
func (n *Node) ending() bool { return n.opKind == KillMysqld || n.opKind == StopMysqld }

func (n *Node) exited(in MysqldExited) {
	n.exitedUpTo = max(n.exitedUpTo, in.Incarnation)
	if in.Incarnation != n.incarnation || n.incarnation == 0 || n.ending() {
		return
	}
	n.unserve()
	n.endPlan(in.Reason)
	n.keepsBy = 0
	n.cancel()
	n.incarnation, n.open = 0, false
	n.reason = in.Reason
	n.phase = PhaseDown
	n.crashed()
}

func (n *Node) doubt(in Doubt) {
	if in.Incarnation != n.incarnation || n.incarnation == 0 || n.ending() {
		return
	}
	n.fence(in.Reason)
	n.doubted = true
}

func (n *Node) stop() {
	if !n.stopping {
		n.stopping = true
		n.stopBy = n.now + n.cfg.StopTimeout
	}
}

// done takes the outcome of the operation under way.
func (n *Node) done(in Done) {
	if in.Op != n.op || n.op == 0 {
		return
	}
	kind := n.opKind
	n.op, n.opKind = 0, ""
	if in.Verdict != OK {
		n.failed(kind, in)
		return
	}
	switch kind {
	case StartMysqld:
		if in.Incarnation <= n.exitedUpTo {
			n.phase, n.retryAt = PhaseDown, n.now+n.cfg.RetryAfter
			return
		}
		n.phase, n.incarnation = PhaseUnverified, in.Incarnation
		n.retryAt, n.startedAt, n.still = 0, n.now, 0
	case Judge:
		if n.phase == PhaseJudging {
			n.begin(PhaseTapping, Effect{Kind: OpenTap, Term: n.term})
			n.tapOpen = true
			return
		}
		n.phase = PhaseVerified
	case Replicate:
		n.phase, n.reason = PhaseReplica, ""
	case CatchUp:
		n.begin(PhaseJudging, Effect{Kind: Judge, Term: n.term, Promote: true})
	case OpenTap:
		n.begin(PhaseEpoch, Effect{Kind: CommitEpoch, Term: n.term})
		n.spentTerm = n.term
	case CommitEpoch:
		n.open = true
		n.begin(PhaseOpening, Effect{Kind: OpenWrites, Term: n.term})
	case OpenWrites:
		n.phase, n.reason, n.keepsBy = PhasePrimary, "", 0
		n.emit(Effect{Kind: Serve, Term: n.term})
		n.endPlan("")
	case CloseWrites:
		n.open = false
		if !n.writesClosed() {
			n.unserve()
		}
	case Settle:
		n.settled()
	case AwaitTarget:
		n.targetReady()
	case KillMysqld, StopMysqld:
		n.ended()
	}
}

// ended follows the end of a mysqld that was told to end.
func (n *Node) ended() {
	if n.steady() {
		n.crashes = 0
	}
	n.incarnation, n.open, n.tapOpen = 0, false, false
	n.endPlan("")
	if n.phase != PhaseErrant && n.phase != PhaseFenced {
		n.phase = PhaseDown
		if n.doubted {
			n.crashed()
		}
	}
	n.doubted = false
}

// failed follows an operation that did not succeed.
func (n *Node) failed(kind Kind, in Done) {
	n.reason = in.Reason
	switch {
	case n.planFails(kind, in.Reason):
	case kind == StartMysqld:
		n.phase, n.retryAt, n.keepsBy = PhaseFenced, n.now+n.cfg.FencedAfter, 0
	case in.Verdict == Errant:
		n.keepsBy = 0
		n.unserve()
		n.begin(PhaseErrant, Effect{Kind: KillMysqld, Reason: in.Reason})
	case in.Verdict == XAPending && !n.replicaBinlog:
		n.restartTerm = n.term
		n.servesBy = n.now + n.cfg.PromotionTimeout
		n.begin(PhaseKilling, Effect{Kind: KillMysqld, Reason: in.Reason})
	case in.Verdict == Unfit && !n.promoting():
		n.keepsBy = 0
		n.unserve()
		n.begin(PhaseFenced, Effect{Kind: KillMysqld, Reason: in.Reason})
		n.retryAt = n.now + n.cfg.FencedAfter
	case kind == OpenWrites, kind == CloseWrites, kind == Settle:
		n.fence(in.Reason)
	case kind == KillMysqld, kind == StopMysqld:
		// It cannot fail to end: the shell waits for the process. A failure
		// means that the agent itself is ending.
		n.ended()
	case n.promoting():
		n.giveUp(in.Reason)
		if in.Verdict == ApplierStopped && n.phase == PhaseReplica {
			n.phase = PhaseUnverified
		}
	default:
		n.phase, n.retryAt = PhaseUnverified, n.now+n.cfg.RetryAfter
	}
}

// giveUp ends a promotion before writes were opened: mysqld replicates again
// and another node is asked to lead.
func (n *Node) giveUp(reason string) {
	n.reason = reason
	n.passed = true
	n.retryAt = n.now + n.cfg.RetryAfter
	n.replicateAgain(reason)
}

// replicateAgain ends a promotion. An applier that binlogs would wait for an
// ACK, so such a mysqld has to end. While it catches up mysqld is still a replica, and
// goes on with what it is at: set up anew it would begin that from its start.
func (n *Node) replicateAgain(why string) {
	if n.replicaBinlog {
		n.fence(why)
		return
	}
	n.cancel()
	n.unserve()
	if n.phase == PhaseCatchingUp {
		n.phase = PhaseReplica
	} else {
		n.phase = PhaseUnverified
	}
}

// stillMax is for how many promotion timeouts a catch-up may get nowhere before what
// hangs is set up anew.
const stillMax = 3

// standsStill counts a promotion timeout, and tells whether the catch-up got nowhere
// in so many.
func (n *Node) standsStill() bool {
	if n.phase != PhaseCatchingUp {
		return false
	}
	if n.own.Applied != n.stillAt {
		n.still = 0
	}
	n.still, n.stillAt = n.still+1, n.own.Applied
	return n.still >= stillMax
}

// tooLate ends a promotion that got no further within its limit.
func (n *Node) tooLate() {
	why := fmt.Sprintf("promotion got no further for %s in phase %s", n.cfg.PromotionTimeout, n.phase)
	best, others := n.candidate()
	if n.phase == PhaseCatchingUp && n.othersAreFurther() {
		why = fmt.Sprintf("%s has applied more, and this node was not done within %s", best.Name, n.cfg.PromotionTimeout)
	}
	switch {
	case n.phase == PhaseOpening:
		n.fence(why)
	case n.standsStill():
		n.still = 0
		n.giveUp(why)
		if n.phase == PhaseReplica {
			n.phase = PhaseUnverified
		}
	case n.phase == PhaseCatchingUp && n.replicaBinlog && !others:
		// To kill it would throw away what it is at, for nobody.
		n.reason, n.promoteBy = why, n.now+n.cfg.PromotionTimeout
	default:
		n.giveUp(why)
	}
}

// startMysqld starts a mysqld, one whose applier binlogs if that is what the
// promotion in this term needs.
func (n *Node) startMysqld() {
	n.replicaBinlog = n.restarting()
	n.restartTerm = 0
	n.begin(PhaseStarting, Effect{Kind: StartMysqld, ReplicaBinlog: n.replicaBinlog})
}

// restarting tells whether the promotion in this term waits for a mysqld whose
// applier binlogs.
func (n *Node) restarting() bool {
	return n.raft.Leading && n.restartTerm == n.raft.Term ||
		n.phase == PhaseStarting && n.replicaBinlog
}

// advance does what the state asks for.
func (n *Node) advance() {
	switch {
	case n.phase == PhaseSettling:
		n.advanceSettling()
	case n.open && n.phase != PhaseKilling && !n.leadsTerm():
		n.deposed()
	case n.open && n.phase != PhaseKilling && n.logTrouble != "":
		n.fence(n.logTrouble) // its sessions wait for a commit that cannot come
	case n.phase == PhaseOpening && n.cannotLog() != "":
		n.fence(n.cannotLog()) // its sessions may wait for an ACK already
	case n.promoting() && n.cannotLog() != "":
		n.giveUp(n.cannotLog())
	case n.promoting() && !n.leadsTerm():
		n.replicateAgain(fmt.Sprintf("lost leadership of term %d", n.term))
	case n.promoting() && n.phase != PhaseOpening && !n.mayLead():
		n.giveUp(n.mayNotLead())
	case n.replicaBinlog && n.incarnation != 0 && !n.raft.Leading && !n.stopping && !n.ending():
		n.fence("the applier must not go on binlogging without a promotion")
	case n.promoting() && n.now >= n.promoteBy:
		n.tooLate()
	}
	n.advancePlan()
	if n.fencedBy != "" && n.incarnation != 0 && !n.ending() && !n.stopping {
		n.fence(n.fencedBy)
	}
	if n.stopping {
		n.unled = ""
		n.advanceStop()
		return
	}
	n.handOver()
	n.explain()
	if n.op != 0 || n.now < n.retryAt {
		return
	}
	if n.fencedBy != "" && (n.phase == PhaseDown || n.phase == PhaseFenced) {
		n.phase, n.reason = PhaseFenced, n.fencedBy
		return
	}
	switch n.phase {
	case PhaseDown:
		n.startMysqld()
	case PhaseFenced:
		n.phase = PhaseDown
		n.startMysqld()
	case PhaseUnverified:
		if n.raft.Leader != 0 {
			n.begin(PhaseUnverified, Effect{Kind: Judge})
		}
	case PhaseVerified:
		n.begin(PhaseVerified, Effect{Kind: Replicate})
	case PhaseReplica:
		if !n.raft.Leading {
			n.reason = "" // why a promotion ended is of no interest any more
		}
		n.promote()
	}
}

// promote begins a promotion, in a term that can still have an epoch.
func (n *Node) promote() {
	if !n.raft.Leading || n.now < n.transferAt || n.cannotLog() != "" || !n.mayLead() {
		return
	}
	if n.preferHeavier() {
		return
	}
	if n.raft.Term == n.spentTerm {
		n.transferAt = n.now + n.cfg.RetryAfter
		n.emit(Effect{Kind: Resign, Term: n.raft.Term})
		return
	}
	n.term = n.raft.Term
	n.promoteBy = n.now + n.cfg.PromotionTimeout
	n.begin(PhaseCatchingUp, Effect{Kind: CatchUp, Term: n.term})
}

// advanceStop brings the node to its end: writes closed, leadership handed
// over, mysqld stopped.
func (n *Node) advanceStop() {
	switch n.phase {
	case PhasePrimary:
		n.begin(PhaseClosing, Effect{Kind: CloseWrites, Term: n.term})
		return
	case PhaseClosing:
		if n.op != 0 {
			return
		}
		if n.awaitSuccessor() {
			return
		}
		n.begin(PhaseStopping, Effect{Kind: StopMysqld})
		return
	case PhaseKilling, PhaseStopping, PhaseEnded:
		return
	case PhaseErrant, PhaseFenced, PhaseDown, PhaseLogger:
		if n.phase == PhaseLogger && n.awaitSuccessor() {
			return
		}
		if n.op == 0 {
			n.phase = PhaseEnded
			n.emit(Effect{Kind: Exit})
		}
		return
	}
	n.stopReadOnly()
}

// stopReadOnly ends a mysqld that was not opened for writes in this incarnation.
func (n *Node) stopReadOnly() {
	if n.phase == PhaseStarting || n.phase == PhaseOpening {
		n.fence("the agent stops")
		return
	}
	n.cancel()
	n.unserve()
	n.begin(PhaseClosing, Effect{Kind: CloseWrites})
}
