package follow

import "github.com/quorate/quorate/internal/mysql/binlog"

// Clock says which transactions of a source may run at the same time, by the logical clock of their GTID
// events: one may begin once all up to its last committed are done (Mts_submode_logical_clock in
// sql/rpl_mta_submode.cc). Those that never come, because they are there already, count as done. The order of
// commits is not kept: gtid_executed has gaps meanwhile, and tells what is done.
type Clock struct {
	running map[int64]struct{}
	newest  int64
}

// May tells whether a transaction may begin beside those that run.
func (c *Clock) May(i binlog.GTIDInfo) bool {
	if len(c.running) == 0 {
		return true
	}
	// Without a clock, or where it is not one of this file, it waits for all.
	if i.LastCommitted < 0 || i.LastCommitted >= i.SequenceNumber || i.SequenceNumber <= c.newest {
		return false
	}
	for n := range c.running {
		if n <= i.LastCommitted {
			return false
		}
	}
	return true
}

// Begin notes that a transaction begins, End that it has ended.
func (c *Clock) Begin(i binlog.GTIDInfo) {
	if c.running == nil {
		c.running = map[int64]struct{}{}
	}
	c.running[i.SequenceNumber] = struct{}{}
	c.newest = i.SequenceNumber
}

// End notes that a transaction has ended.
func (c *Clock) End(i binlog.GTIDInfo) { delete(c.running, i.SequenceNumber) }

// Idle tells whether none runs.
func (c *Clock) Idle() bool { return len(c.running) == 0 }
