package tap

// Ends returns true if the tap has received nothing behind entry number: no later entry was
// handed out, and none is growing, not even with half a transaction or half a stage. at is the
// binlog position up to which the tap has taken everything in.
func (m *Machine) Ends(number uint64) (at Position, ok bool) {
	return m.at, number == m.acks.last && m.batch.growing.untouched()
}

// Settle is for the tap of a deposed primary: the entries of its epoch up to number are
// committed. If the tap has received nothing else, Settle releases their positions, as any
// commit does, and returns how many transactions that are. Otherwise it returns false: mysqld's
// binlog has transactions that may never be committed.
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

// untouched reports whether the batch is empty: not even a transaction has begun.
func (g *growingBatch) untouched() bool { return len(g.data) == 0 && len(g.gtids) == 0 }
