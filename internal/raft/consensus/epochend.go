package consensus

import "github.com/quorate/quorate/internal/raft/entry"

// epochEnd is the last entry of an epoch that was followed by another epoch.
type epochEnd struct{ epoch, number uint64 }

// noteEpochEnd keeps the end of the epoch in force, if the committed entry h opens the next epoch.
func (c *Committed) noteEpochEnd(h entry.Header) {
	if h.Kind == entry.KindEpoch && c.known {
		c.ended = epochEnd{c.mark.Epoch, c.mark.Number}
	}
}

// EpochEnd returns the number of the last committed entry of an epoch, and whether the epoch is over. It is
// over when an entry of a later term is committed: Raft's log has all entries of an earlier term before that,
// so no more of them can be committed. Once two more epochs have begun the number is forgotten: then it is 0,
// which is too low.
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
