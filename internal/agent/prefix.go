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
	Index uint64
	// Skip is how many of that entry's transactions it has.
	Skip int
	// Through holds every transaction of the log up to the mark.
	Through *gtid.Set
}

// findPrefix finds the last transaction of the committed log that is in
// executed. Engine commits follow log order everywhere, so mysqld holds
// everything before it, too (the prefix rule).
func findPrefix(log committedLog, executed *gtid.Set) (prefixMark, error) {
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

// holesError says that the premise of the prefix rule does not hold.
type holesError struct{ GTIDs *gtid.Set }

func (e *holesError) Error() string {
	return fmt.Sprintf("mysqld lacks transactions with rows (%s) although it has later ones", e.GTIDs)
}

// findHoles returns the transactions before the mark that are not in executed:
// statements that changed nothing, of which InnoDB keeps no trace. Each of
// them is read, and one that carries rows is a *holesError: nothing is ever
// declared done that was not looked at.
func findHoles(log committedLog, mark prefixMark, executed *gtid.Set) (*gtid.Set, error) {
	holes := mark.Through.Clone()
	holes.Subtract(executed)
	if holes.IsEmpty() {
		return holes, nil
	}
	withRows := &gtid.Set{}
	seen := &gtid.Set{}
	segments := log.Segments()
	for i, s := range segments {
		last := mark.Index
		if i+1 < len(segments) && segments[i+1].FirstIndex <= mark.Index {
			last = segments[i+1].FirstIndex - 1
			inside := segments[i+1].GTIDsBefore.Clone()
			inside.Subtract(s.GTIDsBefore)
			if !inside.Intersects(holes) {
				continue
			}
		}
		if s.FirstIndex > mark.Index {
			break
		}
		err := eachTransaction(log, s.FirstIndex, last, func(_ uint64, _ int, tx binlog.Transaction) error {
			if !holes.Contains(tx.GTID) {
				return nil
			}
			seen.Add(tx.GTID)
			rows, err := binlog.HasRowEvents(tx.Raw)
			if rows {
				withRows.Add(tx.GTID)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("look at the holes in gtid_executed: %w", err)
		}
	}
	if !withRows.IsEmpty() {
		return nil, &holesError{GTIDs: withRows}
	}
	if !seen.ContainsSet(holes) {
		return nil, fmt.Errorf("the log no longer holds all of %s: they cannot be looked at", holes)
	}
	return holes, nil
}
