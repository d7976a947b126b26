package core

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/invariant"
)

// Node is the state machine. Build it with New.
type Node struct {
	cfg   Config
	now   time.Duration
	raft  RaftChanged
	peers []Peer

	phase       Phase
	incarnation uint64
	// exited is the newest incarnation that is known to have ended: its end may
	// be reported before its start is.
	exitedUpTo uint64
	reason     string // why the phase is not what one would like

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
	// servesBy is when a leader that does not even promote its mysqld has to
	// look for another one; 0 = it does not lead.
	servesBy time.Duration
	// asked holds when each peer was last asked to lead, so that one that fails
	// is not asked again before the others were.
	asked map[cluster.NodeID]time.Duration
	// spentTerm can open no epoch any more: it had one, or a transfer.
	spentTerm uint64
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
	// open: sessions of mysqld may wait for an ACK. From the moment that writes
	// may have been opened until CloseWrites was OK or the process has ended.
	open    bool
	tapOpen bool

	out []Effect
}

// New returns a node whose mysqld is down.
func New(cfg Config) *Node {
	return &Node{cfg: cfg, phase: PhaseDown, asked: map[cluster.NodeID]time.Duration{}}
}

// Phase returns the node's phase.
func (n *Node) Phase() Phase { return n.phase }

// Reason says why the node is in its phase or what it waits for; "" = all well.
func (n *Node) Reason() string { return n.reason }

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
	case PhaseClosing, PhaseKilling, PhaseStopping, PhaseEnded:
		return cluster.RoleDemoting
	case PhaseErrant:
		return cluster.RoleErrant
	case PhaseFenced:
		return cluster.RoleFenced
	}
	return cluster.RoleStarting
}

