package agent

import (
	"fmt"

	"github.com/quorate/quorate/internal/binlog"
	"github.com/quorate/quorate/internal/entry"
	"github.com/quorate/quorate/internal/gtid"
	"github.com/quorate/quorate/internal/seglog"
)

// readBytesMax is how much of the log one read takes.
const readBytesMax = 1 << 20

// committedLog is what the prefix search and the feed need of the log: its
// committed part.
type committedLog interface {
	Segments() []seglog.SegmentInfo
	// ReadCommitted returns committed entries from index on; ok=false when
	// index is not committed yet.
	ReadCommitted(index, bytesMax uint64) (found []seglog.Entry, ok bool, err error)
	FirstIndex() uint64
}

// prefixMark is the end of the part of the log that a mysqld holds.
type prefixMark struct {
	// Index is the entry of the last transaction that mysqld has; 0 = it has none.
	// Where only Again is missing before it, it is the entry of Again's first.
	Index uint64
	// Skip is how many of that entry's transactions it has.
	Skip int
	// Through holds every transaction of the log up to the last that mysqld has.
	Through *gtid.Set
	holes
}

// findPrefix finds the last transaction of the committed log that is in
// executed. Engine commits follow log order everywhere, so mysqld holds
// everything before it, too (the prefix rule); what executed lacks there is
// looked at (see holes).
//
// What is applied again starts at the first of Again, so that it stays in log
// order; mysqld skips what follows and is in gtid_executed. So Index goes back
// only once Done has been declared: a no-op that is not would run again out of
// its order.
func findPrefix(log committedLog, executed *gtid.Set) (prefixMark, error) {
	mark, err := findMark(log, executed)
	if err != nil {
		return prefixMark{}, err
	}
	first, err := mark.findHoles(log, executed)
	if err != nil {
		return prefixMark{}, err
	}
	if !mark.Again.IsEmpty() && mark.Done.IsEmpty() && mark.Broken.IsEmpty() {
		mark.Index, mark.Skip = first.index, first.ordinal
	}
	return mark, nil
}

// findMark is findPrefix without a look at the holes.
func findMark(log committedLog, executed *gtid.Set) (prefixMark, error) {
	segments := log.Segments()
	for i := len(segments) - 1; i >= 0; i-- {
		last := uint64(0) // no bound: the newest segment
		if i+1 < len(segments) {
			inside := segments[i+1].GTIDsBefore.Clone()
			inside.Subtract(segments[i].GTIDsBefore)
			if !inside.Intersects(executed) {
				continue
			}
			last = segments[i+1].FirstIndex - 1
		}
		mark, err := lastExecuted(log, segments[i], last, executed)
		if err != nil || mark.Index != 0 {
			return mark, err
		}
	}
	return prefixMark{Through: &gtid.Set{}}, nil
}

// lastExecuted looks for the mark inside one segment, up to index last.
func lastExecuted(log committedLog, s seglog.SegmentInfo, last uint64, executed *gtid.Set) (prefixMark, error) {
	mark := prefixMark{}
	seen := s.GTIDsBefore.Clone()
	err := eachTransaction(log, s.FirstIndex, last, func(index uint64, ordinal int, tx binlog.Transaction) error {
		seen.Add(tx.GTID)
		if executed.Contains(tx.GTID) {
			mark.Index, mark.Skip = index, ordinal+1
			if mark.Through == nil {
				mark.Through = s.GTIDsBefore.Clone()
			}
			mark.Through.Union(seen)
			seen = &gtid.Set{}
		}
		return nil
	})
	if err != nil {
		return prefixMark{}, err
	}
	return mark, nil
}

// eachTransaction calls f for the committed transactions from index first to
// index last (0 = to the end).
func eachTransaction(log committedLog, first, last uint64, f func(index uint64, ordinal int, tx binlog.Transaction) error) error {
	for index := first; last == 0 || index <= last; {
		found, ok, err := log.ReadCommitted(index, readBytesMax)
		if err != nil {
			return err
		}
		if !ok {
			return nil
		}
		for _, e := range found {
			if last != 0 && e.Index > last {
				return nil
			}
			if err := entryTransactions(e, f); err != nil {
				return err
			}
			index = e.Index + 1
		}
	}
	return nil
}

