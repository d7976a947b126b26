package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/testkit/sim/fakemysqld"
)

const (
	clientsMax  = 10
	thinkMean   = 250 * time.Millisecond
	stormMean   = 2 * time.Millisecond
	clientGives = 10 * time.Second
	keysMax     = 4
	// newKeyEvery is the mean time between two new tables.
	newKeyEvery = 600 * time.Millisecond
)

// workload simulates the clients. Each client appends values to tables and reads them, one request at a time,
// and remembers the answers.
type workload struct {
	w        *World
	rng      *rand.Rand
	keys     []string // the tables that every client may use
	made     int
	nextID   uint64
	sessions map[uint64]*session
	// order holds the ids of the sessions in the order in which they began: a Go map has no order.
	order   []uint64
	history []*request
	storm   int // the number of faults that make all clients hurry
	idle    int // the number of faults that make clients only read
	stopped bool
	xa      []*xaTransaction
	// lastOK is when the last write was answered with OK.
	lastOK time.Duration
}

// request is one client's request and its outcome.
type request struct {
	client      int
	kind        requestKind
	key, value  string
	call, end   time.Duration
	outcome     outcome
	read        []string
	transaction uint64
	believed    cluster.NodeID
	// passed: a mysqld has got the request. It gets the request only once, whatever the network does to the
	// packets: the connection is a stream.
	passed bool
	xa     *xaTransaction
	// by is the checker of the node that answered. gtid is the GTID of the transaction, answered the time of
	// mysqld's answer.
	by       *checker
	gtid     gtid.GTID
	answered time.Duration
	done     func(*request)
}

type requestKind uint8

const (
	selecting requestKind = iota
	appending
	dropping // DROP TABLE IF EXISTS of a table that is not there
	preparing
	committing
	rollingBack
	recovering // XA RECOVER
)

type outcome uint8

const (
	unknown outcome = iota // pending, or the connection broke
	succeeded
	failed // XAER_NOTA
)

// session is a request that a mysqld works on.
type session struct {
	r        *request
	serves   *node
	via      *node
	finished bool
}

func newWorkload(w *World) *workload {
	return &workload{w: w, rng: w.random(streamLoad), sessions: map[uint64]*session{}}
}

func (l *workload) start() {
	l.newKey()
	if l.w.usesXA {
		l.manage()
	}
	for i := range clientsMax {
		l.w.sched.after(around(l.rng, thinkMean), func() { l.next(i, 0) })
	}
}

func (l *workload) think() time.Duration {
	if l.storm > 0 {
		return around(l.rng, stormMean)
	}
	return around(l.rng, thinkMean)
}

// newKey makes a table as a dump file does: it begins with a DROP IF EXISTS. Other clients use the table only
// when the DROP was answered: before that, the DROP could come after one of their writes.
func (l *workload) newKey() {
	if l.stopped {
		return
	}
	if l.idle > 0 {
		l.w.sched.after(around(l.rng, newKeyEvery), l.newKey)
		return
	}
	l.made++
	r := &request{client: clientsMax + l.made, kind: dropping, key: fmt.Sprintf("t%d", l.made)}
	r.done = func(r *request) {
		if r.outcome == succeeded {
			l.keys = append(l.keys, r.key)
			if len(l.keys) > keysMax {
				l.keys = l.keys[1:]
			}
		}
		l.w.sched.after(around(l.rng, newKeyEvery), l.newKey)
	}
	l.send(r)
}

// next sends the next request of a client.
func (l *workload) next(client int, believed cluster.NodeID) {
	if l.stopped {
		return
	}
	again := func(believed cluster.NodeID) {
		l.w.sched.after(l.think(), func() { l.next(client, believed) })
	}
	if len(l.keys) == 0 {
		again(believed)
		return
	}
	r := &request{client: client, kind: appending, key: l.keys[l.rng.IntN(len(l.keys))], believed: believed}
	switch n := l.rng.IntN(100); {
	case n < 30, l.idle > 0:
		r.kind = selecting
	case n < 40, n < 70 && l.w.options.Blips: // no row waits for an ACK: see fakemysqld.Tx.Passes
		r.kind, r.key = dropping, "never"
	}
	if l.w.usesXA && r.kind == appending && chance(l.rng, xaShare) {
		l.prepareXA(r, func(r *request) { again(r.believed) })
		return
	}
	r.done = func(r *request) { again(r.believed) }
	l.send(r)
}

// send sends a request for the first time.
func (l *workload) send(r *request) {
	l.nextID++
	r.transaction, r.call = l.nextID, l.w.sched.now
	if r.kind == appending {
		r.value = fmt.Sprintf("v%d", r.transaction)
	}
	l.nameXA(r)
	if r.xa == nil && r.kind != recovering {
		l.history = append(l.history, r)
	}
	if r.believed == 0 {
		r.believed = l.anyNode()
	}
	l.w.sched.after(clientGives, func() { l.finish(r, unknown) })
	l.attempt(r)
}

func (l *workload) anyNode() cluster.NodeID { return cluster.NodeID(1 + l.rng.IntN(len(l.w.nodes))) }

// attempt connects to the router of the node that the client believes in.
func (l *workload) attempt(r *request) {
	via := l.w.node(r.believed)
	l.w.sched.after(latencyMin+around(l.rng, latencySpread), func() {
		if via.agent == nil {
			l.retry(r)
			return
		}
		via.agent.life.run(func() { l.route(r, via) })
	})
}

// retry tries another node, because the last node did not take the request.
func (l *workload) retry(r *request) {
	if r.end != 0 {
		return
	}
	r.believed = l.anyNode()
	l.w.sched.after(5*time.Millisecond+around(l.rng, 30*time.Millisecond), func() {
		if r.end == 0 {
			l.attempt(r)
		}
	})
}

