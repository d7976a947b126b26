package tap

import "github.com/quorate/quorate/internal/sys/invariant"

// ackQueue decides which binlog position may be acknowledged (I2). It knows
// the entries of one tap in the order of the binlog and, for each, the highest
// position that its commit makes safe. It is pure; the tap locks around it.
//
// Only the commit of an entry releases a position. Releases are cumulative in the order of the
// entries, which is the order of the binlog. So no position is compared with another, also not
// across binlog files.
type ackQueue struct {
	// pending holds the entries that were received and may not be acknowledged yet, oldest
	// first. Its length is bounded by the proposals in flight (the propose function blocks)
	// plus the one growing batch. While a durability policy holds ACKs back, the number of
	// waiting sessions is the bound: at least one waits for each entry.
	pending []ackItem
	// last is the number of the newest entry received, handed out or growing.
	last uint64
	// handedOut is the highest number given to propose.
	handedOut uint64
	// committed is the highest number that was committed.
	committed uint64
	// releasable is the position to send next, if any.
	releasable Position
	hasNext    bool
	closed     bool
}

type ackItem struct {
	number uint64
	// position is the end of the entry's last transaction, or of the range that the source
	// skipped behind it. A rotation has no position: its file name is empty.
	position Position
	// transactions is how many transactions the entry has.
	transactions int
}

// received notes that the entry number now reaches up to position. Numbers never go back; the
// same number again extends the entry. A rotation passes the zero Position.
func (q *ackQueue) received(number uint64, position Position) {
	invariant.Check(number == q.last || number == q.last+1, "I2",
		"entry %d received after entry %d", number, q.last)
	if number == q.last {
		q.skipped(position)
		if n := len(q.pending); n > 0 {
			q.pending[n-1].transactions++
		}
		return
	}
	q.last = number
	item := ackItem{number: number, position: position}
	if position.File != "" {
		item.transactions = 1
	}
	q.pending = append(q.pending, item)
}

// skipped notes that the source passed over transactions which the tap had excluded, up to
// position. The position proves nothing about what came before it: it waits for the commit of
// the newest entry received, and is free at once only if that entry is committed already.
func (q *ackQueue) skipped(position Position) {
	if n := len(q.pending); n > 0 {
		q.pending[n-1].position = position
		return
	}
	q.releasable, q.hasNext = position, true
}

// handOut notes that the entry number is proposed now.
func (q *ackQueue) handOut(number uint64) {
	invariant.Check(number == q.handedOut+1 && number <= q.last, "I2",
		"entry %d handed out after entry %d, %d received", number, q.handedOut, q.last)
	q.handedOut = number
}

// commit notes that the entries up to number are committed. An older number
// changes nothing.
func (q *ackQueue) commit(number uint64) {
	invariant.Check(number <= q.handedOut, "I2",
		"acknowledgement of entry %d, only %d were handed out", number, q.handedOut)
	if number <= q.committed {
		return
	}
	q.committed = number
	done := 0
	for done < len(q.pending) && q.pending[done].number <= number {
		if p := q.pending[done].position; p.File != "" {
			q.releasable, q.hasNext = p, true
		}
		done++
	}
	q.pending = q.pending[done:]
	if len(q.pending) == 0 {
		q.pending = nil
	}
}

// take returns the highest position that may be acknowledged, once.
func (q *ackQueue) take() (Position, bool) {
	if !q.hasNext || q.closed {
		return Position{}, false
	}
	q.hasNext = false
	return q.releasable, true
}

// close drops everything: nothing is released any more.
func (q *ackQueue) close() {
	q.closed = true
	q.pending = nil
}

// outstanding counts the entries received and not committed.
func (q *ackQueue) outstanding() uint64 { return q.last - q.committed }
