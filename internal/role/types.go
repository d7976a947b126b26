package role

import (
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
)

// OpID names one operation; 0 is none.
type OpID uint64

// Phase is where a node stands; see the package comment.
type Phase string

func (p Phase) name() Phase { return p }

// The phases.
const (
	PhaseDown       Phase = "down"
	PhaseStarting   Phase = "starting"
	PhaseUnverified Phase = "unverified"
	PhaseVerified   Phase = "verified"
	PhaseReplica    Phase = "replica"
	PhaseCatchingUp Phase = "catching-up"
	PhaseJudging    Phase = "judging"
	PhaseTapping    Phase = "tapping"
	PhaseEpoch      Phase = "opening-epoch"
	PhaseOpening    Phase = "opening"
	PhasePrimary    Phase = "primary"
	PhaseClosing    Phase = "closing"
	PhaseSettling   Phase = "settling"
	PhaseKilling    Phase = "killing"
	PhaseStopping   Phase = "stopping"
	PhaseErrant     Phase = "errant"
	PhaseFenced     Phase = "fenced"
	PhaseEnded      Phase = "ended"
	// PhaseLogger: there is no mysqld to bring anywhere.
	PhaseLogger Phase = "logger"
)

// Input is one thing that happened.
type Input interface{ isInput() }

// Tick says what time it is, on any monotonic clock.
type Tick struct{ Now time.Duration }

// RaftChanged says that the group's volatile state changed.
type RaftChanged struct {
	Term    uint64
	Leader  cluster.NodeID
	Leading bool
}

// MysqldExited says that a mysqld ended without having been told to.
type MysqldExited struct {
	Incarnation uint64
	Reason      string
}

// Progress says that the catch-up under way goes forward, even if only inside of one transaction.
type Progress struct{}

// Doubt says that mysqld must not go on as it is: a guarded variable drifted,
// a foreign replica attached, the tap broke, a proposal was refused.
type Doubt struct {
	Incarnation uint64
	Reason      string
}

// LogTrouble says that the log takes no entries at the moment: its disk is full, for example. An empty Reason
// says that the log takes entries again.
type LogTrouble struct{ Reason string }

// Peers says how all nodes stand: this node, and the others by their own reports. It is as old as a poll of
// mysqld and a message between agents.
type Peers struct {
	// Own is this node: its weight, and how far its mysqld is.
	Own   Peer
	Peers []Peer
	// Held: maintenance is on, and only node HeldFor may open (0 = no node may).
	Held    bool
	HeldFor cluster.NodeID
	// NoLease says why this node could not serve as the leader; "" = it could.
	NoLease string
}

// Peer is one node as far as it matters for who leads.
type Peer struct {
	ID     cluster.NodeID
	Name   string
	Kind   cluster.Kind
	Weight int  // 0 = never leads
	Live   bool // heard of lately
	LogBad bool // its log takes no entries
	// Stopped: its mysqld does not apply committed entries, and would not after a promotion either.
	Stopped bool
	// Unlike: its mysqld names tables in another way than that of the last primary. It leads only if no other node can.
	Unlike bool
	Role   status.Role
	// Applied is the log index up to which its mysqld has everything. Lag is the age of the oldest transaction
	// that its mysqld lacks and that the node knows to be committed.
	Applied uint64
	Lag     time.Duration
	LogLast uint64
}

// Stop says that the agent is to end.
type Stop struct{}

// Move asks a primary to hand over to another node in order. The effect PlanEnded answers a Move or a Restart.
type Move struct {
	To     cluster.NodeID
	Reason string
}

// Restart asks for a new mysqld in place of the running one. A primary closes
// writes first, and stays the leader.
type Restart struct {
	Reason string
	// DryRun: PlanEnded says at once why a restart is impossible ("" = it is possible), and nothing is done.
	DryRun bool
}

// Chosen says that leadership of Term came to this node because an operator wanted it. So this node does not
// hand over to a heavier one.
type Chosen struct{ Term uint64 }

// Fenced says why an operator wants no mysqld to run here; "" = mysqld may run again.
type Fenced struct{ Reason string }

// Verdict is the outcome of an operation.
type Verdict string

// The verdicts.
const (
	// OK: done.
	OK Verdict = "ok"
	// Failed: not done; may be tried again.
	Failed Verdict = "failed"
	// Errant (of Judge only): mysqld holds what the committed log lacks, or a client has
	// committed there what its applier had prepared.
	Errant Verdict = "errant"
	// Unfit (of Judge, Replicate and CatchUp): mysqld is not as it must be, and has to end.
	Unfit Verdict = "unfit"
	// XAPending (of Judge with Promote only): mysqld's applier prepared XA transactions without a binlog, so
	// mysqld would not binlog their end. A mysqld that was started with ReplicaBinlog never gets this verdict.
	XAPending Verdict = "xa-pending"
	// ApplierStopped (of CatchUp only): the applier has stopped with an error, so replication has to be set up
	// again. After any other failure the applier goes on.
	ApplierStopped Verdict = "applier-stopped"
)

// Done is the outcome of an operation.
type Done struct {
	Op      OpID
	Verdict Verdict
	// Reason says why, for every verdict but OK.
	Reason string
	// Incarnation is the incarnation of the mysqld that was started (StartMysqld only).
	Incarnation uint64
}

func (Tick) isInput()         {}
func (RaftChanged) isInput()  {}
func (MysqldExited) isInput() {}
func (Doubt) isInput()        {}
func (LogTrouble) isInput()   {}
func (Peers) isInput()        {}
func (Progress) isInput()     {}
func (Stop) isInput()         {}
func (Move) isInput()         {}
func (Restart) isInput()      {}
func (Chosen) isInput()       {}
func (Fenced) isInput()       {}
func (Done) isInput()         {}

