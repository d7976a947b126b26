package consensus

import "github.com/quorate/quorate/internal/raft/entry"

// epochEnd is the last entry of an epoch that another one has followed.
type epochEnd struct{ epoch, number uint64 }

// noteEpochEnd keeps where the epoch in force ends, if a committed entry opens the
// next one.
func (c *Committed) noteEpochEnd(h entry.Header) {
	if h.Kind == entry.KindEpoch && c.known {
		c.ended = epochEnd{c.mark.Epoch, c.mark.Number}
	}
}

// EpochEnd returns the number of the last entry of an epoch that is committed, and
// whether it is over: no more of it can be, because an entry of a later term is, and
// Raft's log has all of an earlier term before that. Once two more epochs have begun
// the number is forgotten, and is 0, which understates it.
func (c *Committed) EpochEnd(term uint64) (number uint64, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	over = c.markTerm > term
	switch term {
	case c.mark.Epoch:
		return c.mark.Number, over
	case c.ended.epoch:
		return c.ended.number, over
	}
	return 0, over
}
