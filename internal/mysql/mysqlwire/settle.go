package mysqlwire

// Settle is tap.Machine.Settle: of the tap of a deposed primary, of whose epoch
// everything up to the batch number is committed.
func (t *Tap) Settle(number uint64) (transactions int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if transactions, ok = t.machine.Settle(number); ok {
		signal(t.acks)
	}
	return transactions, ok
}

// Ends is tap.Machine.Ends: whether nothing was received behind the batch number,
// and up to where in mysqld's binlog.
func (t *Tap) Ends(number uint64) (at Position, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.machine.Ends(number)
}
