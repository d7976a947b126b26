package role

import (
	"fmt"
	"time"
)

// primary serves clients in a term. Its sessions wait for ACKs.
type primary struct {
	plain
	term uint64
}

func (n *Machine) serve(term uint64) {
	n.phase, n.reason, n.keepsBy = primary{term: term}, "", 0
	n.emit(Effect{Kind: Serve, Term: term})
}

func (primary) name() Phase { return PhasePrimary }

func (p primary) check(n *Machine) {
	switch {
	case !n.leads(p.term):
		p.deposed(n)
	case n.logTrouble != "":
		n.fence(n.logTrouble) // its sessions wait for a commit that cannot come
	}
}

// deposed follows the loss of leadership. A primary in order is settled.
func (p primary) deposed(n *Machine) {
	why := lostLeadership(p.term)
	if n.cfg.SettleTimeout == 0 || n.stopping || n.mysqld.replicaBinlog || n.logTrouble != "" || n.fencedBy != "" {
		n.fence(why)
		return
	}
	n.reason = why
	n.begin(settling{term: p.term, by: n.now + n.cfg.SettleTimeout}, Effect{Kind: Settle, Term: p.term, Reason: why})
}

func (p primary) stop(n *Machine) {
	n.begin(closing{term: p.term}, Effect{Kind: CloseWrites, Term: p.term})
}

func (p primary) leave(n *Machine, _ string) { n.unserve(p.term) }

// unserve closes the router, then the tap of a mysqld that was open in a term (0 = it was
// not).
func (n *Machine) unserve(term uint64) {
	n.emit(Effect{Kind: Unserve})
	if term != 0 {
		n.emit(Effect{Kind: CloseTap})
	}
}

// settling: this node was the primary, and has lost leadership. Settle is under way.
type settling struct {
	plain
	term uint64
	by   time.Duration
}

func (settling) name() Phase { return PhaseSettling }

// check ends what takes too long, or is not needed any more.
func (p settling) check(n *Machine) {
	switch {
	case n.now >= p.by:
		n.fence(fmt.Sprintf("%s, and was not settled within %v", n.reason, n.cfg.SettleTimeout))
	case n.stopping:
		n.fence("the agent stops")
	case n.logTrouble != "":
		n.fence(n.logTrouble)
	}
}

// done goes on with a mysqld of which no session waits any more, and whose binlog
// had nothing that is not committed (what a statement without rows may write later is
// found when it is made a replica): it was never stopped, and is judged and
// replicates as any other.
func (p settling) done(n *Machine, _ Done) {
	n.unserve(p.term)
	n.phase = following{Phase: PhaseUnverified}
}

func (p settling) leave(n *Machine, _ string) { n.unserve(p.term) }
