package consensus

import "time"

// A tick comes each GroupConfig.Tick, on a grid of the boot clock. Most ticks of an idle cluster change
// nothing, and no goroutine wakes for those. The next turn counts them first (Driver.Advance). The keeper
// sleeps until the next tick that may change something by itself (Driver.WakeAt).
//
// A promise is counted from a message (Promise). A tick must never count that lies before that message was
// taken. So the clock for Advance is read after the messages of its turn were taken.

// spareTicksMax bounds the ticks for which no goroutine wakes, in heartbeat intervals. After a machine stood
// still, no more ticks are counted at once: messages that came meanwhile are read first.
const spareTicksMax = 2

// Advance counts the ticks that have passed. Each turn begins with it.
func (d *Driver) Advance(boot, wall time.Duration) {
	length := d.group.cfg.Tick
	passed := (boot - d.ticked) / length
	if passed <= 0 {
		return
	}
	d.ticked += passed * length
	spare := d.group.spareTicks()
	for range min(int(passed), spare+1) {
		d.tick(boot, wall)
	}
}

// TickDue tells whether Advance has something to do.
func (d *Driver) TickDue(boot time.Duration) bool { return boot-d.ticked >= d.group.cfg.Tick }

// tickAt is when the next tick is due that may change something by itself.
func (d *Driver) tickAt() time.Duration {
	tick, spare := d.group.cfg.Tick, d.group.spareTicks()
	if d.writes.began() != 0 { // the disk is watched
		spare = 0
	}
	at := d.ticked + time.Duration(spare+1)*tick
	if until := d.group.LeaseUntil(); until > d.ticked { // a goroutine that watches the lease hears of its end
		at = min(at, until)
	}
	return max(at, d.ticked+tick)
}

// spareTicks is how many of the next ticks change nothing by themselves.
func (g *Group) spareTicks() int {
	spare := spareTicksMax*g.cfg.HeartbeatTicks - 1
	if g.blocked != nil || g.campaignAt != 0 || g.committed.joint() {
		return 0
	}
	switch {
	case g.role.Leading:
		if !g.knowsCommitted() || g.transferredTerm == g.role.Term || g.lease.until.boot <= g.now ||
			g.acks.waits || len(g.acks.watch.Dropped()) > 0 {
			return 0
		}
		spare = min(spare, g.lease.ticksToRound-1)
	case g.role.Leader == 0:
		return 0
	default:
		// Raft may draw its shortest timeout. That ends when the silence is as long as an election timeout.
		spare = min(spare, g.cfg.ElectionTicks-1-g.silence)
	}
	if g.stored.Commit != g.rn.BasicStatus().GetCommit() {
		spare = min(spare, g.cfg.HeartbeatTicks-1-g.stored.ticks)
	}
	return max(0, spare)
}
