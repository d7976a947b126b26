package consensus

import "time"

// Ticks come each GroupConfig.Tick, on a grid of the boot clock. Most ticks of an idle
// cluster change nothing, and nobody wakes for those: the next turn counts
// them first (Driver.Advance), and the keeper sleeps until the next tick that may do
// something by itself (Driver.WakeAt).
//
// A tick must never be counted from before a message that a promise rests on (Promise):
// the clock that Advance is given is read after the messages of its turn were taken.

// spareTicksMax bounds the ticks that nobody wakes for, in heartbeat intervals. A machine
// that stood still counts no more of them at once: what came meanwhile is read first.
const spareTicksMax = 2

// Advance counts the ticks that have passed. It is what a turn begins with.
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

// tickAt is when the next tick is due that may do something by itself.
func (d *Driver) tickAt() time.Duration {
	tick, spare := d.group.cfg.Tick, d.group.spareTicks()
	if d.writes.began() != 0 { // the disk is watched
		spare = 0
	}
	at := d.ticked + time.Duration(spare+1)*tick
	if until := d.group.LeaseUntil(); until > d.ticked { // whoever watches the lease hears of its end
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
		// Raft may draw the least timeout, which ends as the silence becomes one.
		spare = min(spare, g.cfg.ElectionTicks-1-g.silence)
	}
	if g.stored.Commit != g.rn.BasicStatus().GetCommit() {
		spare = min(spare, g.cfg.HeartbeatTicks-1-g.stored.ticks)
	}
	return max(0, spare)
}
