package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/tap"
	"github.com/quorate/quorate/internal/role"
)

const (
	// maxApplyLagUsual is the default of mysql.max_apply_lag.
	maxApplyLagUsual = 10 * time.Second
	// troubleEvery is the mean time between two troubles of appliers. A trouble lasts at least
	// a sixth of troubleLasts.
	troubleEvery = 3 * time.Second
	troubleLasts = 12 * time.Second
	// poisonError is the applier's error text, poisonErrno its number.
	poisonError = "Duplicate entry"
	poisonErrno = 1062 // ER_DUP_ENTRY
)

// assignAppliers makes appliers stop with an error, in one of four worlds. There the bound on the apply lag is
// short: 1 to 3 s.
func (w *World) assignAppliers() {
	rng := w.random(streamAppliers)
	stop, lag := chance(rng, 25), time.Duration(1+rng.IntN(3))*time.Second
	w.maxApplyLag = maxApplyLagUsual
	switch {
	case w.options.Appliers > 0:
		stop = true
	case w.options.Appliers < 0, w.options.Blips, w.options.Members == MembersPair:
		stop = false
	}
	if stop {
		w.appliersStop, w.maxApplyLag = true, lag
	}
}

// trouble makes appliers stop with an error: that of one node, or those of all nodes but the one that serves.
// Or a long read blocks all of these. An operator removes the cause, and mostly starts replication again; the
// agent does so every two seconds.
func (w *World) trouble(rng *rand.Rand) {
	w.sched.after(around(rng, troubleEvery), func() {
		if w.faults.ended {
			return
		}
		serves := w.primary()
		some := slices.DeleteFunc(slices.Clone(w.nodes), func(n *node) bool {
			return n == serves || !n.runsMysqld() || n.tampered || n.poisoned
		})
		kind, lasts := rng.IntN(3), troubleLasts/6+time.Duration(rng.Int64N(int64(troubleLasts)))
		if kind == 0 && len(some) > 0 {
			i := rng.IntN(len(some))
			some = some[i : i+1]
		}
		for _, n := range some {
			if kind == 2 {
				n.applierBlocked++
				w.faults.until(lasts, n.unblock)
				continue
			}
			n.poison(true)
			w.faults.until(lasts, func() { n.mend(chance(rng, 66)) })
		}
		w.trouble(rng)
	})
}

// mend removes what stops the node's applier. starts: an operator starts replication.
func (n *node) mend(starts bool) {
	n.poison(false)
	if a := n.agent; starts && a != nil && a.process != nil && a.board.Own().Role == status.RoleReplica {
		a.life.run(func() { a.startReplica(a.process) })
	}
}

func (n *node) poison(is bool) {
	n.log("applier", "stops from now on with an error: %t", is)
	n.poisoned = is
	if n.agent != nil && n.agent.process != nil {
		n.agent.process.poison()
	}
}

// poison makes the applier stop at its next transaction, or undoes that.
func (m *mysqld) poison() {
	m.FailApplier("")
	if m.n.poisoned {
		m.FailApplier(poisonError)
	}
}

// pacing is what the checker saw of a primary's agent at its last looks at the replicas' lag.
type pacing struct {
	// batches counts the batches that were proposed since the last look. over has that number for each of the
	// last looks at which all nodes that could take over were far behind.
	batches int
	over    []int
	// commits is the commit index at each of the last looks.
	commits []uint64
	// within holds the replicas that have been within the bound since they could take over, as far as this node
	// hears. A replica that comes with a backlog must slow nobody down.
	within map[*node]bool
	// gone counts, for each node, the looks since it could last take over, as the world really is, or since this
	// node began to count it as able: a node that is given its vote is judged by what it reported before.
	gone map[*node]int
	// able holds the nodes that could take over, as far as this node hears.
	able map[*node]bool
	// needless counts the looks at which the primary was slowed down although no replica needed that.
	needless int
}

