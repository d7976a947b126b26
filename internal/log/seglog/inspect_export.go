package seglog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// ExportOptions say what Export exports: committed entries from an index on, up to the first of the limits that
// are not zero.
type ExportOptions struct {
	// From is the first entry; 0 = the log's first.
	From uint64
	// UntilIndex is the last entry.
	UntilIndex uint64
	// UntilGTID is the last transaction.
	UntilGTID gtid.GTID
	// UntilTime: the export ends before the first transaction that was committed after this time, by the clock
	// of its primary.
	UntilTime time.Time
}

// ExportFile is a binlog file that Export begins.
type ExportFile struct {
	// Number counts the files from 1.
	Number int
	// FirstIndex is the entry with the file's first transaction. ServerVersion is the version of the mysqld in
	// whose format the file is.
	FirstIndex    uint64
	ServerVersion string
}

// Exported is what Export wrote.
type Exported struct {
	Files        int
	Transactions uint64
	Bytes        int64
	// FirstIndex and LastIndex are the entries that were looked at; LastIndex is FirstIndex-1 if there were
	// none.
	FirstIndex, LastIndex uint64
	// Before is the set of all transactions before those of the first file, GTIDs the set of the exported ones.
	Before, GTIDs *gtid.Set
	// LastTime is when the last transaction was committed.
	LastTime time.Time
}

// Export writes committed transactions as binlog files, byte for byte as their primaries wrote them. A file has
// one FORMAT_DESCRIPTION. So a new file begins when the next transaction was written in another format, by a
// server of another version. create makes each file; at least one is made.
//
// Within a file the logical clock (last_committed) starts again where a segment began. A client that runs the
// output of mysqlbinlog ignores it; the applier of a replica would wait there.
func (in *Inspector) Export(ctx context.Context, o ExportOptions, create func(ExportFile) (io.Writer, error)) (*Exported, error) {
	limit, err := in.limit()
	if err == nil && len(in.names) == 0 {
		err = fmt.Errorf("%w: there is no segment", ErrUnavailable)
	}
	if err != nil {
		return nil, err
	}
	first := firstOf(in.names[in.holder(o.From)])
	x := &export{ctx: ctx, options: o, create: create}
	x.FirstIndex = max(o.From, first)
	x.LastIndex, x.GTIDs = x.FirstIndex-1, &gtid.Set{}
	untilIndex := o.UntilIndex
	if o.UntilGTID != (gtid.GTID{}) {
		// This comes before anything is written: a wrong GTID must leave no file.
		found, err := in.Find(o.UntilGTID)
		if err != nil {
			return nil, err
		}
		if found < x.FirstIndex {
			return nil, fmt.Errorf("transaction %v is in entry %d, before the first that is exported", o.UntilGTID, found)
		}
		if untilIndex == 0 || found < untilIndex {
			untilIndex = found
		}
	}
	if o.From > limit {
		return nil, fmt.Errorf("%w: index %d, last %d", ErrUnavailable, o.From, limit)
	}
	if err := in.Entries(first, untilIndex, x.entry); err != nil && !errors.Is(err, errStop) {
		return nil, err
	}
	if x.out == nil {
		// If there is nothing to export, one file is made, too: it says which transactions were before.
		if err := x.empty(in, x.FirstIndex); err != nil {
			return nil, err
		}
	}
	return &x.Exported, nil
}

// export is a call of Export that is under way.
type export struct {
	Exported
	ctx     context.Context
	options ExportOptions
	create  func(ExportFile) (io.Writer, error)
	out     io.Writer
	// format is the FORMAT_DESCRIPTION of out.
	format binlog.Event
	// done holds all transactions up to the present place.
	done *gtid.Set
}

func (x *export) entry(e *InspectedEntry) error {
	if err := x.ctx.Err(); err != nil {
		return err
	}
	if x.done == nil {
		x.done = e.segment.gtidsBefore.Clone()
	}
	if e.Problem != nil {
		return &CorruptError{File: e.Segment, Offset: e.Offset, Index: e.Index, Detail: e.Problem.Error()}
	}
	for i := range e.Transactions {
		t := &e.Transactions[i]
		if e.Index >= x.FirstIndex {
			if until := x.options.UntilTime; !until.IsZero() && t.Time.After(until) {
				return errStop
			}
			if err := x.transaction(e, t); err != nil {
				return err
			}
		}
		x.done.Add(t.GTID)
		if x.options.UntilGTID == t.GTID {
			x.LastIndex = e.Index
			return errStop
		}
	}
	if e.Index >= x.FirstIndex {
		x.LastIndex = e.Index
	}
	return nil
}

func (x *export) transaction(e *InspectedEntry, t *InspectedTransaction) error {
	if x.out == nil || !sameFormat(x.format, e.segment.formatDescription) {
		if err := x.begin(e.segment, e.Index, x.done); err != nil {
			return err
		}
	}
	if err := e.write(x.out, t); err != nil {
		return err
	}
	x.Transactions++
	x.Bytes += t.Bytes
	x.GTIDs.Add(t.GTID)
	x.LastTime = t.Time
	return nil
}

// begin begins a file whose first transaction is in the entry at index.
func (x *export) begin(s *inspected, index uint64, before *gtid.Set) error {
	x.format, x.Files = s.formatDescription, x.Files+1
	if x.Before == nil {
		x.Before = before.Clone()
	}
	out, err := x.create(ExportFile{Number: x.Files, FirstIndex: index, ServerVersion: s.serverVersion()})
	if err != nil {
		return err
	}
	x.out = out
	head := append([]byte(binlog.Magic), s.formatDescription...)
	head = appendEvent(head, binlog.TypePreviousGTIDs, binlog.FlagIgnorable, before.AppendBinary(nil), int64(len(head)))
	x.Bytes += int64(len(head))
	_, err = out.Write(head)
	return err
}

func (x *export) empty(in *Inspector, index uint64) error {
	s, err := in.openSegment(in.names[in.holder(index)])
	if err != nil {
		return err
	}
	defer s.close()
	if x.done == nil {
		x.done = s.gtidsBefore
	}
	return x.begin(s, index, x.done)
}

// sameFormat tells whether events behind either FORMAT_DESCRIPTION are read in the same way. The two may differ
// in the server's start time, and in which server it is.
func sameFormat(a, b binlog.Event) bool {
	x, errX := binlog.ParseFormatDescription(a)
	y, errY := binlog.ParseFormatDescription(b)
	return errX == nil && errY == nil && x.ServerVersion == y.ServerVersion && x.Checksum == y.Checksum &&
		bytes.Equal(x.PostHeaderBytes, y.PostHeaderBytes)
}
