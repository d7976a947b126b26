package consensus

import "time"

// A machine that its hypervisor stops for a while (a suspended guest, a snapshot of its
// memory) may not see that in CLOCK_BOOTTIME: many give the guest its old counter back.
// Its lease would outlive the promises that it rests on. No clock of the guest is sure to
// show it. What sets the wall clock right afterwards does (the hypervisor's time service
// in the guest, NTP). So a lease ends on both clocks, each counted from the round that it
// rests on: however often the machine stood still since then, and for however short a
// time, a wall clock that is right has seen all of it. That is sound without a threshold.
// Nothing is lost where the wall clock is stepped forward by less than the lease has left.
// Slewing is no step: Linux gives both clocks the same rate.

// clocks are what the two clocks say at a moment, or a time limit on each.
type clocks struct{ boot, wall time.Duration }

// readClocks reads the wall clock first. If the goroutine is held up in between, the moment
// is that of the wall clock, and the boot clock seems to be late by as much: a lease that
// holds by what was read held at that moment, and a round seems to be older than it is.
func readClocks(m Machine) clocks {
	wall := m.Wall()
	return clocks{wall: wall, boot: m.Boot()}
}

func (c clocks) add(d time.Duration) clocks { return clocks{boot: c.boot + d, wall: c.wall + d} }

// before tells whether neither clock has reached its limit.
func (c clocks) before(until clocks) bool { return c.boot < until.boot && c.wall < until.wall }

// watchClocks has the next round count from now on both clocks, and ends a lease that
// is over by the wall clock alone.
func (d *Driver) watchClocks(now clocks) {
	d.group.ahead = now.wall - now.boot
	if until := d.group.lease.until; now.boot < until.boot && !now.before(until) {
		d.group.Distrust()
		d.publishLease()
		d.cfg.Logger.Warn("the wall clock was set forward, or this machine stood still: no lease is believed until the next round",
			"by", d.group.ahead-(until.wall-until.boot))
	}
}

// publishLease lets LeadsAt and Lease see the group's lease.
func (d *Driver) publishLease() {
	if until := d.group.lease.until; until != *d.lease.Load() {
		d.lease.Store(&until)
		if d.cfg.OnLease != nil {
			d.cfg.OnLease()
		}
	}
}

// Lease returns until when this node may serve as the leader, by the boot clock and by the
// wall clock: whichever is first. Zero = it may not. Everybody may call it.
func (d *Driver) Lease() (boot time.Duration, wall time.Time) {
	until := d.lease.Load()
	if until.boot == 0 {
		return 0, time.Time{}
	}
	return until.boot, time.Unix(0, int64(until.wall))
}
