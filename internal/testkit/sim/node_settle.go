package sim

import (
	"context"
	"errors"

	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/mysql/tap"
)

// SettleCounts counts deposed primaries: those that were tried to be settled, of these
// those whose mysqld lived on, and of these those that had something to acknowledge.
type SettleCounts struct{ Deposed, Kept, Late int }

func (a *agent) acksAreCommits() bool { return !a.group.Committed().State().State.AcksWait() }

// Settle makes a replica of the primary that a term had, if its mysqld has
// nothing but what was committed.
func (a steps) Settle(ctx context.Context, term uint64) (err error) {
	a.w.settles.Deposed++
	e := a.epoch
	_, incarnation, ok := a.epochs.Tap(term)
	if !ok || a.process == nil || a.process.incarnation != incarnation {
		return errors.New("its tap is closed")
	}
	a.lagBound.SetOpen(false)
	_, acknowledged, err := primary.Settling{
		Term: term, Server: localServer{a.agent}, Tap: deposedTap{e}, Log: a.group.Committed(),
		AcksAreCommits: a.acksAreCommits, Clock: a.life,
	}.Run(ctx)
	if err != nil {
		return err
	}
	a.n.check.settled(a.agent, e)
	a.w.settles.Kept++
	if acknowledged > 0 {
		a.w.settles.Late++
	}
	a.n.log("settled", "term %d: %d acknowledged", term, acknowledged)
	return nil
}

// deposedTap tells the checker what is let go.
type deposedTap struct{ e *epoch }

// Ends implements primary.Tap.
func (d deposedTap) Ends(number uint64) (tap.Position, bool) { return d.e.tap.Ends(number) }

// Settle implements primary.Tap.
func (d deposedTap) Settle(number uint64) (int, bool) {
	transactions, ok := d.e.tap.Settle(number)
	if ok {
		d.e.a.n.check.settles(d.e.a, d.e, number)
	}
	return transactions, ok
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
