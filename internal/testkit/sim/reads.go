package sim

import (
	"context"
	"time"

	"github.com/quorate/quorate/internal/agent/freshness"
	"github.com/quorate/quorate/internal/cluster/status"
)

const (
	// lagLook is how often the checker looks at what the replicas say of their lag.
	lagLook = 70 * time.Millisecond
	// lagSlack is for clocks that run at different rates, and for a processor that comes late.
	lagSlack = 100 * time.Millisecond
)

// replicaReads is what a node's agent knows for clients that read its replica.
type replicaReads struct {
	heard  *freshness.Heard
	polled *time.Time // when mysqld last said what it has; nil = it never did
}

// readsClock is the clock of the goroutine that asks the leader. It implements freshness.Clocks.
type readsClock struct{ late }

// Boot and Wall implement freshness.Clocks.
func (c readsClock) Boot() time.Duration { return c.n.now() }
func (c readsClock) Wall() time.Duration { return c.n.wall() }

// assignReads lets clients read replicas in one of three worlds.
func (w *World) assignReads() {
	w.replicasRead = chance(w.random(streamLags), 33) && !w.options.LateClocks && w.options.Losses <= 0
}

// runReads makes a node's agent ask its leader, again and again, whether it still leads.
func (a *agent) runReads() {
	if a.w.replicasRead {
		_ = a.reads.heard.Run(context.Background(), a.n.timing.election, a.Raft, func() {})
	}
}

// lookAtLags holds all replicas to what they say of their lag, until the end.
func (w *World) lookAtLags() {
	w.sched.after(lagLook, w.lookAtLags)
	for _, n := range w.nodes {
		if a := n.agent; a != nil && a.process != nil && !a.process.dead && n.stalledUntil <= w.sched.now {
			w.check.lag(a)
		}
	}
}

// lag checks what a replica says of its lag. If it says that the lag is known, then its mysqld has every transaction
// that was committed anywhere more than that lag and an election timeout ago. The lag goes by the machine's clock, which
// stands still while the machine is paused.
func (c *checker) lag(a *agent) {
	n := a.n
	s := a.board.Own()
	if a.reads.heard.LagStatus(&s, a.Raft, a.reads.polled, n.clock(), true); s.Role != status.RoleReplica || s.LagUnknown {
		return
	}
	c.w.lagsKnown++
	lag := time.Duration((s.LagSeconds + s.LagAge) * float64(time.Second))
	oldest := c.w.sched.now - n.globally(lag+n.timing.election) - lagSlack
	executed := a.process.GTIDExecuted()
	for i := c.engines[n].place; i < len(c.transactions) && c.transactions[i].at < oldest; i++ {
		tx := c.transactions[i]
		if tx.changes && tx.at < oldest-n.pausedSince(tx.at) && !executed.Contains(tx.gtid) { // nobody can read what is only prepared
			c.w.fail("stale", "n%d says that its lag is %v, and lacks %s, which was committed %v ago", n.id, lag, tx.gtid, c.w.sched.now-tx.at)
		}
	}
}