func entryTransactions(e seglog.Entry, f func(uint64, int, binlog.Transaction) error) error {
	if e.Type != 0 {
		return nil
	}
	h, body, err := entry.Parse(e.Data)
	if err != nil || h.Kind != entry.KindTransactions {
		return err
	}
	ordinal := 0
	for tx, err := range binlog.Transactions(body) {
		if err != nil {
			return fmt.Errorf("read transactions of entry %d: %w", e.Index, err)
		}
		if err := f(e.Index, ordinal, tx); err != nil {
			return err
		}
		ordinal++
	}
	return nil
}

// holes are the transactions before the mark that are not in executed. Each of
// them was read: nothing is ever declared done that was not looked at.
type holes struct {
	// Done changed nothing, so that InnoDB keeps no trace of them, or are XA
	// PREPAREs of what was committed or rolled back since: a replica
	// (log_replica_updates=OFF) does not keep their GTIDs.
	Done *gtid.Set
	// Again are XA PREPAREs of what was still prepared. A replica that starts
	// rolls that back, with its GTID (only a primary that binlogs it marks it as
	// to be kept). Applied after what follows in the log it comes out the same:
	// its locks kept that away from its rows until it is ended.
	Again *gtid.Set
	// Broken are the rest: the premise of the prefix rule does not hold.
	Broken *gtid.Set
}

// place is a transaction's in the log.
type place struct {
	gtid    gtid.GTID
	index   uint64
	ordinal int
}

// findHoles fills in the mark's holes, and returns the first of Again.
func (m *prefixMark) findHoles(log committedLog, executed *gtid.Set) (first place, err error) {
	m.holes = holes{Done: &gtid.Set{}, Again: &gtid.Set{}, Broken: &gtid.Set{}}
	missing := m.Through.Clone()
	missing.Subtract(executed)
	if missing.IsEmpty() {
		return place{}, nil
	}
	seen := &gtid.Set{}
	prepared := map[binlog.XID]place{} // those of missing, not ended so far
	segments := log.Segments()
	for i, s := range segments {
		if s.FirstIndex > m.Index {
			break
		}
		last := m.Index
		if i+1 < len(segments) && segments[i+1].FirstIndex <= m.Index {
			last = segments[i+1].FirstIndex - 1
			inside := segments[i+1].GTIDsBefore.Clone()
			inside.Subtract(s.GTIDsBefore)
			if len(prepared) == 0 && !inside.Intersects(missing) {
				continue
			}
		}
		err := eachTransaction(log, s.FirstIndex, last, func(index uint64, ordinal int, tx binlog.Transaction) error {
			if missing.Contains(tx.GTID) {
				seen.Add(tx.GTID)
				return m.lookAtHole(tx, place{tx.GTID, index, ordinal}, prepared)
			}
			if len(prepared) == 0 || !executed.Contains(tx.GTID) {
				return nil
			}
			xid, ends, err := binlog.ParseXAEnd(tx.Raw)
			if p, found := prepared[xid]; ends && found {
				m.Done.Add(p.gtid)
				delete(prepared, xid)
			}
			return err
		})
		if err != nil {
			return place{}, fmt.Errorf("look at the holes in gtid_executed: %w", err)
		}
	}
	if !seen.ContainsSet(missing) {
		return place{}, fmt.Errorf("the log no longer holds all of %s: they cannot be looked at", missing)
	}
	for _, p := range prepared {
		m.Again.Add(p.gtid)
		if first.index == 0 || p.index < first.index || p.index == first.index && p.ordinal < first.ordinal {
			first = p
		}
	}
	return first, nil
}

// lookAtHole puts one missing transaction where it belongs.
func (m *prefixMark) lookAtHole(tx binlog.Transaction, at place, prepared map[binlog.XID]place) error {
	xid, prepares, err := binlog.ParseXAPrepare(tx.Raw)
	if err != nil {
		return err
	}
	if prepares {
		if before, found := prepared[xid]; found { // its end is missing
			m.Broken.Add(before.gtid)
		}
		prepared[xid] = at
		return nil
	}
	// The GTID of an XA COMMIT or XA ROLLBACK is kept with what it does.
	_, changes, err := binlog.ParseXAEnd(tx.Raw)
	if err == nil && !changes {
		changes, err = binlog.HasRowEvents(tx.Raw)
	}
	if err != nil {
		return err
	}
	if changes {
		m.Broken.Add(tx.GTID)
	} else {
		m.Done.Add(tx.GTID)
	}
	return nil
}
