package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/testkit/sim/fakemysqld"
)

const (
	// xaShare is the percentage of requests that begin an XA transaction, xaOnePhase the
	// percentage of writes that are an XA transaction of one phase.
	xaShare    = 12
	xaOnePhase = 5
	// managerEvery is how often the transaction manager looks for XA transactions that no client ends.
	// xaLeftMean is how long it leaves them prepared.
	managerEvery = 300 * time.Millisecond
	xaLeftMean   = 2 * time.Second
	managerID    = 1 << 20
)

// XACounts counts XA transactions: how many were prepared with OK, how many of these were committed with OK or
// rolled back, and how many were ended by another primary than the one that prepared them.
type XACounts struct{ Prepared, Committed, RolledBack, Inherited int }

// xaTransaction is a client's XA transaction. Whether it commits is decided once, before any server knows.
type xaTransaction struct {
	xid        string
	key, value string
	commits    bool
	// acknowledged is when the client got OK for its XA PREPARE, and by the node that gave it.
	acknowledged   time.Duration
	by             *node
	due            time.Duration // only its client ends it before that time
	tries          int
	busy, answered bool
	// append is the entry for its value in the ledger, once XA COMMIT was sent.
	append *request
}

// assignXA makes clients use XA, in one of three worlds. It does not do so in worlds whose faults are about
// settling a deposed primary: a primary with a prepared XA transaction is not settled. Nor does it where a
// recovery gives up transactions: clients' XA transactions are not followed there.
func (w *World) assignXA() {
	drawn := chance(w.random(streamXA), 33)
	w.usesXA = w.options.Losses == 0 && (w.options.XA > 0 || drawn && w.options.XA == 0 && !w.options.Blips)
}

// prepareXA makes a client prepare an XA transaction and, mostly, end it.
func (l *workload) prepareXA(r *request, again func(*request)) {
	x := &xaTransaction{key: r.key}
	r.kind, r.xa = preparing, x
	r.done = func(r *request) {
		x.due = l.w.sched.now + around(l.rng, xaLeftMean)
		switch n := l.rng.IntN(100); {
		case r.outcome != succeeded: // the outcome is unknown: the manager looks, and rolls back
		case n < 60:
			x.commits = n < 45
			l.endXA(x, r.client, again)
			return
		default: // the client leaves it prepared
			x.commits = n < 85
		}
		again(r)
	}
	l.xa = append(l.xa, x)
	l.send(r)
}

// endXA sends XA COMMIT or XA ROLLBACK.
func (l *workload) endXA(x *xaTransaction, client int, done func(*request)) {
	x.busy = true
	x.tries++
	r := &request{client: client, kind: rollingBack, key: x.key, xa: x}
	if x.commits {
		r.kind = committing
		if x.append == nil {
			x.append = &request{client: client, kind: appending, key: x.key, value: x.value, call: l.w.sched.now}
			l.history = append(l.history, x.append)
		}
	}
	r.done = func(r *request) {
		x.busy = false
		done(r)
	}
	l.send(r)
}

// manage makes the transaction manager end the XA transactions that no client ends.
func (l *workload) manage() {
	if l.idle > 0 && !l.stopped {
		l.w.sched.after(around(l.rng, managerEvery), l.manage)
		return
	}
	r := &request{client: managerID, kind: recovering}
	r.done = func(r *request) {
		for _, x := range l.xa {
			if slices.Contains(r.read, x.xid) && !x.busy && (x.due <= l.w.sched.now || l.stopped) && x.due != 0 {
				l.endXA(x, managerID, func(*request) {})
			}
		}
		l.w.sched.after(around(l.rng, managerEvery), l.manage)
	}
	l.send(r)
}

// recovered checks an answer to XA RECOVER at the moment when it is given.
func (l *workload) recovered(n *node, xids []string) {
	for _, x := range l.xa {
		if x.acknowledged != 0 && x.tries == 0 && !slices.Contains(xids, x.xid) {
			l.w.fail("xa", "n%d serves and lacks %s, which was prepared with OK at %v and nobody has ended", n.id, x.xid, x.acknowledged)
		}
	}
}