// Kind says what an effect does.
type Kind string

// The effects. Those marked (op) are operations: they end with Done.
const (
	// StartMysqld (op): new incarnation, spawn, wait until it is ready.
	StartMysqld Kind = "start-mysqld"
	// Judge (op): wait for a majority's commit index, then check that mysqld holds a prefix of the committed
	// log (I3), declare the no-ops before the end of that prefix as done (prefix rule), and check the guarded
	// variables. With Promote also check the grants and the prepared XA transactions.
	Judge Kind = "judge"
	// Replicate (op): start replication from the local feed.
	Replicate Kind = "replicate"
	// CatchUp (op): wait until mysqld has everything that is committed, then
	// stop replication.
	CatchUp Kind = "catch-up"
	// OpenTap (op): connect the tap; it must be mysqld's only semi-sync replica.
	OpenTap Kind = "open-tap"
	// CommitEpoch (op): propose the epoch entry and wait for its commit.
	CommitEpoch Kind = "commit-epoch"
	// OpenWrites (op): super_read_only=OFF, then check the term once more.
	OpenWrites Kind = "open-writes"
	// CloseWrites (op): super_read_only=ON within a bounded time. OK is the only proof that no session waits
	// for an ACK. To is set if a Move wants it.
	CloseWrites Kind = "close-writes"
	// Settle (op): this node was the primary of Term and has lost leadership. Wait until nothing more of its
	// epoch can be committed, acknowledge what was committed of it, and close writes. OK says that mysqld's
	// binlog holds nothing else and that no session waits.
	Settle Kind = "settle"
	// AwaitTarget (op): writes are closed; wait until To has all entries.
	AwaitTarget Kind = "await-target"
	// PlanEnded says how a Move or a Restart ended. An empty Reason says that it succeeded: leadership was
	// asked to move, or mysqld was stopped for its restart.
	PlanEnded Kind = "plan-ended"
	// StopMysqld (op): graceful stop. Comes only after CloseWrites was OK.
	StopMysqld Kind = "stop-mysqld"
	// KillMysqld (op): SIGKILL, and wait until the process is gone.
	KillMysqld Kind = "kill-mysqld"
	// Cancel takes operation Op back: its context ends, its outcome is ignored.
	Cancel Kind = "cancel"
	// Serve opens the router to the local mysqld while Term's lease holds.
	Serve Kind = "serve"
	// Unserve closes the router's connections into the local mysqld.
	Unserve Kind = "unserve"
	// CloseTap ends the tap: nothing is acknowledged from here on.
	CloseTap Kind = "close-tap"
	// Transfer hands leadership to To. The lease of Term is over.
	Transfer Kind = "transfer"
	// Resign gives leadership of Term up and campaigns again.
	Resign Kind = "resign"
	// Exit says that the agent may end.
	Exit Kind = "exit"
)

// Effect is one thing to do. It is one struct, not a type for each kind: only the shell
// (primary.Shell) executes effects, and it reads Op and Term of every kind in the same way.
type Effect struct {
	Kind Kind
	// Op is the operation that the effect begins; for Cancel, the operation to cancel.
	Op OpID
	// Term is the Raft term in which the effect is right; 0 = in any.
	Term uint64
	// To is the target of Transfer and AwaitTarget.
	To cluster.NodeID
	// Promote makes Judge check what only a primary must fulfil, too.
	Promote bool
	// ReplicaBinlog makes StartMysqld start a mysqld whose applier binlogs.
	ReplicaBinlog bool
	// Reason says why, for the log.
	Reason string
}

// String prints the effect on one line.
func (e Effect) String() string {
	s := string(e.Kind)
	if e.Op != 0 {
		s += fmt.Sprintf(" op=%d", e.Op)
	}
	if e.Term != 0 {
		s += fmt.Sprintf(" term=%d", e.Term)
	}
	if e.To != 0 {
		s += fmt.Sprintf(" to=%d", e.To)
	}
	if e.Promote {
		s += " promote"
	}
	if e.ReplicaBinlog {
		s += " replica-binlog"
	}
	if e.Reason != "" {
		s += fmt.Sprintf(" (%s)", e.Reason)
	}
	return s
}

// Config holds the limits.
type Config struct {
	Self cluster.NodeID
	// Kind is what this node is: a logger has no mysqld.
	Kind cluster.Kind
	// Weight is the node's weight until the first Peers.
	Weight int
	// RetryAfter is the pause after a failed operation and between transfers.
	RetryAfter time.Duration
	// FencedAfter is the pause before a fenced mysqld is started again. It is also the longest pause before the
	// next start of a mysqld that crashes again and again.
	FencedAfter time.Duration
	// SteadyAfter: a mysqld that ends sooner than this after its start counts as one more crash in a row; 0 =
	// none counts.
	SteadyAfter time.Duration
	// PromotionTimeout bounds how long a promotion may go without progress. After it another node is asked to
	// lead, if there is one.
	PromotionTimeout time.Duration
	// IdleLeaderTimeout bounds how long a leader may go without promoting its
	// mysqld while another node could lead.
	IdleLeaderTimeout time.Duration
	// StopTimeout bounds how long a stopping leader waits for its successor.
	StopTimeout time.Duration
	// SettleTimeout bounds how long the settling of a deposed primary may take. After it mysqld is killed. 0 =
	// mysqld is killed at once.
	SettleTimeout time.Duration
}
