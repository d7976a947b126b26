package consensus

import (
	"fmt"
	"sync"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/sys/invariant"
)

// Mark is the state of the committed log at one index.
type Mark struct {
	// Index is the entry's index, 0 before the first.
	Index uint64
	// Epoch is the term of the newest epoch up to Index, Number the number of
	// its newest entry.
	Epoch, Number uint64
	// Last is the last transaction up to Index; its zero value = none since
	// the check started.
	Last gtid.GTID
	// Transactions and Bytes count what the commit check has seen since it
	// started: differences of two marks are exact, absolute values are not.
	Transactions uint64
	Bytes        uint64
}

// Committed is the commit check and what it has learned: the set of committed GTIDs and the newest mark. Only
// the goroutine with the turn calls apply. Any goroutine may read. Entries come in index order, each once.
type Committed struct {
	mu      sync.Mutex
	gtids   *gtid.Set
	mark    Mark
	known   bool          // mark.Number is known: an epoch entry or any number was seen
	changed chan struct{} // nil: no goroutine waits
	// epochChanged is closed when an epoch newer than epoch is published.
	epoch        uint64
	epochChanged chan struct{}
	// markTerm is the Raft term of the entry at mark.Index; 0 = no entry was applied since the start.
	markTerm uint64
	// ended is the end of the epoch before the newest one.
	ended epochEnd

	state        cluster.StatePoint
	stateChanged chan struct{}
}

func newCommitted(applied uint64, gtids *gtid.Set) *Committed {
	return &Committed{gtids: gtids, mark: Mark{Index: applied}, epochChanged: make(chan struct{}), stateChanged: make(chan struct{})}
}

// Mark returns the newest mark.
func (c *Committed) Mark() Mark {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mark
}

// GTIDs returns a copy of the set of committed transactions.
func (c *Committed) GTIDs() *gtid.Set {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gtids.Clone()
}

// Lacks counts the committed transactions that s lacks.
func (c *Committed) Lacks(s *gtid.Set) uint64 {
	missing := c.GTIDs()
	missing.Subtract(s)
	return missing.Count()
}

// Contains tells whether every transaction of s is committed.
func (c *Committed) Contains(s *gtid.Set) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gtids.ContainsSet(s)
}

// Changed returns the newest mark and a channel that is closed when there is
// a newer one.
func (c *Committed) Changed() (Mark, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.mark, c.changed
}

// EpochChanged returns the newest epoch and a channel that is closed when there is a newer one. Transactions do
// not close this channel, so they do not wake the callers that wait for an epoch.
func (c *Committed) EpochChanged() (epoch uint64, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.epoch, c.epochChanged
}

// Entries is a log, or a reader of one.
type Entries interface {
	Entries(lo, hi, bytesMax uint64) ([]seglog.Entry, error)
}

// Read returns committed entries from index on (I4): at least one, and at most bytesMax bytes of entries unless
// the first is larger. ok=false means that index is not committed yet.
func (c *Committed) Read(log Entries, index, bytesMax uint64) (found []seglog.Entry, ok bool, err error) {
	last := c.Mark().Index
	if index > last {
		return nil, false, nil
	}
	if found, err = log.Entries(index, last+1, bytesMax); err != nil {
		return nil, false, fmt.Errorf("read committed entries from %d: %w", index, err)
	}
	return found, true, nil
}

