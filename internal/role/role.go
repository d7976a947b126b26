package role

import (
	"cmp"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/sys/invariant"
)

// Machine is the state machine. Build it with New. State that is valid in one phase alone is a field of that
// phase.
type Machine struct {
	cfg   Config
	now   time.Duration
	raft  RaftChanged
	nodes Peers

	phase  phase
	reason string // why the node is not in the phase that it should be in
	unled  string // why the node has no leader, or leads and never opens; "" = neither
	// op is the operation under way, 0 = none. The current phase has begun it and takes its outcome.
	op, lastOp OpID
	opKind     Kind
	// retryAt is the earliest time of the next attempt.
	retryAt time.Duration

	mysqld process
	// exitedUpTo is the newest incarnation that is known to have ended. The end of an incarnation may be
	// reported before its start is.
	exitedUpTo uint64
	crashes    int // how often a mysqld ended soon after its start, in a row

	tenure tenure
	// asked holds when each peer was last asked to lead. So a node that fails is asked again only after the
	// others.
	asked map[cluster.NodeID]time.Duration

	// logTrouble says why the log takes no entries; "" = it does.
	logTrouble string
	stopping   bool
	stopBy     time.Duration
	// keepsBy bounds how long leadership is kept for a restart by plan. chosenTerm is the newest term whose
	// leadership an operator gave to this node. fencedBy says why an operator wants no mysqld here; "" = mysqld
	// may run.
	keepsBy    time.Duration
	chosenTerm uint64
	fencedBy   string

	out []Effect
}

// process is the mysqld that runs, from its readiness to its end; the zero value means that there is none.
type process struct {
	incarnation   uint64
	readyAt       time.Duration
	replicaBinlog bool // its applier binlogs
	// still counts the promotion timeouts in a row in which a catch-up got nowhere: there was no Progress, and
	// the applied index stayed at stillAt.
	still   int
	stillAt uint64
}

// New returns a node whose mysqld is down, or a logger.
func New(cfg Config) *Machine {
	n := &Machine{cfg: cfg, phase: absent{Phase: PhaseDown}, asked: map[cluster.NodeID]time.Duration{}}
	n.nodes.Own = Peer{ID: cfg.Self, Kind: cfg.Kind, Weight: cfg.Weight}
	if cfg.Kind == cluster.KindLogger {
		n.phase = absent{Phase: PhaseLogger}
	}
	return n
}

// Phase returns the node's phase.
func (n *Machine) Phase() Phase { return n.phase.name() }

// Reason says why the node is in its phase or what it waits for; "" = all well.
func (n *Machine) Reason() string { return cmp.Or(n.unled, n.reason) }

// Role returns the phase as people read it.
func (n *Machine) Role() status.Role {
	switch n.Phase() {
	case PhaseUnverified, PhaseVerified:
		return status.RoleUnverified
	case PhaseReplica:
		return status.RoleReplica
	case PhaseCatchingUp, PhaseJudging, PhaseTapping, PhaseEpoch, PhaseOpening:
		return status.RolePromoting
	case PhasePrimary:
		return status.RolePrimary
	case PhaseClosing, PhaseSettling, PhaseKilling, PhaseStopping, PhaseEnded:
		return status.RoleDemoting
	case PhaseErrant:
		return status.RoleErrant
	case PhaseFenced:
		return status.RoleFenced
	case PhaseLogger:
		return status.RoleLogger
	}
	return status.RoleStarting
}

// Idle tells that time alone changes nothing. The caller may leave out Ticks then, but must send a Tick before
// the next input.
func (n *Machine) Idle() bool {
	if n.op != 0 || n.stopping || n.cannotLog() != "" || n.now < n.retryAt {
		return false
	}
	switch n.Phase() {
	case PhaseReplica, PhaseLogger:
		return n.raft.Leader != 0 && !n.raft.Leading
	case PhasePrimary:
		return true
	}
	return false
}

// Step takes one input and returns what follows from it, in order.
func (n *Machine) Step(in Input) []Effect {
	n.out = nil
	if _, ok := in.(Tick); ok && n.Idle() {
		defer func(phase Phase, reason string) {
			invariant.Check(len(n.out) == 0 && n.Phase() == phase && n.Reason() == reason, "role",
				"a tick changes an idle node: %s, %q, then %s, %q", phase, reason, n.Phase(), n.Reason())
		}(n.Phase(), n.Reason())
	}
	switch in := in.(type) {
	case Tick:
		n.now = in.Now
	case RaftChanged:
		if in.Term != n.raft.Term {
			n.tenure = tenure{servesBy: n.now + n.cfg.IdleLeaderTimeout, passed: n.tenure.passed}
		}
		n.raft = in
		n.tenure.passed = n.tenure.passed && in.Leading
	case Peers:
		n.standing(in)
	case Stop:
		if !n.stopping {
			n.stopping, n.stopBy = true, n.now+n.cfg.StopTimeout
		}
	case Move:
		n.move(in)
	case Restart:
		n.restart(in)
	case Chosen:
		n.chosenTerm = in.Term
	case Fenced:
		if in.Reason == "" && n.reason == n.fencedBy {
			// mysqld starts now, and the fence is not the reason of its phase any more.
			n.reason = ""
		}
		n.fencedBy = in.Reason
	case Progress:
		n.progress()
	case MysqldExited:
		n.exited(in)
	case Doubt:
		if n.runs() && in.Incarnation == n.mysqld.incarnation {
			n.kill(ending{Phase: PhaseKilling, doubted: true}, in.Reason)
		}
	case LogTrouble:
		n.logTrouble = in.Reason
	case Done:
		n.done(in)
	}
	n.advance()
	return n.out
}

func (n *Machine) emit(e Effect) { n.out = append(n.out, e) }

// begin enters a phase, or the next step of a phase, together with its operation. At most one operation is
// under way.
func (n *Machine) begin(p phase, e Effect) {
	invariant.Check(n.op == 0, "role", "%s while operation %d (%s) is under way", e, n.op, n.opKind)
	n.lastOp++
	e.Op = n.lastOp
	n.phase, n.op, n.opKind = p, e.Op, e.Kind
	n.emit(e)
}

func (n *Machine) cancel() {
	if n.op != 0 {
		n.emit(Effect{Kind: Cancel, Op: n.op})
		n.op = 0
	}
}

// done gives the outcome of the operation under way to the phase.
func (n *Machine) done(in Done) {
	if in.Op != n.op || n.op == 0 {
		return
	}
	n.op = 0
	if in.Verdict == OK {
		n.phase.done(n, in)
		return
	}
	n.reason = in.Reason
	n.phase.failed(n, in)
}

// leads tells whether this node still leads in a term.
func (n *Machine) leads(term uint64) bool { return n.raft.Leading && n.raft.Term == term }

// runs tells that a mysqld runs and was not told to end.
func (n *Machine) runs() bool {
	_, ends := n.phase.(ending)
	return n.mysqld.incarnation != 0 && !ends
}

// advance does what the state asks for.
func (n *Machine) advance() {
	n.phase.check(n)
	if _, starts := n.phase.(starting); n.fencedBy != "" && (n.runs() || starts) && !n.stopping {
		n.fence(n.fencedBy)
	}
	if n.stopping {
		n.unled = ""
		n.phase.stop(n)
		return
	}
	n.handOver()
	n.explain()
	if n.op == 0 && n.now >= n.retryAt {
		n.phase.next(n)
	}
}
