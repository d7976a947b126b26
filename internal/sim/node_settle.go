package sim

import (
	"errors"
	"fmt"

	"github.com/quorate/quorate/internal/consensus"
	"github.com/quorate/quorate/internal/tap"
)

// SettleCounts counts deposed primaries: those that were tried to be settled, of these
// those whose mysqld lived on, and of these those that had something to acknowledge.
type SettleCounts struct{ Deposed, Kept, Late int }

// lostRole takes it that this node does not lead in its epoch's term any more.
func (a *agent) lostRole(r consensus.RoleState) {
	served, e := a.serveTerm, a.epoch
	settles := a.acksAreCommits() && e != nil && (e.deposed || e.term == served)
	if !r.Leading || r.Term != served {
		a.stopServing(settles)
	}
	if !settles {
		a.closeEpoch()
		return
	}
	e.deposed = true
}

func (a *agent) acksAreCommits() bool { return !a.group.Committed().State().State.AcksWait() }

// settlePrimary makes a replica of the primary that a term had, if its mysqld has
// nothing but what was committed.
func (a *agent) settlePrimary(t *task, sc *scope, term uint64) (err error) {
	a.w.settles.Deposed++
	e := a.epochOf(term)
	if e == nil || a.process == nil || a.process.incarnation != e.incarnation {
		return errors.New("its tap is closed")
	}
	p, err := a.sql(t, sc)
	if err != nil {
		return err
	}
	if on, clients := p.SemiSync(); !on || clients != 1 {
		return fmt.Errorf("semi-sync is on: %t, mysqld has %d replicas", on, clients)
	}
	if p, err = a.sql(t, sc); err != nil {
		return err
	}
	p.EndLockWaiters()
	p.results()
	number, acknowledged, err := a.settleTap(t, sc, e)
	if err != nil {
		return err
	}
	if err := a.closeForGood(t, sc); err != nil {
		return err
	}
	if err := a.proveSettled(t, sc, e, number); err != nil {
		return err
	}
	a.w.check.settled(a, e)
	a.w.settles.Kept++
	if acknowledged > 0 {
		a.w.settles.Late++
	}
	a.n.log("settled", "term %d: %d acknowledged", term, acknowledged)
	return nil
}

// settleTap acknowledges what the tap has received of its epoch, once all of that is
// committed.
func (a *agent) settleTap(t *task, sc *scope, e *epoch) (number uint64, acknowledged int, err error) {
	for {
		number, over := a.group.Committed().EpochEnd(e.term)
		if !a.acksAreCommits() {
			return 0, 0, errors.New("ACKs wait for more than a majority")
		}
		if acknowledged, ok := e.machine.Settle(number); ok {
			a.w.check.settles(a, e, number)
			e.ackSoon()
			return number, acknowledged, nil
		}
		if over {
			return 0, 0, fmt.Errorf("mysqld's binlog goes on behind entry %d of epoch %d", number, e.term)
		}
		if err := t.wait(sc, 0, &a.loop.changed); err != nil {
			return 0, 0, fmt.Errorf("wait for what becomes of epoch %d: %w", e.term, err)
		}
	}
}

// closeForGood closes writes, for as long as that takes: core has the bound.
func (a *agent) closeForGood(t *task, sc *scope) error {
	for {
		p, err := a.sql(t, sc)
		if err != nil {
			return fmt.Errorf("close writes: %w", err)
		}
		if p.SetSuperReadOnly(true) {
			return nil
		}
		p.flushSoon()
	}
}

// proveSettled returns nil once the tap has read mysqld's binlog to its end.
func (a *agent) proveSettled(t *task, sc *scope, e *epoch, number uint64) error {
	for {
		p, err := a.sql(t, sc)
		if err != nil {
			return err
		}
		file, offset := p.BinlogEnd()
		at, ends := e.machine.Ends(number)
		switch {
		case !ends:
			return fmt.Errorf("mysqld's binlog goes on behind entry %d of epoch %d", number, e.term)
		case at == tap.Position{File: file, Offset: offset} && p.Waiting() == 0:
			return nil
		}
	}
}

// settles looks at a deposed primary whose tap has let go everything up to a number of
// its epoch: what is committed, under a policy by which a commit is enough, and all that
// the tap has taken out of the binlog.
func (c *checker) settles(a *agent, e *epoch, number uint64) {
	if s := c.policyOf(a); s.AcksWait() {
		c.w.fail("policy", "n%d settles where ACKs wait for more than a majority", a.n.id)
	}
	index, found := c.numbers[epochNumber{e.term, number}]
	if number > 0 && !found { // of an epoch that was never open there is none
		c.w.fail("settle", "n%d lets go entry %d of epoch %d, which is not committed", a.n.id, number, e.term)
	}
	c.releasedBy[a.n] = max(c.releasedBy[a.n], index)
	d := c.dumps[e]
	if e.step != nil || d == nil {
		return // what was read last waits for room, and is not in the tap
	}
	for _, tx := range d.unacked {
		if i, found := c.places[tx.gtid]; !found || c.transactions[i].index > index {
			c.w.fail("settle", "n%d lets go entry %d of epoch %d, the tap has %s behind it", a.n.id, number, e.term, tx.gtid)
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