// apply checks one committed entry (I2, I9) and adds it. A broken invariant panics; package invariant says why.
// For a change of the cluster state it returns the outcome.
func (c *Committed) apply(index, term uint64, data []byte) *StateOutcome {
	h, body, err := entry.Parse(data)
	invariant.Check(err == nil, "I2", "committed entry %d: %v", index, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	invariant.Check(index == c.mark.Index+1, "I4", "committed entry %d after %d", index, c.mark.Index)
	c.mark.Index, c.markTerm = index, term
	c.mark.Bytes += uint64(len(data))
	if h.Kind == entry.KindEmpty {
		return nil
	}
	invariant.Check(h.Term == term, "I2", "entry %d of term %d says term %d", index, term, h.Term)
	if h.Kind == entry.KindState {
		return c.applyState(index, h, body) // it belongs to no epoch: Epoch and Number stay
	}
	c.checkOrder(index, h)
	c.noteEpochEnd(h)
	c.mark.Epoch, c.mark.Number, c.known = h.Term, h.Number, true
	switch h.Kind {
	case entry.KindTransactions:
		c.addTransactions(index, h, body)
	case entry.KindStaged:
		c.addStaged(index, h, body)
	}
	return nil
}

// checkOrder is the commit-time half of I2.
func (c *Committed) checkOrder(index uint64, h entry.Header) {
	_, err := c.order().Next(h)
	invariant.Check(err == nil, "I2", "entry %d: %v", index, err)
}

// order returns how far the epoch's sequence of numbers has come. c.mu is held.
func (c *Committed) order() entry.Order {
	return entry.Order{Epoch: c.mark.Epoch, Number: c.mark.Number, Known: c.known}
}

// admits returns an error if the commit check would not take a proposal's body.
func (c *Committed) admits(h entry.Header, body []byte) error {
	if h.Kind == entry.KindStaged {
		return c.admitsStaged(h, body)
	}
	if h.Kind != entry.KindTransactions {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	count := uint32(0)
	for tx, err := range binlog.Transactions(body) {
		if err != nil {
			return err
		}
		if c.gtids.Contains(tx.GTID) {
			return fmt.Errorf("transaction %s is committed already", tx.GTID)
		}
		count++
	}
	if count != h.Count {
		return fmt.Errorf("it holds %d transactions, its header says %d", count, h.Count)
	}
	return nil
}

func (c *Committed) addTransactions(index uint64, h entry.Header, body []byte) {
	count := uint32(0)
	for tx, err := range binlog.Transactions(body) {
		invariant.Check(err == nil, "I4", "entry %d holds no whole transactions: %v", index, err)
		id := tx.GTID
		invariant.Check(c.gtids.Add(id), "I9", "transaction %s committed again by entry %d", id, index)
		c.mark.Last = id
		count++
	}
	invariant.Check(count == h.Count, "I4", "entry %d holds %d transactions, its header says %d", index, count, h.Count)
	c.mark.Transactions += uint64(count)
}

func (c *Committed) admitsStaged(h entry.Header, body []byte) error {
	_, id, err := stagedTransaction(h, body)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gtids.Contains(id) {
		return fmt.Errorf("transaction %s is committed already", id)
	}
	return nil
}

// stagedTransaction returns the stage that a naming entry names, and the GTID of its transaction.
func stagedTransaction(h entry.Header, body []byte) (entry.Staged, gtid.GTID, error) {
	s, err := entry.ParseStaged(h, body)
	if err != nil {
		return s, gtid.GTID{}, err
	}
	event, err := binlog.ParseEvent(s.GTIDEvent)
	if err != nil {
		return s, gtid.GTID{}, fmt.Errorf("read GTID event of staged transaction: %w", err)
	}
	info, err := binlog.ParseGTID(event)
	if err != nil {
		return s, gtid.GTID{}, fmt.Errorf("read GTID event of staged transaction: %w", err)
	}
	return s, info.GTID, nil
}

func (c *Committed) addStaged(index uint64, h entry.Header, body []byte) {
	s, id, err := stagedTransaction(h, body)
	invariant.Check(err == nil, "I4", "entry %d names no staged transaction: %v", index, err)
	invariant.Check(c.gtids.Add(id), "I9", "transaction %s committed again by entry %d", id, index)
	c.mark.Last = id
	c.mark.Transactions++
	c.mark.Bytes += s.Bytes
}

// publish wakes all goroutines that wait for a newer mark.
func (c *Committed) publish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
	if c.epoch != c.mark.Epoch {
		c.epoch = c.mark.Epoch
		close(c.epochChanged)
		c.epochChanged = make(chan struct{})
	}
}
