package role

import "fmt"

// deposed follows the loss of leadership while sessions of mysqld may wait for an
// ACK. A primary in order is settled; whatever else it is at, it is fenced.
func (n *Node) deposed() {
	why := fmt.Sprintf("lost leadership of term %d", n.term)
	switch {
	case n.phase != PhasePrimary, n.cfg.SettleTimeout == 0: // it opens, or closes: what waits there is not known
	case n.stopping, n.replicaBinlog, n.logTrouble != "", n.fencedBy != "":
	default:
		n.reason = why
		n.settleBy = n.now + n.cfg.SettleTimeout
		n.begin(PhaseSettling, Effect{Kind: Settle, Term: n.term, Reason: why})
		return
	}
	n.fence(why)
}

// advanceSettling ends what takes too long, or is not needed any more.
func (n *Node) advanceSettling() {
	switch {
	case n.now >= n.settleBy:
		n.fence(fmt.Sprintf("%s, and was not settled within %v", n.reason, n.cfg.SettleTimeout))
	case n.stopping:
		n.fence("the agent stops")
	case n.logTrouble != "":
		n.fence(n.logTrouble)
	}
}

// settled goes on with a mysqld of which no session waits any more, and whose binlog
// had nothing that is not committed (what a statement without rows may write later is
// found when it is made a replica): it was never stopped, and is judged and
// replicates as any other.
func (n *Node) settled() {
	n.open = false
	n.unserve()
	n.phase = PhaseUnverified
}
