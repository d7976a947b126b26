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

// deposed handles the loss of leadership. A primary without any trouble is settled, else it is fenced.
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

// unserve closes the router. If term is not 0, mysqld was open in that term, and the tap is closed next.
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

// check fences a primary whose settling takes too long or is not needed any more.
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

// done makes the old primary a replica. mysqld was never stopped. No session waits any more, and its binlog had
// nothing that is not committed. (What a statement without rows may still write is found when mysqld is made a
// replica.) So it is judged and replicates like any other mysqld.
func (p settling) done(n *Machine, _ Done) {
	n.unserve(p.term)
	n.phase = following{Phase: PhaseUnverified}
}

func (p settling) leave(n *Machine, _ string) { n.unserve(p.term) }
