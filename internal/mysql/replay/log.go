package replay

import (
	"fmt"
	"io"
	"time"

	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/entry"
)

// readBytesMax is how many bytes of the log one read takes.
const readBytesMax = 1 << 20

// CommittedLog is the committed part of a node's log.
type CommittedLog interface {
	// Segments describes the log's files, oldest first.
	Segments() []seglog.SegmentInfo
	// ReadCommitted returns committed entries from index on; ok=false when
	// index is not committed yet.
	ReadCommitted(index, bytesMax uint64) (found []seglog.Entry, ok bool, err error)
	// FirstIndex returns the index of the oldest entry that the log still has.
	FirstIndex() uint64
	// ReadStage opens the events of a staged transaction of the log.
	ReadStage(id entry.StageID) (io.ReadCloser, error)
}

// transaction is a transaction of the log.
type transaction struct {
	gtid    gtid.GTID
	index   uint64 // of its entry
	ordinal int    // its place among that entry's transactions, from 0
	raw     []byte // its events; nil for a staged one
	staged  *entry.Staged
}

// eachTransaction calls f for the committed transactions from index first to
// index last (0 = to the end).
func eachTransaction(log CommittedLog, first, last uint64, f func(transaction) error) error {
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

func entryTransactions(e seglog.Entry, f func(transaction) error) error {
	if e.Type != 0 {
		return nil
	}
	h, body, err := entry.Parse(e.Data)
	if err != nil {
		return fmt.Errorf("parse entry %d: %w", e.Index, err)
	}
	switch h.Kind {
	case entry.KindStaged:
		tx, err := stagedTransaction(e.Index, h, body)
		if err != nil {
			return err
		}
		return f(tx)
	case entry.KindTransactions:
	default:
		return nil
	}
	ordinal := 0
	for tx, err := range binlog.Transactions(body) {
		if err != nil {
			return fmt.Errorf("read transactions of entry %d: %w", e.Index, err)
		}
		if err := f(transaction{gtid: tx.GTID, index: e.Index, ordinal: ordinal, raw: tx.Raw}); err != nil {
			return err
		}
		ordinal++
	}
	return nil
}

func stagedTransaction(index uint64, h entry.Header, body []byte) (transaction, error) {
	s, err := entry.ParseStaged(h, body)
	if err != nil {
		return transaction{}, fmt.Errorf("parse entry %d: %w", index, err)
	}
	event, err := binlog.ParseEvent(s.GTIDEvent)
	if err != nil {
		return transaction{}, fmt.Errorf("read GTID event of entry %d: %w", index, err)
	}
	info, err := binlog.ParseGTID(event)
	if err != nil {
		return transaction{}, fmt.Errorf("read GTID event of entry %d: %w", index, err)
	}
	return transaction{gtid: info.GTID, index: index, staged: &s}, nil
}

// prepares reports whether tx is an XA PREPARE, and of which XA transaction. For a staged
// transaction that is compressed it must read all of it.
func (tx transaction) prepares(log CommittedLog) (binlog.XID, bool, error) {
	if tx.staged == nil {
		return binlog.ParseXAPrepare(tx.raw)
	}
	if len(tx.staged.EndEvent) == 0 {
		if !tx.staged.Rows {
			return binlog.XID{}, false, nil // a long statement
		}
		r, err := log.ReadStage(tx.staged.ID)
		if err != nil {
			return binlog.XID{}, false, fmt.Errorf("read staged transaction of entry %d: %w", tx.index, err)
		}
		defer func() { _ = r.Close() }()
		return binlog.ReadXAPrepare(r)
	}
	event, err := binlog.ParseEvent(tx.staged.EndEvent)
	if err != nil {
		return binlog.XID{}, false, fmt.Errorf("read last event of entry %d: %w", tx.index, err)
	}
	return binlog.ParseXAPrepareEvent(event)
}

// written returns when tx was committed, by the clock of the server that wrote it. A client
// cannot set this time.
func (tx transaction) written() (time.Time, error) {
	raw := tx.raw
	if tx.staged != nil {
		raw = tx.staged.GTIDEvent
	}
	event, _, err := binlog.CutEvent(raw)
	if err != nil {
		return time.Time{}, fmt.Errorf("read time of a transaction of entry %d: %w", tx.index, err)
	}
	info, err := binlog.ParseGTID(event)
	if err != nil {
		return time.Time{}, fmt.Errorf("read time of a transaction of entry %d: %w", tx.index, err)
	}
	return time.UnixMicro(int64(info.ImmediateCommit)).UTC(), nil
}

// ends reports whether tx commits or rolls back a prepared XA transaction, and which. A staged
// transaction never does, because such a statement is short.
func (tx transaction) ends() (binlog.XID, bool, error) {
	if tx.staged != nil {
		return binlog.XID{}, false, nil
	}
	return binlog.ParseXAEnd(tx.raw)
}

// changes tells whether InnoDB stores something of tx, and with it the GTID, as far as the log
// shows: tx has rows, or ends an XA transaction.
func (tx transaction) changes() (bool, error) {
	if tx.staged != nil {
		return tx.staged.Rows, nil
	}
	_, ends, err := binlog.ParseXAEnd(tx.raw)
	if ends || err != nil {
		return ends, err
	}
	return binlog.HasRowEvents(tx.raw)
}

// keepsGTID tells whether InnoDB is certain to have the GTID of tx after its engine commit. It
// returns false for an XA PREPARE, and for a compressed staged transaction, which may be one.
func (tx transaction) keepsGTID() (bool, error) {
	if tx.staged != nil && len(tx.staged.EndEvent) == 0 {
		return false, nil
	}
	if tx.staged == nil {
		_, prepares, err := binlog.ParseXAPrepare(tx.raw)
		if prepares || err != nil {
			return false, err
		}
		return tx.changes()
	}
	event, err := binlog.ParseEvent(tx.staged.EndEvent)
	return tx.staged.Rows && err == nil && event.Type() != binlog.TypeXAPrepare, err
}
