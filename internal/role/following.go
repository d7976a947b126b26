package role

// following: mysqld is read-only. It is judged, then made a replica, then replicates.
type following struct {
	plain
	Phase // PhaseUnverified, PhaseVerified, or PhaseReplica
}

func (following) check(n *Machine) {
	if n.binlogsInVain() {
		n.fence(inVain)
	}
}

// inVain is why a mysqld is ended whose applier binlogs for a promotion that is over.
const inVain = "the promotion is over, and the applier must not go on writing to the binlog"

func (n *Machine) binlogsInVain() bool {
	return n.mysqld.replicaBinlog && !n.raft.Leading && !n.stopping
}

func (p following) next(n *Machine) {
	switch p.Phase {
	case PhaseUnverified:
		if n.raft.Leader != 0 {
			n.begin(p, Effect{Kind: Judge})
		}
	case PhaseVerified:
		n.begin(p, Effect{Kind: Replicate})
	case PhaseReplica:
		if !n.raft.Leading {
			n.reason = "" // the reason why a promotion ended is out of date
		}
		n.promote()
	}
}

func (p following) done(n *Machine, _ Done) {
	if p.Phase == PhaseUnverified {
		n.phase = following{Phase: PhaseVerified}
		return
	}
	n.phase, n.reason = following{Phase: PhaseReplica}, ""
}

func (following) failed(n *Machine, in Done) {
	switch in.Verdict {
	case Errant:
		n.kill(ending{Phase: PhaseErrant}, in.Reason)
	case Unfit:
		n.kill(ending{Phase: PhaseFenced}, in.Reason)
		n.retryAt = n.now + n.cfg.FencedAfter
	default:
		n.phase, n.retryAt = following{Phase: PhaseUnverified}, n.now+n.cfg.RetryAfter
	}
}

func (following) stop(n *Machine) { n.closeUnopened() }

// closeUnopened closes writes although they were not opened, because the agent stops: a session may wait for an
// ACK all the same.
func (n *Machine) closeUnopened() {
	n.cancel()
	n.phase.leave(n, "")
	n.begin(closing{}, Effect{Kind: CloseWrites})
}

// replicateAgain goes on as a replica with a mysqld that was never open, or that is closed. A mysqld whose
// applier binlogs is killed instead: the applier would wait for an ACK.
func (n *Machine) replicateAgain(why string, from Phase) {
	if n.mysqld.replicaBinlog {
		n.fence(why)
		return
	}
	n.cancel()
	n.phase.leave(n, why)
	n.phase = following{Phase: from}
}
