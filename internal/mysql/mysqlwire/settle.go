package mysqlwire

// Settle is tap.Machine.Settle, for the tap of a deposed primary: the batches of its epoch up
// to number are committed.
func (t *Tap) Settle(number uint64) (transactions int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if transactions, ok = t.machine.Settle(number); ok {
		signal(t.acks)
	}
	return transactions, ok
}

// Ends is tap.Machine.Ends: it returns true if the tap has received nothing behind batch
// number. at is the position in mysqld's binlog up to which it has read.
func (t *Tap) Ends(number uint64) (at Position, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.machine.Ends(number)
}
