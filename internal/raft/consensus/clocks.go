package consensus

import "time"

// A hypervisor may stop a machine for a while (a suspended guest, a snapshot of its memory). CLOCK_BOOTTIME may
// not show that: many hypervisors give the guest its old counter back. Then the lease would outlive the
// promises on which it rests. No clock of the guest is sure to show the pause. But when a time service (the
// hypervisor's own, or NTP) corrects the wall clock afterwards, the wall clock shows it. So a lease ends on
// both clocks, each counted from the lease's round. A correct wall clock has seen every pause since that round,
// however short and however many. So no threshold is needed. If the wall clock is stepped forward by less than
// the rest of the lease, nothing is lost. Slewing is no step: Linux gives both clocks the same rate.

// clocks are the readings of the two clocks at one moment, or a time limit on each.
type clocks struct{ boot, wall time.Duration }

// readClocks reads the wall clock first. If the goroutine is held up before it reads the boot clock, the boot
// clock seems to be late by that time. That errs on the safe side: a lease that holds by this reading held when
// the wall clock was read, and a round seems to be older than it is.
func readClocks(m Machine) clocks {
	wall := m.Wall()
	return clocks{wall: wall, boot: m.Boot()}
}

func (c clocks) add(d time.Duration) clocks { return clocks{boot: c.boot + d, wall: c.wall + d} }

// before tells whether neither clock has reached its limit.
func (c clocks) before(until clocks) bool { return c.boot < until.boot && c.wall < until.wall }

// watchClocks makes the next round count from now on both clocks. It ends a lease that is over by the wall
// clock alone.
func (d *Driver) watchClocks(now clocks) {
	d.group.ahead = now.wall - now.boot
	if until := d.group.lease.until; now.boot < until.boot && !now.before(until) {
		d.group.Distrust()
		d.publishLease()
		d.cfg.Logger.Warn("the wall clock was set forward, or this machine stood still: no lease is believed until the next round",
			"by", d.group.ahead-(until.wall-until.boot))
	}
}

// publishLease makes the group's lease visible to LeadsAt and Lease.
func (d *Driver) publishLease() {
	if until := d.group.lease.until; until != *d.lease.Load() {
		d.lease.Store(&until)
		if d.cfg.OnLease != nil {
			d.cfg.OnLease()
		}
	}
}

// Lease returns until when this node may serve as the leader: until boot on the boot clock or wall on the wall
// clock, whichever comes first. Zero = it may not serve. Any goroutine may call it.
func (d *Driver) Lease() (boot time.Duration, wall time.Time) {
	until := d.lease.Load()
	if until.boot == 0 {
		return 0, time.Time{}
	}
	return until.boot, time.Unix(0, int64(until.wall))
}