// route does what a node's router does: it passes the request to the local mysqld, or through the primary's
// router.
func (l *workload) route(r *request, via *node) {
	a := via.agent
	if r.end != 0 {
		return
	}
	if a.Slot.Serving() {
		l.enter(r, via, via)
		return
	}
	id, ok := a.board.Primary()
	if !ok {
		l.retry(r)
		return
	}
	r.believed = id
	primary := l.w.node(id)
	sent := l.w.net.send(via.id, id, func() {
		if primary.agent == nil {
			l.retry(r)
			return
		}
		primary.agent.life.run(func() {
			if r.end == 0 {
				l.enter(r, via, primary)
			}
		})
	})
	if !sent {
		l.retry(r)
	}
}

// enter does what the router of the node does that is to serve a request, whichever node the client came through.
func (l *workload) enter(r *request, via, serves *node) {
	if a := serves.agent; !a.Slot.Serving() || a.Orders.MovesAway() {
		l.retry(r) // the product's router would hold the client
		return
	}
	l.pass(r, via, serves)
}

// pass passes the bytes of a request to mysqld. The caller has just checked the lease.
func (l *workload) pass(r *request, via, serves *node) {
	p := serves.agent.process
	if p == nil || p.dead || r.passed {
		return // the client hears nothing and gives up
	}
	r.passed, r.by = true, serves.check
	serves.check.served(serves)
	s := &session{r: r, serves: serves, via: via}
	if r.kind == selecting {
		values := slices.Clone(p.Read(r.key))
		l.w.log(serves.id, "read", "%s: %d values", r.key, len(values))
		read := succeeded
		if serves.mayBeStale() {
			read = unknown
		}
		l.answer(s, func() { r.read = values; l.finish(r, read) })
		return
	}
	if r.kind == recovering {
		xids := p.Prepared()
		l.recovered(serves, xids)
		l.answer(s, func() { r.read = xids; l.finish(r, succeeded) })
		return
	}
	l.sessions[r.transaction] = s
	l.order = append(l.order, r.transaction)
	tx := fakemysqld.Tx{ID: r.transaction, Kind: fakemysqld.Write, Key: r.key, Value: r.value}
	switch {
	case r.xa != nil:
		tx = l.xaTx(r)
	case r.kind == dropping:
		tx.Kind = fakemysqld.NoOp
		tx.Passes = r.key == "never" && r.transaction%2 == 0
	case chance(l.rng, 3):
		tx.Kind = fakemysqld.DDL
	default:
		tx.Bytes = l.bytes()
	}
	if l.w.usesXA && tx.Kind == fakemysqld.Write && chance(l.rng, xaOnePhase) {
		tx.Kind, tx.XID = fakemysqld.XAOnePhase, "one"
	}
	l.w.log(serves.id, "begin", "%s %s%s", r.key, r.value, tx.XID)
	p.begin(tx)
}

// bytes is the additional length of a transaction's row events, mostly 0.
func (l *workload) bytes() int {
	switch {
	case chance(l.rng, 5):
		return l.rng.IntN(16 << 10)
	case chance(l.rng, 20):
		return l.rng.IntN(2 << 10) // several sectors: a power loss can tear them
	}
	return 0
}

// answer brings mysqld's answer to the client, if the connections are still open.
func (l *workload) answer(s *session, deliver func()) {
	s.finished = true
	client := func() { l.w.sched.after(latencyMin+around(l.rng, latencySpread), deliver) }
	if s.via == s.serves {
		client()
	} else {
		l.w.net.send(s.serves.id, s.via.id, client)
	}
}

// results takes mysqld's answers to its sessions.
func (l *workload) results(m *mysqld, rs []fakemysqld.Result) {
	for _, res := range rs {
		s := l.sessions[res.TxID]
		if s == nil {
			continue
		}
		delete(l.sessions, res.TxID)
		if s.finished {
			continue
		}
		l.answeredXA(s, res.Outcome)
		switch res.Outcome {
		case fakemysqld.NotPrepared:
			l.answer(s, func() { l.finish(s.r, failed) })
		case fakemysqld.OK:
			l.w.log(m.n.id, "ok", "%s %s as %s", s.r.key, s.r.value, res.GTID)
			m.n.check.answered(m, res.GTID)
			l.lastOK, s.r.gtid, s.r.answered = l.w.sched.now, res.GTID, l.w.sched.now
			l.answer(s, func() { l.finish(s.r, succeeded) })
		case fakemysqld.ReadOnly:
			l.answer(s, func() { s.r.passed = false; l.retry(s.r) })
		case fakemysqld.Gone:
			s.finished = true
			l.w.sched.after(latencyMin, func() { l.finish(s.r, unknown) })
		}
	}
	if len(l.order) > 4*len(l.sessions)+64 {
		l.order = slices.DeleteFunc(l.order, func(id uint64) bool { return l.sessions[id] == nil })
	}
}

// closeSessions breaks the connections through a node's router. Their clients do not learn
// the outcome of their transactions.
func (l *workload) closeSessions(n *node) {
	for _, id := range l.order {
		if s := l.sessions[id]; s != nil && !s.finished && (s.serves == n || s.via == n) {
			s.finished = true
			l.w.sched.after(latencyMin, func() { l.finish(s.r, unknown) })
		}
	}
}

// finish ends a request. Only the first call counts.
func (l *workload) finish(r *request, o outcome) {
	if r.end != 0 {
		return
	}
	r.end, r.outcome = l.w.sched.now, o
	if o == unknown {
		r.believed = 0
	}
	l.finishedXA(r)
	r.done(r)
}
