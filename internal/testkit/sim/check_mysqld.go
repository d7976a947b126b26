package sim

import (
	"time"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/mysql/tap"
)

// engineCheck says up to where a node's engine log was compared with the committed log: count is the number of
// compared transactions of the engine log. place is the place in the committed log behind the last of them.
type engineCheck struct{ count, place int }

// engine compares the engine commits of mysqld with the committed log. mysqld has nothing that is not in that
// log (I3). Up to its last transaction mysqld has every transaction of the log once, in the same order. Only
// transactions that change nothing may be missing (I4).
func (c *checker) engine(n *node) {
	if n.tampered {
		return // the judge has to notice this
	}
	log, at := n.mysqlDisk.EngineLog(), c.engines[n]
	if len(log) < at.count { // a crash has lost the last commits
		at = engineCheck{}
	}
	for ; at.count < len(log); at.count++ {
		g := log[at.count]
		place, found := c.places[g]
		if !found {
			c.w.fail("I3", "n%d: mysqld has %s, which is not committed", n.id, g)
		}
		if place < at.place {
			c.w.fail("I4", "n%d: mysqld engine-committed %s behind what follows it in the log", n.id, g)
		}
		if !c.transactions[place].changes {
			c.w.fail("I4", "n%d: the no-op %s was run where it destroys data", n.id, g)
		}
		for ; at.place < place; at.place++ {
			if tx := c.transactions[at.place]; tx.changes {
				c.w.fail("I4", "n%d: mysqld engine-committed %s without %s before it", n.id, g, tx.gtid)
			}
		}
		at.place = place + 1
	}
	c.engines[n] = at
}

// complete checks a mysqld with all committed transactions in gtid_executed: its engine must have them, too.
func (c *checker) complete(n *node) {
	for _, tx := range c.transactions[c.engines[n].place:] {
		if tx.changes {
			c.w.fail("I4", "n%d: mysqld says that it has %s, which it never engine-committed", n.id, tx.gtid)
		}
	}
}

// judged checks a mysqld that has passed the judge.
func (c *checker) judged(p *mysqld) {
	for src, iv := range p.GTIDExecuted().Intervals() {
		for i := iv.Start; i <= iv.End; i++ {
			g := gtid.GTID{UUID: src.UUID, Tag: src.Tag, N: i}
			if _, found := c.places[g]; !found {
				c.w.fail("I3", "n%d: the judge passed %s, which is not committed", p.n.id, g)
			}
		}
	}
	p.n.tampered, p.n.restored = false, false
	c.engine(p.n)
}

// refused checks a mysqld that the judge refuses. A mysqld that only its agent has touched must never be
// refused. Any other mysqld is rebuilt.
func (c *checker) refused(n *node, v replay.Verdict) {
	if n.tampered || n.restored {
		n.log("judge", "refused: %s", v.Refused)
		c.w.sched.after(200*time.Millisecond, n.rebuild)
		return
	}
	c.w.fail("errant", "n%d: a healthy mysqld was refused: %s", n.id, v.Refused)
}

// stopping checks a graceful stop (I6).
func (c *checker) stopping(p *mysqld) {
	if waiting := p.Waiting() + p.Queued(); waiting > 0 && !p.dead {
		c.w.fail("I6", "n%d: a graceful stop while %d sessions wait", p.n.id, waiting)
	}
}

// dumpCheck is the checker's view of one dump: what the tap has read and not acknowledged.
type dumpCheck struct {
	assembler binlog.Assembler
	file      string
	unacked   []dumpedTransaction
}

type dumpedTransaction struct {
	gtid gtid.GTID
	end  tap.Position
}

// dumpOf returns the view of an epoch's dump, brought up to what the tap has read.
func (c *checker) dumpOf(e *epoch) *dumpCheck {
	d := c.dumps[e]
	if d == nil {
		d = &dumpCheck{}
		c.dumps[e] = d
	}
	for t := e.conn; t.taken < e.tap.Stats().Events; t.taken++ {
		c.dumped(d, t.sent[0])
		t.sent = t.sent[1:]
	}
	return d
}

