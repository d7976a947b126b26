package consensus

import (
	"time"

	"golang.org/x/sys/unix"
)

// A machine that its hypervisor stops for a while (a suspended guest, a snapshot of its
// memory) may not see that in CLOCK_BOOTTIME: many give the guest its old counter back.
// Its lease would outlive the promises that it rests on. No clock of the guest is sure to
// show it. What sets the wall clock right afterwards does (the hypervisor's time service
// in the guest, NTP): where it has gained half an election timeout on the boot clock, no
// lease is believed but by a round that begins after that.

// BootTime is the clock of all leases: it goes on while the machine sleeps
// and nobody can set it.
func BootTime() time.Duration { return readClock(unix.CLOCK_BOOTTIME) }

func readClock(id int32) time.Duration {
	var ts unix.Timespec
	// It cannot fail for these clocks with a valid pointer.
	_ = unix.ClockGettime(id, &ts)
	return time.Duration(ts.Nano())
}

// clocks are what the two clocks say at a moment.
type clocks struct{ boot, wall time.Duration }

func readClocks() clocks { return clocks{boot: BootTime(), wall: readClock(unix.CLOCK_REALTIME)} }

// ahead is by how much the wall clock is before the boot clock.
func (c clocks) ahead() time.Duration { return c.wall - c.boot }

// stood tells whether the machine may have stood still since the wall clock was ahead
// by as much as before. One that was set back says nothing.
func (c clocks) stood(before, electionTimeout time.Duration) bool {
	return c.ahead()-before > electionTimeout/2
}

// watchClocks ends the lease after a standstill. It is the loop's.
func (n *Node) watchClocks(now clocks) {
	before := time.Duration(n.ahead.Load())
	if now.stood(before, n.cfg.ElectionTimeout) {
		n.group.Distrust()
		n.lease.Store(0)
		n.cfg.Logger.Warn("the wall clock was set forward, or this machine stood still: no lease is believed until the next round", "by", now.ahead()-before)
	}
	n.ahead.Store(int64(now.ahead())) // after the lease: who reads the new one finds no old lease
}

// leads is Leads at a moment.
func (n *Node) leads(now clocks) bool {
	before := time.Duration(n.ahead.Load()) // before the lease
	return int64(now.boot) < n.lease.Load() && !now.stood(before, n.cfg.ElectionTimeout)
}
