package follow

import "github.com/quorate/quorate/internal/mysql/binlog"

// Clock says which transactions of a source may run at the same time, by the logical clock of their GTID
// events: a transaction may begin once all transactions up to its last committed are done
// (Mts_submode_logical_clock in sql/rpl_mta_submode.cc). Transactions that the source does not send, because
// they are here already, count as done. The order of commits is not kept: gtid_executed has gaps meanwhile,
// and shows what is done.
type Clock struct {
	running map[int64]struct{}
	newest  int64
}

// May tells whether a transaction may begin while those under way go on.
func (c *Clock) May(i binlog.GTIDInfo) bool {
	if len(c.running) == 0 {
		return true
	}
	// Where it has no valid clock, or a clock of another file, it waits until none runs.
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

// Begin notes that a transaction begins.
func (c *Clock) Begin(i binlog.GTIDInfo) {
	if c.running == nil {
		c.running = map[int64]struct{}{}
	}
	c.running[i.SequenceNumber] = struct{}{}
	c.newest = i.SequenceNumber
}

// End notes that a transaction has ended.
func (c *Clock) End(i binlog.GTIDInfo) { delete(c.running, i.SequenceNumber) }

// Idle tells whether no transaction runs.
func (c *Clock) Idle() bool { return len(c.running) == 0 }
