package role

import (
	"fmt"

	"github.com/quorate/quorate/internal/config/units"
)

// absent: no mysqld runs.
type absent struct {
	plain
	Phase // PhaseDown, PhaseFenced, PhaseErrant, PhaseEnded, or PhaseLogger
}

func (p absent) next(n *Machine) {
	switch {
	case p.Phase != PhaseDown && p.Phase != PhaseFenced:
	case n.fencedBy != "":
		n.phase, n.reason = absent{Phase: PhaseFenced}, n.fencedBy
	default:
		n.start()
	}
}

func (p absent) stop(n *Machine) {
	if p.Phase == PhaseEnded || p.Phase == PhaseLogger && n.awaitSuccessor() {
		return
	}
	n.phase = absent{Phase: PhaseEnded}
	n.emit(Effect{Kind: Exit})
}

// starting: StartMysqld is under way.
type starting struct {
	plain
	replicaBinlog bool
}

// start starts a mysqld whose applier binlogs if the promotion in this term needs that.
func (n *Machine) start() {
	p := starting{replicaBinlog: n.raft.Leading && n.tenure.restarts}
	n.tenure.restarts = false
	n.begin(p, Effect{Kind: StartMysqld, ReplicaBinlog: p.replicaBinlog})
}

func (starting) name() Phase { return PhaseStarting }

func (starting) stop(n *Machine) { n.fence("the agent stops") }

func (p starting) done(n *Machine, in Done) {
	if in.Incarnation <= n.exitedUpTo {
		n.phase, n.retryAt = absent{Phase: PhaseDown}, n.now+n.cfg.RetryAfter
		return
	}
	n.mysqld = process{incarnation: in.Incarnation, readyAt: n.now, replicaBinlog: p.replicaBinlog}
	n.phase, n.retryAt = following{Phase: PhaseUnverified}, 0
}

func (starting) failed(n *Machine, _ Done) {
	n.phase, n.retryAt, n.keepsBy = absent{Phase: PhaseFenced}, n.now+n.cfg.FencedAfter, 0
}

// ending: mysqld was told to end. KillMysqld or StopMysqld is under way.
type ending struct {
	plain
	Phase        // PhaseKilling or PhaseStopping, or the phase that follows: PhaseErrant, PhaseFenced
	doubted bool // it is killed for a doubt about it
	planned bool // an operator wants it to start again
}

// check kills a mysqld whose shutdown takes long while clients wait for its restart here, or when an operator
// fences the node.
func (p ending) check(n *Machine) {
	switch keepsBy := n.keepsBy; {
	case p.Phase != PhaseStopping || n.stopping:
	case n.fencedBy != "":
		if p.planned {
			n.planEnded(n.fencedBy)
		}
		n.kill(ending{Phase: PhaseKilling}, n.fencedBy)
	case keepsBy != 0 && n.raft.Leading && n.now >= keepsBy-n.cfg.PromotionTimeout/2:
		n.kill(ending{Phase: PhaseKilling, planned: p.planned}, "mysqld did not shut down in time")
		n.keepsBy = keepsBy
	}
}

// fence ends mysqld by SIGKILL, whatever it does. That is always right.
func (n *Machine) fence(reason string) { n.kill(ending{Phase: PhaseKilling}, reason) }

func (n *Machine) kill(p ending, reason string) {
	n.phase.leave(n, reason)
	n.keepsBy = 0
	n.cancel()
	n.reason = reason
	n.begin(p, Effect{Kind: KillMysqld, Reason: reason})
}

// failed counts as done. mysqld cannot fail to end: the shell waits for the process. A failure means that the
// agent itself is ending.
func (p ending) failed(n *Machine, in Done) { p.done(n, in) }

func (p ending) done(n *Machine, _ Done) {
	switch {
	case p.doubted:
		n.crashed()
	case n.steady():
		n.crashes = 0
	}
	n.mysqld = process{}
	if p.planned {
		n.planEnded("")
	}
	n.phase = absent{Phase: PhaseDown}
	if p.Phase == PhaseErrant || p.Phase == PhaseFenced {
		n.phase = absent{Phase: p.Phase}
	}
}

// exited handles the end of a mysqld that was not told to end.
func (n *Machine) exited(in MysqldExited) {
	n.exitedUpTo = max(n.exitedUpTo, in.Incarnation)
	if !n.runs() || in.Incarnation != n.mysqld.incarnation {
		return
	}
	n.phase.leave(n, in.Reason)
	n.keepsBy = 0
	n.cancel()
	n.phase, n.reason = absent{Phase: PhaseDown}, in.Reason
	n.crashed()
	n.mysqld = process{}
}

// steady tells whether mysqld has run, up to the end of its process, for at least SteadyAfter. Then its end is
// not counted as one more crash in a row.
func (n *Machine) steady() bool { return n.now-n.mysqld.readyAt >= n.cfg.SteadyAfter }

// crashed counts a mysqld that started well and then ended without having been told to, or was killed for a
// doubt (it does not answer, for example). After the first such end mysqld starts again at once. If the next
// mysqld ends soon, too, the cause is likely to stay (a failing disk, a bug), and each start costs a recovery.
// So there is a pause, which is doubled each time.
func (n *Machine) crashed() {
	if n.steady() {
		n.crashes = 0
	}
	n.crashes++
	if n.crashes == 1 {
		return
	}
	pause := min(n.cfg.RetryAfter<<min(n.crashes-2, crashDoublingsMax), n.cfg.FencedAfter)
	n.retryAt = n.now + pause
	n.reason = fmt.Sprintf("%s; %d times in a row within %s of its start: mysqld is started again after %s",
		n.reason, n.crashes, units.Duration(n.cfg.SteadyAfter), units.Duration(pause))
}

// crashDoublingsMax keeps the pause from overflowing; FencedAfter is far shorter.
const crashDoublingsMax = 16
