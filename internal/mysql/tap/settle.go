package tap

// Ends tells whether number is the last entry that the tap has received anything
// of, and up to where in the binlog it has taken everything in. What would be behind
// that entry may have been handed out, or be growing; half of a transaction, or of a
// stage, is enough.
func (m *Machine) Ends(number uint64) (at Position, ok bool) {
	return m.at, number == m.acks.last && m.batch.growing.untouched()
}

// Settle is for the tap of a deposed primary, of whose epoch everything up to an
// entry is committed. If that is all that was received, it is let go, as after any
// commit, and Settle returns how many transactions that are. Otherwise it returns
// false: mysqld's binlog has what may never be in a log.
func (m *Machine) Settle(number uint64) (transactions int, ok bool) {
	if _, ok := m.Ends(number); !ok {
		return 0, false
	}
	for _, p := range m.acks.pending {
		transactions += p.transactions
	}
	m.acks.commit(number)
	return transactions, true
}

// untouched tells whether nothing of a batch is there, not even a beginning.
func (g *growingBatch) untouched() bool { return len(g.data) == 0 && len(g.gtids) == 0 }