// answeredXA notes mysqld's answer about an XA transaction.
func (l *workload) answeredXA(s *session, o fakemysqld.Outcome) {
	x, now := s.r.xa, l.w.sched.now
	switch {
	case x == nil:
	case o == fakemysqld.NotPrepared:
		if x.acknowledged != 0 && x.tries == 1 {
			l.w.fail("xa", "n%d knows nothing of %s, which was prepared with OK at %v and nobody has ended", s.serves.id, x.xid, x.acknowledged)
		}
	case o != fakemysqld.OK:
	case s.r.kind == preparing:
		x.acknowledged, x.by = now, s.serves
		l.w.xaCounts.Prepared++
	default:
		if x.answered {
			l.w.fail("xa", "n%d: %s was ended twice, each time with OK", s.serves.id, x.xid)
		}
		x.answered = true
		if x.by != nil && x.by != s.serves {
			l.w.xaCounts.Inherited++
		}
		if s.r.kind == rollingBack {
			l.w.xaCounts.RolledBack++
		} else {
			l.w.xaCounts.Committed++
		}
	}
}

// finishedXA notes the answer that a client got.
func (l *workload) finishedXA(r *request) {
	if r.kind == committing && r.outcome == succeeded && r.xa.append.end == 0 {
		r.xa.append.end, r.xa.append.outcome = r.end, succeeded
	}
}

// xaTx returns the transaction of a request.
func (l *workload) xaTx(r *request) fakemysqld.Tx {
	tx := fakemysqld.Tx{ID: r.transaction, Key: r.key, XID: r.xa.xid}
	switch r.kind {
	case preparing:
		tx.Kind, tx.Value, tx.Bytes = fakemysqld.XAPrepare, r.value, l.bytes()
	case committing:
		tx.Kind = fakemysqld.XACommit
	default:
		tx.Kind = fakemysqld.XARollback
	}
	return tx
}

// xaEnded tells whether no XA transaction is prepared in any mysqld.
func (l *workload) xaEnded() bool {
	return !slices.ContainsFunc(l.w.nodes, func(n *node) bool {
		return n.agent != nil && n.agent.process != nil && len(n.agent.process.Prepared()) > 0
	})
}

// xaEnds checks, at the end of the run, that each XA transaction ended as decided.
func (c *checker) xaEnds() {
	for _, x := range c.w.load.xa {
		there := slices.Contains(c.w.someReplica().mysqlDisk.Values(x.key), x.value)
		switch {
		case there && !x.commits:
			c.w.fail("xa", "%s is in table %s, and was to be rolled back", x.xid, x.key)
		case !there && x.commits && x.acknowledged != 0:
			c.w.fail("xa", "%s, prepared with OK at %v, is not in table %s, and was to be committed", x.xid, x.acknowledged, x.key)
		}
	}
	if len(c.prepared) > 0 {
		c.w.fail("xa", "the log ends with %d XA transactions prepared", len(c.prepared))
	}
}

// xaOpens checks the prepared XA transactions of a mysqld that opens for writes: it must have all those of the
// log, and none whose end would be in no binlog.
func (c *checker) xaOpens(a *agent) {
	if !a.process.GTIDExecuted().ContainsSet(c.all()) {
		return // it does not lead any more, and need not have what others have committed since
	}
	if here := a.process.Unbinlogged(); len(here) > 0 {
		c.w.fail("xa", "n%d opens with %v prepared, whose ends no log would have", a.n.id, here)
	}
	xids := a.process.Prepared()
	for _, xid := range xids {
		if !c.prepared[xid] {
			c.w.fail("xa", "n%d opens with %s prepared, which the log has not", a.n.id, xid)
		}
	}
	if len(xids) != len(c.prepared) {
		c.w.fail("xa", "n%d opens with %v prepared, the log has %d", a.n.id, xids, len(c.prepared))
	}
}

// xa follows the XA transactions of the committed log: each is prepared once and ended once.
func (c *checker) xa(tx committedTransaction, prepares, ends string) {
	switch open := c.prepared[prepares+ends]; {
	case prepares != "" && open:
		c.w.fail("xa", "%s prepares %s once more", tx.gtid, prepares)
	case prepares != "":
		c.prepared[prepares] = true
	case ends != "" && !open:
		c.w.fail("xa", "%s ends %s, which is not prepared", tx.gtid, ends)
	case ends != "":
		delete(c.prepared, ends)
	}
}

// nameXA sets the name and the value of the XA transaction that a request prepares.
func (l *workload) nameXA(r *request) {
	if r.kind == preparing {
		r.value = fmt.Sprintf("x%d", r.transaction)
		r.xa.xid, r.xa.value = r.value, r.value
	}
}
