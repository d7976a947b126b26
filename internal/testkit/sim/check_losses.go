package sim

import (
	"maps"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/agent/recovery"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// fork is a forced recovery. From then on the recovered cluster has a checker of its own. That checker knows
// the part of the former log that the recovery has kept.
type fork struct {
	by       *node
	recovery cluster.Recovery
	at       time.Duration
	of       *checker // the former cluster's
	check    *checker
	// givenUp are the committed transactions that the log of the recovered node lacks.
	givenUp map[gtid.GTID]bool
	// led is when some former member was last seen with a leader.
	led time.Duration
}

// fork makes the checker of the cluster that goes on with the log of a recovered node. All of that log counts
// as committed, up to the end that the recovery names.
func (c *checker) fork(n *node, state cluster.State, log *seglog.Log, v recovery.Verdict) *fork {
	f := &fork{by: n, recovery: *state.Recovered, at: c.w.sched.now, of: c, givenUp: map[gtid.GTID]bool{}}
	kept := min(uint64(len(c.entries)), log.LastIndex())
	for ; kept >= log.FirstIndex(); kept-- { // two logs that have the same term at an index are the same up to it
		if term, err := log.Term(kept); err == nil && term == c.entries[kept-1].term {
			break
		}
	}
	if v.Log.Last != log.LastIndex() {
		c.w.fail("recovery", "n%d: the recovery says that the log ends at %d, it ends at %d", n.id, v.Log.Last, log.LastIndex())
	}
	next := newChecker(c.w)
	next.before, next.ok = f, c.ok
	next.entries = slices.Clone(c.entries[:kept])
	for _, tx := range c.transactions {
		if tx.index > kept {
			f.givenUp[tx.gtid] = true
			continue
		}
		next.places[tx.gtid] = len(next.transactions)
		next.transactions = append(next.transactions, tx)
	}
	maps.Copy(next.numbers, c.numbers)
	maps.DeleteFunc(next.numbers, func(_ epochNumber, index uint64) bool { return index > kept })
	maps.Copy(next.ackedBy, c.ackedBy)
	// Later terms, of which the recovered node never heard, will come again: no former member takes part in the
	// recovered cluster.
	maps.DeleteFunc(next.ackedBy, func(term uint64, _ *node) bool { return term > log.HardState().Term })
	next.engines[n] = c.engines[n]
	next.policies = slices.Clone(c.policies)
	next.policies = slices.DeleteFunc(next.policies, func(p policy) bool { return p.index > kept })
	next.policies = append(next.policies, policy{log.LastIndex(), state})
	f.check = next
	f.known(v)
	c.beside(n, v.Out == "")
	c.w.losses.givenUp += len(f.givenUp)
	n.log("recovery", "keeps %d of %d committed entries, gives up %d transactions", kept, len(c.entries), len(f.givenUp))
	n.belongTo(next)
	return f
}

// known fails the run if a transaction is given up although a node has it, that node has answered, and the
// operator was not told of the transaction.
func (f *fork) known(v recovery.Verdict) {
	named, err := gtid.ParseSet(v.Lacking)
	for _, o := range v.Nodes {
		if o.Report == nil || err != nil {
			continue
		}
		var has *gtid.Set
		if has, err = gtid.ParseSet(o.Report.Log.GTIDs); err != nil {
			break
		}
		for _, tx := range f.of.transactions {
			if g := tx.gtid; f.givenUp[g] && has.Contains(g) && !named.Contains(g) {
				f.of.w.fail("recovery", "n%d gives up %s, which node %s has, and names %s", f.by.id, g, o.Name, named)
			}
		}
	}
	if err != nil {
		f.of.w.fail("sim", "read the transactions of a recovery: %v", err)
	}
}

// beside fails the run if the recovered node reaches a majority of the voters, or a node that has a leader.
// votes tells whether the recovered node counts as a voter here.
func (c *checker) beside(n *node, votes bool) {
	there := map[cluster.NodeID]bool{n.id: votes}
	for _, o := range c.w.nodes {
		if c.w.losses.near(n, o) {
			there[o.id] = true
			if o.agent.Raft.Role().Leader != 0 {
				c.w.fail("recovery", "n%d is recovered beside n%d, which has a leader", n.id, o.id)
			}
		}
	}
	p := n.stateBefore
	if cluster.Majority(p.State.Voters(), p.Outgoing, func(id cluster.NodeID) bool { return there[id] }) {
		c.w.fail("recovery", "n%d is recovered beside a majority: %v", n.id, there)
	}
}

// near tells whether two nodes of one cluster have been connected for long enough that a question and its
// answer have come through.
func (l *losses) near(n, o *node) bool {
	if o == n || o.check != n.check || o.agent == nil || l.w.node(o.id).stalledUntil > l.w.sched.now {
		return false
	}
	to, from := l.w.net.link(n.id, o.id), l.w.net.link(o.id, n.id)
	return l.w.net.sound(n.id, o.id) && l.w.sched.now-max(o.upAt, o.stalledUntil, n.stalledUntil, to.healedAt, from.healedAt) > nearAfter
}

// belongTo moves a node to another checker. The former checker remembers what the node had promised.
func (n *node) belongTo(c *checker) {
	if n.check == c {
		return
	}
	if n.check.left == nil {
		n.check.left = map[cluster.NodeID]durableLog{}
	}
	n.check.left[n.id] = durableLog{terms: slices.Clone(n.durable.terms), hs: n.durable.hs}
	delete(n.check.engines, n)
	delete(c.left, n.id)
	n.check = c
}

// durableOf returns what a node has promised to keep to the cluster of this checker.
func (c *checker) durableOf(id cluster.NodeID) *durableLog {
	if d, left := c.left[id]; left {
		return &d
	}
	return &c.w.node(id).durable
}

// takesPart checks a former member that leads, or follows a leader. It may do so only if it
// could not know of the recovery, or rejects it.
func (l *losses) takesPart(a *agent) {
	now := l.w.sched.now
	for _, f := range l.forks {
		x := f.by
		if a.n.check != f.of {
			continue
		}
		ledNow := slices.ContainsFunc(l.w.nodes, func(n *node) bool {
			return n != a.n && n.check == f.of && n.agent != nil && n.agent.Raft.Role().Leader != 0
		})
		if ledNow || a.Raft.Role().Leader != 0 {
			f.led = now
		}
		limit := hearWithin
		if now-f.led < leaderWithin {
			limit = leaderWithin
		}
		if since := l.reaches(a.n, f); since >= 0 && now-since > limit && !a.n.rejected.Has(f.recovery) {
			l.w.fail("recovery", "n%d takes part in term %d beside the recovery on n%d, which it reaches since %v", a.n.id, a.Raft.Role().Term, x.id, since)
		}
		f.led = now
	}
}

// reaches returns since when a former member and the recovered node both run and reach each other; -1 = they do
// not.
func (l *losses) reaches(n *node, f *fork) time.Duration {
	x := f.by
	if n.agent == nil || x.agent == nil || x.check != f.check || !l.w.net.connected(n.id, x.id) {
		return -1
	}
	return max(n.upAt, x.upAt, n.stalledUntil, x.stalledUntil, l.w.net.link(n.id, x.id).healedAt, l.w.net.link(x.id, n.id).healedAt)
}

// rejects checks a node that is about to reject a recovery for good. It may do so only where
// some former member has a leader, or rejects the recovery already.
func (l *losses) rejects(n *node, r cluster.Recovery) {
	l.rejections++
	for _, o := range l.w.nodes {
		if a := o.agent; o.rejected.Has(r) || o.check == n.check && a != nil && a.board.SinceLeader() != recovery.NeverLed || o == n {
			return
		}
	}
	l.w.fail("recovery", "n%d rejects the recovery on %s, and nobody had a leader", n.id, r.Node)
}

// accepts checks a node that gives up its log for a recovery. Neither it nor a node that it
// reaches may have a leader, have had one within ledWithin, or reject the recovery.
func (l *losses) accepts(p *host, r cluster.Recovery) {
	n := p.n
	l.accepted++
	if since := p.board.SinceLeader(); since < ledWithin || n.rejected.Has(r) {
		l.w.fail("recovery", "n%d accepts the recovery on %s: it had a leader %v ago, rejects it %t",
			n.id, r.Node, since, n.rejected.Has(r))
	}
	for _, o := range l.w.nodes {
		if !l.near(n, o) || l.w.sched.now-n.upAt < nearAfter {
			continue
		}
		if leader := o.agent.Raft.Role().Leader; leader != 0 && o.now()-o.agent.leaderAt > nearAfter || o.rejected.Has(r) && l.w.sched.now-o.rejectedAt > nearAfter {
			l.w.fail("recovery", "n%d accepts the recovery on %s, though it reaches n%d: leader %d, rejects it %t",
				n.id, r.Node, o.id, leader, o.rejected.Has(r))
		}
		if since := o.agent.board.SinceLeader(); since > nearAfter && since < ledWithin {
			l.w.fail("recovery", "n%d accepts the recovery on %s, though it reaches n%d, which had a leader %v ago", n.id, r.Node, o.id, since)
		}
	}
}

// decided fails the run if a former member has reached a recovered node for long enough and has neither
// accepted nor rejected the recovery.
func (l *losses) decided() {
	for _, f := range l.forks {
		for _, n := range l.w.nodes {
			since := l.reaches(n, f)
			if n.check == f.of && since >= 0 && l.w.sched.now-since > leaderWithin && !n.rejected.Has(f.recovery) &&
				n.agent.AsSelf().Supersedes(f.recovery) {
				l.w.fail("recovery", "n%d has not decided about the recovery on n%d, which it reaches since %v: %s", n.id, f.by.id, since, l.w.describe())
			}
		}
	}
}

// concerning returns the requests that the chosen cluster has to account for. Answers that another side gave
// after the recovery are given up with that side. Answers from before the recovery are kept, except for the
// transactions that the recovery's log did not have.
func (c *checker) concerning(history []*request) (mine []*request) {
	if c.w.losses == nil {
		return history
	}
	for _, r := range history {
		if c.concerns(r) {
			mine = append(mine, r)
		}
	}
	return mine
}

func (c *checker) concerns(r *request) bool {
	if r.by == nil || r.by == c || r.outcome != succeeded && r.kind != selecting {
		return true
	}
	kept, parted := c, (*fork)(nil)
	for ; kept != nil && kept != r.by; kept = parted.of {
		if parted = kept.before; parted == nil {
			return r.kind == appending && c.holds(r) // the other side's answer counts only if this log has it, too
		}
	}
	if r.kind == selecting {
		return r.end > 0 && r.end <= parted.at && !slices.ContainsFunc(r.read, c.lost(r.key))
	}
	if !c.holds(r) && r.answered <= parted.at && !c.gaveUp(r.gtid) {
		c.w.fail("I7", "%s, acknowledged at %v before the recovery on n%d at %v, is not there, nor given up", r.gtid, r.answered, parted.by.id, parted.at)
	}
	return c.holds(r)
}

// holds tells whether the log has the transaction of a request. The GTID alone does not say that: another side
// may have given it to another transaction.
func (c *checker) holds(r *request) bool {
	mine, found := c.places[r.gtid]
	theirs, known := r.by.places[r.gtid]
	if !found || !known {
		return false
	}
	at := c.transactions[mine].index
	return at == r.by.transactions[theirs].index && c.entries[at-1] == r.by.entries[at-1]
}

func (c *checker) gaveUp(g gtid.GTID) bool {
	for f := c.before; f != nil; f = f.of.before {
		if f.givenUp[g] {
			return true
		}
	}
	return false
}

// lost returns a function that tells whether a table lacks a value.
func (c *checker) lost(key string) func(string) bool {
	final := c.w.someReplica().mysqlDisk.Values(key)
	return func(value string) bool { return !slices.Contains(final, value) }
}