func (c *checker) dumped(d *dumpCheck, raw []byte) {
	event, err := binlog.ParseEvent(raw)
	if err != nil {
		c.w.fail("sim", "event of the dump: %v", err)
	}
	if event.Type() == binlog.TypeRotate {
		d.file, _, err = binlog.ParseRotate(event)
	}
	if err != nil {
		c.w.fail("sim", "event of the dump: %v", err)
	}
	step, err := d.assembler.Feed(event)
	if err != nil {
		c.w.fail("sim", "event of the dump: %v", err)
	}
	if step == binlog.StepEnd {
		end := tap.Position{File: d.file, Offset: uint64(event.LogPos())}
		d.unacked = append(d.unacked, dumpedTransaction{d.assembler.Info().GTID, end})
	}
}

// acked checks an acknowledgement: everything before it is committed (I2), and only one node
// acknowledges in a term (I5).
func (c *checker) acked(e *epoch, p tap.Position) {
	if e.closed() {
		c.w.fail("I2", "n%d acknowledges %v after its tap was closed", e.a.n.id, p)
	}
	if by := c.ackedBy[e.Term]; by != nil && by != e.a.n {
		c.w.fail("I5", "n%d and n%d acknowledge in term %d", by.id, e.a.n.id, e.Term)
	}
	c.ackedBy[e.Term] = e.a.n
	d := c.dumpOf(e)
	for len(d.unacked) > 0 {
		tx := d.unacked[0]
		if tx.end.File > p.File || tx.end.File == p.File && tx.end.Offset > p.Offset {
			return
		}
		if _, found := c.places[tx.gtid]; !found {
			c.w.fail("I2", "n%d acknowledges %v: %s ends at %v and is not committed", e.a.n.id, p, tx.gtid, tx.end)
		}
		d.unacked = d.unacked[1:]
	}
}

// served checks a node that may pass clients' bytes to its mysqld: no other node may do so (I5). Machines that
// are stalled pass nothing and are left out.
func (c *checker) served(n *node) {
	for _, other := range c.w.nodes {
		if n.mayBeStale() || other.mayBeStale() {
			continue
		}
		if other != n && other.check == c && other.agent != nil && other.agent.Slot.Serving() && other.stalledUntil <= c.w.sched.now {
			c.w.fail("I5", "n%d and n%d both serve", n.id, other.id)
		}
	}
}

// SettleCounts counts deposed primaries: Deposed those that the agent tried to settle, Kept those of them whose
// mysqld lived on, Late those of the kept ones that had something to acknowledge.
type SettleCounts struct{ Deposed, Kept, Late int }

// settles checks a deposed primary: its tap is about to acknowledge everything up to a number of its epoch. All
// that must be committed, the policy must need no more than a commit, and the tap must have taken nothing else
// out of the binlog.
func (c *checker) settles(a *agent, e *epoch, number uint64) {
	if s := c.policyOf(a); s.AcksWait() {
		c.w.fail("policy", "n%d settles where ACKs wait for more than a majority", a.n.id)
	}
	if waiters := e.process.LockWaiters(); waiters > 0 {
		c.w.fail("settle", "n%d lets go sessions whose locks %d others wait for: these write to the binlog next", a.n.id, waiters)
	}
	index, found := c.numbers[epochNumber{e.Term, number}]
	if number > 0 && !found { // an epoch that was never open has no entry
		c.w.fail("settle", "n%d lets go entry %d of epoch %d, which is not committed", a.n.id, number, e.Term)
	}
	c.releasedBy[a.n] = max(c.releasedBy[a.n], index)
	for _, tx := range c.dumpOf(e).unacked {
		if i, found := c.places[tx.gtid]; !found || c.transactions[i].index > index {
			c.w.fail("settle", "n%d lets go entry %d of epoch %d, the tap has %s behind it", a.n.id, number, e.Term, tx.gtid)
		}
	}
}

// settled checks a mysqld that was the primary's and goes on without a restart: no session waits in it, it
// takes no writes, and everything in its binlog is committed.
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
