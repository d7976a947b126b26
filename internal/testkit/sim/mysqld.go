package sim

import (
	"time"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/testkit/sim/fakemysqld"
)

// Times of mysqld.
const (
	startMin    = 50 * time.Millisecond
	startSpread = 150 * time.Millisecond
	sqlMin      = 50 * time.Microsecond
	sqlSpread   = 300 * time.Microsecond
	socketMin   = 5 * time.Microsecond
	socketMean  = 20 * time.Microsecond
	flushMean   = 200 * time.Microsecond
	applyMean   = 150 * time.Microsecond
	// shutdownWindow is how long a server that was told to shut down waits for its dump threads. After that it
	// lets the waiting sessions go (facts Q2).
	shutdownWindow = 8 * time.Second
	binlogBytesMax = 32 << 10
)

// mysqld is one process of mysqld: a fakemysqld.Server, and the times at which it acts.
type mysqld struct {
	*fakemysqld.Server
	n             *node
	life          *life
	incarnation   uint64
	replicaBinlog bool
	ready         bool
	// dead: the process does nothing any more. gone: the agent knows that.
	dead, gone bool
	reason     string
	// follows: the server has replicated since it was last opened for writes.
	follows bool
	exited  signal

	dumped   func() // called when the dump has something new
	flushDue bool
	applyDue bool
	inside   applying
}

// spawn starts a new incarnation. It has a binlog directory and a base name of its own.
func (n *node) spawn(replicaBinlog bool) *mysqld {
	n.incarnation++
	m := &mysqld{n: n, life: &life{n: n}, incarnation: n.incarnation, replicaBinlog: replicaBinlog}
	m.Server = fakemysqld.Start(n.mysqlDisk, fakemysqld.Options{
		BinlogDir: m.binlogDir(), BinlogBase: binlog.IncarnationBase(m.incarnation),
		ReplicaBinlog: replicaBinlog, ServerID: uint32(n.id), Rand: n.rng,
		MaxBinlogBytes: binlogBytesMax, Now: func() time.Duration { return n.w.sched.now },
	})
	n.lastBinlog.dir, n.lastBinlog.base = m.binlogDir(), binlog.IncarnationBase(m.incarnation)
	n.log("mysqld", "incarnation %d starts, has %s", m.incarnation, m.GTIDExecuted())
	m.poison()
	n.check.engine(n)
	return m
}

func (m *mysqld) binlogDir() string { return binlog.IncarnationDir(m.incarnation) }

// die ends the process as SIGKILL or a crash does. It does nothing from then on.
func (m *mysqld) die(reason string) {
	if m.dead {
		return
	}
	m.n.log("mysqld", "incarnation %d dies: %s", m.incarnation, reason)
	m.dead, m.reason = true, reason
	m.life.end()
	m.Server.Kill()
	m.n.check.engine(m.n)
	m.results()
	m.n.w.load.closeSessions(m.n)
}

// kill ends the process. The agent learns that a little later.
func (m *mysqld) kill(why string) {
	if m.dead {
		return
	}
	m.die(why)
	m.reap()
}

// reap tells the agent that the process has ended.
func (m *mysqld) reap() {
	m.n.agent.life.after(200*time.Microsecond+around(m.n.rng, 3*time.Millisecond), func() {
		m.gone = true
		m.exited.fire()
	})
}

// terminate is a SIGTERM that the agent did not send. The agent sees it after seenAfter, mostly soon, and kills
// the process. When shutdownWindow is over, it is too late (I6).
func (m *mysqld) terminate(seenAfter time.Duration) {
	m.n.log("mysqld", "told to shut down by somebody else, seen after %v", seenAfter)
	m.n.agent.life.after(seenAfter, func() { m.kill("told to shut down by somebody else") })
	m.life.after(shutdownWindow, func() { m.stopGracefully("shut down by somebody else") })
}

func (m *mysqld) stopGracefully(reason string) {
	if m.dead {
		return
	}
	m.n.log("mysqld", "incarnation %d stops: %s", m.incarnation, reason)
	m.dead, m.reason = true, reason
	m.life.end()
	m.n.w.load.results(m, m.Server.StopGracefully())
	m.n.check.engine(m.n)
	m.results()
	m.n.w.load.closeSessions(m.n)
	m.reap()
}

// begin takes a client's transaction.
func (m *mysqld) begin(tx fakemysqld.Tx) {
	m.Server.Begin(tx)
	m.results()
	m.flushSoon()
}

func (m *mysqld) flushSoon() {
	if m.flushDue {
		return
	}
	m.flushDue = true
	m.life.after(around(m.n.rng, flushMean), func() {
		m.flushDue = false
		m.Flush()
		m.afterCommits()
		m.dumpSoon()
		if m.Flushable() {
			m.flushSoon()
		}
	})
}

// dumpSoon tells the tap's reader that there is something to read.
func (m *mysqld) dumpSoon() {
	if m.dumped != nil {
		m.dumped()
	}
}

// ack takes an acknowledgement from the tap's connection.
func (m *mysqld) ack(file string, offset uint64) {
	if m.dead {
		return
	}
	m.Ack(file, offset)
	m.afterCommits()
	m.flushSoon()
}

// strayACK delivers the last ACK of the incarnation before to this incarnation, which has waiting sessions now.
// Only the name of the binlog tells that the ACK is not for it.
func (m *mysqld) strayACK() {
	s := m.n.lastACK
	if s.incarnation == 0 || s.incarnation == m.incarnation {
		return
	}
	m.life.after(around(m.n.rng, 300*time.Millisecond), func() {
		m.n.log("ack", "%v, which was for incarnation %d", s.at, s.incarnation)
		m.ack(s.at.File, s.at.Offset)
	})
}

// afterCommits checks the new engine commits, and brings the answers to the clients.
func (m *mysqld) afterCommits() {
	m.n.check.engine(m.n)
	m.results()
}

func (m *mysqld) results() { m.n.w.load.results(m, m.Results()) }

// applySoon makes the applier take what the feed has brought.
func (m *mysqld) applySoon() {
	if m.applyDue || m.dead {
		return
	}
	m.applyDue = true
	m.life.after(around(m.n.rng, applyMean)+m.n.applierLag, m.apply)
}

// unblock ends the sessions that block the applier.
func (m *mysqld) unblock() {
	if m.n.applierBlocked > 0 {
		m.n.log("unblock", "ends the sessions that block the applier")
		m.n.applierBlocked = 0
		m.applySoon()
	}
}

// apply is one turn of the applier.
func (m *mysqld) apply() {
	m.applyDue = false
	if m.n.applierBlocked > 0 {
		return // unblock calls apply again
	}
	most := 1 + m.n.rng.IntN(8)
	if m.n.w.longApplies {
		most = 1
		if left := m.applyFor(); left > 0 {
			m.applyDue = true
			m.life.after(left, m.apply)
			return
		}
	}
	stopped := m.ApplierError()
	done := m.Apply(most)
	switch why := m.ApplierError(); why {
	case "", stopped:
	case poisonError:
		m.n.w.applierStops++
	default:
		m.n.w.fail("xa", "n%d: the applier stops: %s", m.n.id, why)
	}
	if done > 0 {
		m.n.check.engine(m.n)
		m.applySoon()
	}
}