// Step takes one input and returns what follows from it, in order.
func (n *Node) Step(in Input) []Effect {
	n.out = nil
	switch in := in.(type) {
	case Tick:
		n.now = in.Now
	case RaftChanged:
		if in.Term != n.raft.Term {
			n.transferAt = 0 // the pause was for the old term
			n.servesBy = n.now + n.cfg.IdleLeaderTimeout
		}
		n.raft = in
		n.passed = n.passed && in.Leading
	case Peers:
		n.peers = in.Peers
	case Stop:
		n.stop()
	case Progress:
		// Only while there is nobody left to ask: a node that has applied
		// everything must not wait for one that has far to go.
		if best, ok := n.candidate(); n.phase == PhaseCatchingUp && (!ok || n.askedAt(best.ID) != 0) {
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
	invariant.Check(n.op == 0, "core", "%s while operation %d (%s) is under way", e, n.op, n.opKind)
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
	n.cancel()
	n.reason = reason
	n.begin(PhaseKilling, Effect{Kind: KillMysqld, Reason: reason})
}

// unserve closes the router first, then the tap.
func (n *Node) unserve() {
	if n.phase == PhasePrimary || n.phase == PhaseClosing {
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
	n.cancel()
	n.incarnation, n.open = 0, false
	n.reason = in.Reason
	n.phase = PhaseDown
}

func (n *Node) doubt(in Doubt) {
	if in.Incarnation != n.incarnation || n.incarnation == 0 || n.ending() {
		return
	}
	n.fence(in.Reason)
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
		n.retryAt = 0
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
		n.phase, n.reason = PhasePrimary, ""
		n.emit(Effect{Kind: Serve, Term: n.term})
	case CloseWrites:
		n.open = false
		n.unserve()
	case KillMysqld, StopMysqld:
		n.ended()
	}
}

// ended follows the end of a mysqld that was told to end.
func (n *Node) ended() {
	n.incarnation, n.open, n.tapOpen = 0, false, false
	if n.phase != PhaseErrant && n.phase != PhaseFenced {
		n.phase = PhaseDown
	}
}

// failed follows an operation that did not succeed.
func (n *Node) failed(kind Kind, in Done) {
	n.reason = in.Reason
	switch {
	case kind == StartMysqld:
		n.phase, n.retryAt = PhaseFenced, n.now+n.cfg.FencedAfter
	case in.Verdict == Errant:
		n.unserve()
		n.begin(PhaseErrant, Effect{Kind: KillMysqld, Reason: in.Reason})
	case in.Verdict == XAPending && !n.replicaBinlog:
		n.restartTerm = n.term
		n.servesBy = n.now + n.cfg.PromotionTimeout
		n.begin(PhaseKilling, Effect{Kind: KillMysqld, Reason: in.Reason})
	case in.Verdict == Unfit && !n.promoting():
		n.unserve()
		n.begin(PhaseFenced, Effect{Kind: KillMysqld, Reason: in.Reason})
		n.retryAt = n.now + n.cfg.FencedAfter
	case kind == OpenWrites, kind == CloseWrites:
		n.fence(in.Reason)
	case kind == KillMysqld, kind == StopMysqld:
		// It cannot fail to end: the shell waits for the process. A failure
		// means that the agent itself is ending.
		n.ended()
	case n.promoting():
		n.giveUp(in.Reason)
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
// ACK, so such a mysqld has to end.
func (n *Node) replicateAgain(why string) {
	if n.replicaBinlog {
		n.fence(why)
		return
	}
	n.cancel()
	n.unserve()
	n.phase = PhaseUnverified
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
	case n.open && n.phase != PhaseKilling && !n.leadsTerm():
		n.fence(fmt.Sprintf("lost leadership of term %d", n.term))
	case n.open && n.phase != PhaseKilling && n.logTrouble != "":
		n.fence(n.logTrouble) // its sessions wait for a commit that cannot come
	case n.promoting() && n.logTrouble != "":
		n.giveUp(n.logTrouble)
	case n.promoting() && !n.leadsTerm():
		n.replicateAgain(fmt.Sprintf("lost leadership of term %d", n.term))
	case n.replicaBinlog && n.incarnation != 0 && !n.raft.Leading && !n.stopping && !n.ending():
		n.fence("the applier must not go on binlogging without a promotion")
	case n.promoting() && n.now >= n.promoteBy:
		if n.phase == PhaseOpening {
			n.fence("promotion took too long")
		} else {
			n.giveUp(fmt.Sprintf("promotion took longer than %s in phase %s", n.cfg.PromotionTimeout, n.phase))
		}
	}
	if n.stopping {
		n.advanceStop()
		return
	}
	n.handOver()
	if n.op != 0 || n.now < n.retryAt {
		return
	}
	switch n.phase {
	case PhaseDown:
		n.startMysqld()
	case PhaseFenced:
		n.phase = PhaseDown
		n.startMysqld()
	case PhaseUnverified:
		if n.raft.Leader == 0 {
			n.reason = "no leader: waiting for a majority"
			return
		}
		n.begin(PhaseUnverified, Effect{Kind: Judge})
	case PhaseVerified:
		n.begin(PhaseVerified, Effect{Kind: Replicate})
	case PhaseReplica:
		n.promote()
	}
}

// promote begins a promotion, in a term that can still have an epoch.
func (n *Node) promote() {
	if !n.raft.Leading || n.now < n.transferAt || n.logTrouble != "" {
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

// handOver gives leadership away while mysqld here cannot serve soon.
func (n *Node) handOver() {
	if !n.raft.Leading || n.now < n.transferAt {
		return
	}
	switch {
	case n.logTrouble != "":
	case n.promoting(), n.phase == PhasePrimary, n.phase == PhaseClosing:
		n.servesBy = n.now + n.cfg.IdleLeaderTimeout
		return
	case n.phase == PhaseReplica:
		// Ready: it tries itself once before it asks anybody.
		if !n.passed {
			return
		}
	case n.phase == PhaseVerified, n.phase == PhaseUnverified, n.restarting():
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
	n.transferAt = n.now + n.cfg.RetryAfter
	n.spentTerm = n.raft.Term
	n.asked[best.ID] = n.now
	n.emit(Effect{Kind: Transfer, Term: n.raft.Term, To: best.ID, Reason: cmp.Or(n.logTrouble, n.reason)})
}

// candidate returns the live replica to hand over to: one that was not asked
// lately before one that was (and did not come to lead, or gave it back), then
// the one that is furthest ahead.
func (n *Node) candidate() (Peer, bool) {
	fit := slices.DeleteFunc(slices.Clone(n.peers), func(p Peer) bool {
		return !p.Live || p.LogBad || p.ID == n.cfg.Self || p.Role != cluster.RoleReplica
	})
	if len(fit) == 0 {
		return Peer{}, false
	}
	return slices.MaxFunc(fit, func(a, b Peer) int {
		switch {
		case n.askedAt(a.ID) != n.askedAt(b.ID):
			return cmp.Compare(n.askedAt(b.ID), n.askedAt(a.ID))
		case a.Applied != b.Applied:
			return cmp.Compare(a.Applied, b.Applied)
		case a.LogLast != b.LogLast:
			return cmp.Compare(a.LogLast, b.LogLast)
		}
		return cmp.Compare(b.ID, a.ID)
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
		if n.raft.Leading && n.now < n.stopBy {
			if n.now >= n.transferAt {
				n.transfer()
			}
			if _, ok := n.candidate(); ok {
				return // wait for the successor
			}
		}
		n.begin(PhaseStopping, Effect{Kind: StopMysqld})
		return
	case PhaseKilling, PhaseStopping, PhaseEnded:
		return
	case PhaseErrant, PhaseFenced, PhaseDown:
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