const (
	// pacingLooks is how many looks in a row show what the tap does: three seconds.
	pacingLooks = 6
	// logLooks is how far a replica's log may be behind, in looks. A replica that is further behind does not
	// count.
	logLooks = 4
	// newsLooks is for how many looks a primary may still use what a replica said before it could no longer
	// take over. A silent replica counts for board.LiveFor since its last status, and that status was on its
	// way for up to one look. (An applier that stops is reported earlier: after a poll and a status.) For that
	// long the primary may hand out as if that replica was near.
	newsLooks = int(board.LiveFor/watchInterval) + 1
	// needlessLooks is the number of looks after which a primary has heard how the others are.
	needlessLooks = 8
	// pacingMax bounds the batches that are proposed in that time, if all are far over the bound: one a second,
	// and some more because the looks are late.
	pacingMax = 5
)

// paced checks the tap against the bound on the apply lag. Far over the bound few transactions
// pass. No transaction is held back for a replica that does not apply, or while a replica is
// near.
func (a *agent) paced(p tap.Pace, news bool) {
	if news {
		a.n.log("lag", "limited %t: %s", p.Limited, p.Reason)
		a.w.slowings++
	}
	limited, c := p.Limited, &a.pacing
	batches := c.batches
	c.batches = 0
	if a.Role.Phase() != role.PhasePrimary || !a.Slot.Serving() {
		*c = pacing{}
		return
	}
	c.commits = append(c.commits, a.Raft.Committed().Mark().Index)
	had := c.commits[max(0, len(c.commits)-logLooks)]
	bound, count, over, near, doubtful := a.w.maxApplyLag.Seconds(), 0, true, false, false
	within, gone, able := map[*node]bool{}, map[*node]int{}, map[*node]bool{}
	for _, s := range a.board.Nodes() {
		o := a.w.node(s.ID)
		may := a.mayWaitFor(o)
		doubtful = doubtful || !may && (a.applies(o) || o.ranLately()) && a.w.net.connected(a.n.id, o.id)
		able[o] = s.CanTakeOver()
		switch gone[o] = c.gone[o] + 1; {
		case may:
			gone[o] = 0
			count++
			near = near || a.n.check.engines[o].place == len(a.n.check.transactions)
		case able[o] && !c.able[o]:
			gone[o] = 0
		}
		if !may && (gone[o] > newsLooks || !s.CanTakeOver()) {
			continue
		}
		backlog := s.BacklogSeconds()
		within[o] = (c.within[o] || backlog <= bound) && s.CanTakeOver() && s.LogCommit >= had
		over = over && within[o] && backlog > 1.5*bound && s.LagSeconds > 2
	}
	c.within, c.gone, c.able = within, gone, able
	if count > 0 && over {
		c.over = append(c.over, batches)
	} else {
		c.over = nil
	}
	// A link that is slow, or loses packets, still brings news, perhaps of a replica that counts. So does a machine that
	// stands still again and again.
	if c.needless++; !limited || doubtful || count > 0 && !near {
		c.needless = 0
	}
	if c.needless == needlessLooks {
		a.w.fail("lag", "n%d slows its writers down, for none of %d replicas that apply", a.n.id, count)
	}
	if len(c.over) < pacingLooks {
		return
	}
	sum := 0
	for _, n := range c.over[len(c.over)-pacingLooks+1:] {
		sum += n
	}
	if sum > pacingMax {
		a.w.fail("lag", "n%d has proposed %d batches in %v, while its best replica needs more than %.1f s to catch up, the bound is %v",
			a.n.id, sum, (pacingLooks-1)*watchInterval, 1.5*bound, a.w.maxApplyLag)
	}
}

// ranLately tells whether the machine stands still only for so short a time that others may still use what it said before.
func (n *node) ranLately() bool {
	now := n.w.sched.now
	return n.stalledUntil > now && now-n.stalledAt < board.LiveFor+watchInterval
}

// mayWaitFor tells whether a node could take over, as the world really is, and its links have no fault.
func (a *agent) mayWaitFor(o *node) bool { return a.applies(o) && a.w.net.sound(a.n.id, o.id) }

// applies tells whether a node could take over, even if its links have faults.
func (a *agent) applies(o *node) bool {
	b := o.agent
	if o == a.n || b == nil || !o.runsMysqld() || o.stalledUntil > a.w.sched.now || b.Role.Phase() != role.PhaseReplica {
		return false
	}
	m, err := a.board.State().Member(o.member.Name)
	return err == nil && m.Votes() && m.Weight > 0 && b.process != nil && b.process.ready && !b.process.dead &&
		b.process.ApplierError() == ""
}
