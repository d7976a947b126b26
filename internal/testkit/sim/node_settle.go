package sim

import "time"

// SettleCounts counts deposed primaries: those that were tried to be settled, of these
// those whose mysqld lived on, and of these those that had something to acknowledge.
type SettleCounts struct{ Deposed, Kept, Late int }

// Settled implements primary.Host.
func (h mysqldHost) Settled(term, _ uint64, acknowledged int, _ time.Duration) {
	h.n.check.settled(h.agent, h.epoch)
	h.w.settles.Kept++
	if acknowledged > 0 {
		h.w.settles.Late++
	}
	h.n.log("settled", "term %d: %d acknowledged", term, acknowledged)
}

// settles looks at a deposed primary whose tap has let go everything up to a number of
// its epoch: what is committed, under a policy by which a commit is enough, and all that
// the tap has taken out of the binlog.
func (c *checker) settles(a *agent, e *epoch, number uint64) {
	if s := c.policyOf(a); s.AcksWait() {
		c.w.fail("policy", "n%d settles where ACKs wait for more than a majority", a.n.id)
	}
	index, found := c.numbers[epochNumber{e.Term, number}]
	if number > 0 && !found { // of an epoch that was never open there is none
		c.w.fail("settle", "n%d lets go entry %d of epoch %d, which is not committed", a.n.id, number, e.Term)
	}
	c.releasedBy[a.n] = max(c.releasedBy[a.n], index)
	for _, tx := range c.dumpOf(e).unacked {
		if i, found := c.places[tx.gtid]; !found || c.transactions[i].index > index {
			c.w.fail("settle", "n%d lets go entry %d of epoch %d, the tap has %s behind it", a.n.id, number, e.Term, tx.gtid)
		}
	}
}

// settled looks at a mysqld that was the primary and goes on as it is: nobody waits
// in it, and its binlog has nothing that is not committed.
func (c *checker) settled(a *agent, e *epoch) {
	if waiting := e.process.Waiting(); waiting > 0 {
		c.w.fail("settle", "n%d was settled, and %d sessions wait for an ACK", a.n.id, waiting)
	}
	if !e.process.SuperReadOnly() {
		c.w.fail("settle", "n%d was settled, and takes writes", a.n.id)
	}
	for _, g := range e.process.Binlogged() {
		if _, found := c.places[g]; !found {
			c.w.fail("settle", "n%d was settled, and its binlog has %s, which is not committed", a.n.id, g)
		}
	}
}
