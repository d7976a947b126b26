package sim

import (
	"context"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/gtid"
	"github.com/quorate/quorate/internal/membership"
	"github.com/quorate/quorate/internal/replay"
)

// Intervals that are shorter than package agent's, so that marks and purges fall
// into the middle of faults, and often.
const (
	durableEvery = 1500 * time.Millisecond
	purgeEvery   = 2 * time.Second
)

// runDurable takes a new durable mark at intervals, as long as mysqld applies
// something.
func (a *agent) runDurable() {
	tried := uint64(0)
	for {
		a.life.sleep(durableEvery)
		own := a.board.Own()
		judged := own.Role == cluster.RolePrimary || own.Role == cluster.RoleReplica
		if !judged || a.process == nil || !a.process.ready || own.Applied == tried {
			continue
		}
		if answered, err := a.takeDurable(); err != nil {
			a.n.log("durable", "not taken: %v", err)
		} else if answered {
			tried = own.Applied
		}
		a.watchXA()
	}
}

// takeDurable asks mysqld what it has, makes that durable, and notes how far
// into the log it goes.
func (a *agent) takeDurable() (answered bool, err error) {
	p, err := a.sql(context.Background())
	if err != nil {
		return false, err
	}
	executed := p.GTIDExecuted()
	if p, err = a.sql(context.Background()); err != nil {
		return false, err
	}
	a.xaUsed = a.xaUsed || p.XAUsed()
	if p, err = a.sql(context.Background()); err != nil {
		return false, err
	}
	p.FlushEngineLogs()
	if _, err = a.sql(context.Background()); err != nil {
		return false, err
	}
	held := a.held(executed)
	if a.xaUsed && a.xa == nil {
		a.xa = replay.NewPrepared(a.durable().Index + 1)
	}
	if a.xa != nil {
		if err := a.xa.Read(a.committedLog(), min(held.Index, a.group.Committed().Mark().Index)); err != nil {
			return false, err
		}
	}
	m, ok, err := replay.NewMark(a.committedLog(), held, a.xa)
	if err != nil || !ok {
		return true, err
	}
	a.n.log("durable", "mark %d, witness %s", m.Index, m.Witness)
	a.n.marked = max(a.n.marked, m.Index) // it may be on disk, if this fails
	return true, a.write(func() error { return a.mark.Advance(a.n.uuid.String(), m) })
}

// durable is the durable mark of the node's mysqld.
func (a *agent) durable() replay.Mark { return a.mark.Of(a.n.uuid.String()) }

// watchXA follows the log's XA transactions as far as mysqld is.
func (a *agent) watchXA() {
	if a.xa == nil {
		return
	}
	applied := min(a.board.Own().Applied, a.group.Committed().Mark().Index)
	if err := a.xa.Read(a.committedLog(), applied); err != nil {
		a.n.log("xa", "%v", err)
		return
	}
	a.xa.Forget(applied)
}

func (a *agent) held(executed *gtid.Set) replay.Held {
	index := a.lag.Executed(executed, a.n.clock()).Applied
	return replay.Held{Index: index, Executed: executed}
}

// runPurge purges at intervals.
func (a *agent) runPurge() {
	for {
		a.life.sleep(purgeEvery)
		in := replay.PurgeInput{
			Segments: a.log.Segments(), Now: time.Unix(0, int64(a.w.sched.now)),
			Retention: replay.Retention{BytesMax: a.w.options.RetentionBytes},
		}
		in.Needs, in.Marks = replay.Needs(membership.ForPurge(a.group.Committed().State(), a.n.id, a.statuses()))
		if a.w.stateChanges() {
			in.Needs = append(in.Needs, a.stateNeed())
		}
		p := replay.PlanPurge(in)
		if p.UpTo == 0 {
			continue
		}
		a.life.sleep(a.n.hiccup())
		removed, err := a.log.Purge(p.UpTo)
		for _, s := range removed {
			a.n.log("purge", "%d-%d", s.FirstIndex, s.LastIndex)
			a.w.purged++
		}
		if err != nil {
			a.w.fail("log", "n%d: purge: %v", a.n.id, err)
		}
	}
}

// statuses are of all members, as this node knows them.
func (a *agent) statuses() []cluster.NodeStatus { return a.board.NodesWith(a.ownStatus()) }

// stateNeed is what cluster.json needs of the log.
func (a *agent) stateNeed() replay.Need {
	return replay.Need{Who: a.n.member.Name, From: a.kept.Point().Through + 1, Why: "cluster.json", Known: true}
}
