package archive

import (
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/entry"
)

// Target is the point up to which a restore goes. At most one field is set. None = the end of
// the log.
type Target struct {
	// Time: everything that was committed up to this time, by the clock of the primary then.
	Time time.Time
	// Through is the last transaction that is restored, Before the first that is left out.
	Through, Before gtid.GTID
}

// Latest tells whether everything is restored.
func (t Target) Latest() bool { return t == Target{} }

// String describes the target in words.
func (t Target) String() string {
	switch {
	case !t.Time.IsZero():
		return "all transactions up to " + t.Time.UTC().Format(time.RFC3339)
	case t.Through != gtid.GTID{}:
		return "all transactions up to and with " + t.Through.String()
	case t.Before != gtid.GTID{}:
		return "all transactions before " + t.Before.String()
	}
	return "all transactions"
}

// ErrTooNew is returned if no full backup ends before the target.
var ErrTooNew = errors.New("every full backup ends behind that point")

// Choose returns the newest of the manifests, which are sorted by age, from which a target can
// be restored.
func Choose(t Target, manifests []Manifest) (Manifest, error) {
	for i := len(manifests) - 1; i >= 0; i-- {
		m := manifests[i]
		holds, err := m.holds(t)
		if err != nil {
			return m, err
		}
		if !holds {
			return m, nil
		}
	}
	if len(manifests) == 0 {
		return Manifest{}, errors.New("there is no full backup")
	}
	oldest := manifests[0]
	return oldest, fmt.Errorf("%w: the oldest one ends at %s, entry %d", ErrTooNew, oldest.Time.Format(time.RFC3339), oldest.End.Index)
}

// holds tells whether the data of a backup may have transactions that the target leaves out.
func (m Manifest) holds(t Target) (bool, error) {
	switch {
	case t.Latest():
		return false, nil
	case !t.Time.IsZero():
		return m.Time.After(t.Time), nil
	}
	gtids, err := gtid.ParseSet(m.GTIDs)
	if err != nil {
		return false, fmt.Errorf("parse the transactions of the backup of %s: %w", m.At.Format(time.RFC3339), err)
	}
	if t.Before != (gtid.GTID{}) {
		return gtids.Contains(t.Before), nil
	}
	return gtids.Contains(t.Through), nil
}

// Transaction is a transaction of an entry.
type Transaction struct {
	GTID gtid.GTID
	// Time is when it was committed, by the clock of its primary.
	Time time.Time
	raw  []byte
}

// Transactions returns the transactions of an entry, in order.
func Transactions(e seglog.Entry) (all []Transaction, err error) {
	if e.Type != 0 {
		return nil, nil
	}
	h, body, err := entry.Parse(e.Data)
	if err != nil {
		return nil, fmt.Errorf("parse entry %d: %w", e.Index, err)
	}
	switch h.Kind {
	case entry.KindStaged:
		s, err := entry.ParseStaged(h, body)
		if err != nil {
			return nil, fmt.Errorf("parse entry %d: %w", e.Index, err)
		}
		event, err := binlog.ParseEvent(s.GTIDEvent)
		if err == nil {
			var info binlog.GTIDInfo
			if info, err = binlog.ParseGTID(event); err == nil {
				return []Transaction{{GTID: info.GTID, Time: binlog.CommitTime(event, &info)}}, nil
			}
		}
		return nil, fmt.Errorf("read the GTID event of entry %d: %w", e.Index, err)
	case entry.KindTransactions:
		for tx, err := range binlog.Transactions(body) {
			if err != nil {
				return nil, fmt.Errorf("read the transactions of entry %d: %w", e.Index, err)
			}
			event, _, err := binlog.CutEvent(tx.Raw)
			if err != nil {
				return nil, fmt.Errorf("read the transactions of entry %d: %w", e.Index, err)
			}
			all = append(all, Transaction{GTID: tx.GTID, Time: binlog.CommitTime(event, &tx.GTIDInfo), raw: tx.Raw})
		}
	}
	return all, nil
}

// Cut returns the part of an entry that belongs to a target: all of it, its first transactions,
// or nothing (Index 0). done says that nothing behind the part belongs to it.
func (t Target) Cut(e seglog.Entry) (cut seglog.Entry, done bool, err error) {
	all, err := Transactions(e)
	if err != nil || t.Latest() {
		return e, false, err
	}
	for i, tx := range all {
		switch {
		case tx.GTID == t.Before, !t.Time.IsZero() && tx.Time.After(t.Time):
			cut, err = head(e, all[:i])
			return cut, true, err
		case tx.GTID == t.Through:
			cut, err = head(e, all[:i+1])
			return cut, true, err
		}
	}
	return e, false, nil
}

// head returns an entry with only its first transactions. For none of them it returns the zero
// Entry.
func head(e seglog.Entry, first []Transaction) (seglog.Entry, error) {
	if len(first) == 0 {
		return seglog.Entry{}, nil
	}
	h, body, err := entry.Parse(e.Data)
	if err != nil {
		return e, fmt.Errorf("parse entry %d: %w", e.Index, err)
	}
	if h.Kind == entry.KindStaged || int(h.Count) == len(first) {
		return e, nil
	}
	bytes := 0
	for _, tx := range first {
		bytes += len(tx.raw)
	}
	h.Count = uint32(len(first))
	e.Data = append(entry.AppendHeader(make([]byte, 0, entry.HeaderBytes+bytes), h), body[:bytes]...)
	return e, nil
}
