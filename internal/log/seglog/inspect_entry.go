package seglog

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/entry"
)

// wholeEventBytesMax: of a longer event only a part is in memory at a time. Only a statement is read as a
// whole: its type alone does not say where it is in its transaction.
const wholeEventBytesMax = windowBytes

// InspectedEntry is an entry in its segment. It is valid until the function that got it returns.
type InspectedEntry struct {
	Index, Term uint64
	// Type is Raft's: 0 normal, 1 conf change, 2 conf change v2.
	Type uint8
	// Header is the header of the data, if Type is 0 and Problem is nil.
	Header entry.Header
	// Bytes is the length of the data, plus that of the stage that it names.
	Bytes int64
	// Segment and Offset say where the entry's record begins.
	Segment string
	Offset  int64
	// Epoch is the content of a KindEpoch entry.
	Epoch entry.Epoch
	// State is the body of a KindState entry: JSON.
	State []byte
	// Transactions are in the order of the log.
	Transactions []InspectedTransaction
	// Problem says why the data is not valid; nil if it is.
	Problem error

	segment *inspected
}

// InspectedTransaction is a transaction in its segment.
type InspectedTransaction struct {
	GTID gtid.GTID
	// Time is when it was committed, by the primary's clock.
	Time time.Time
	// Offset is where its events begin, Bytes their length.
	Offset, Bytes int64
}

// InspectedEvent is an event of a transaction.
type InspectedEvent struct {
	// Offset is the event's offset in its segment.
	Offset int64
	// Head is the event, or the beginning of a long one. It is valid until the
	// function that got it returns.
	Head binlog.Event
}

// Whole reports whether Head is all of the event.
func (e *InspectedEvent) Whole() bool { return uint32(len(e.Head)) == e.Head.Length() }

// Entries calls visit for the entries from index from to index to, as far as they are shown; from=0 is the
// log's first entry, to=0 its last. It verifies each entry before visit. It returns visit's error; ErrCompacted
// or ErrUnavailable if from is not in the log; or a *CorruptError.
func (in *Inspector) Entries(from, to uint64, visit func(*InspectedEntry) error) error {
	limit, err := in.limit()
	if err != nil {
		return err
	}
	if to != 0 {
		limit = min(limit, to)
	}
	if len(in.names) == 0 || from != 0 && from < firstOf(in.names[0]) {
		return fmt.Errorf("%w: index %d", ErrCompacted, from)
	}
	if from > limit {
		return fmt.Errorf("%w: index %d, last %d", ErrUnavailable, from, limit)
	}
	next := uint64(0)
	for _, name := range in.names[in.holder(from):] {
		if firstOf(name) > limit {
			break
		}
		s, err := in.openSegment(name)
		if in.isGone(name, err) {
			if firstOf(name) > in.hs.Commit {
				break
			}
			return fmt.Errorf("%w: segment %s was purged meanwhile", ErrCompacted, name)
		}
		if err != nil {
			return err
		}
		if next != 0 && s.first != next {
			err = s.damage(0, next, fmt.Errorf("%w: it begins at index %d", errDamage, s.first))
		} else {
			next, err = in.walk(s, from, limit, visit)
		}
		s.close()
		if err != nil {
			return err
		}
	}
	if next != 0 && next <= min(limit, in.hs.Commit) {
		name := in.names[len(in.names)-1]
		return &CorruptError{File: name, Index: next, Detail: fmt.Sprintf("log ends before index %d, but %d is committed", next, in.hs.Commit)}
	}
	if from != 0 && next <= from {
		return fmt.Errorf("%w: index %d, last %d", ErrUnavailable, from, next-1)
	}
	return nil
}

// walk is Entries for one segment. It returns the index behind the last entry that was there.
func (in *Inspector) walk(s *inspected, from, limit uint64, visit func(*InspectedEntry) error) (next uint64, err error) {
	c := s.start()
	for next = s.first; c.end < s.window.size && next <= limit; next++ {
		var e *InspectedEntry
		var r *record
		if next < from {
			var head record
			head, err = s.scanHead(s.window, c)
			r = &head
		} else {
			e, r, err = s.entry(c)
		}
		if errors.Is(err, errDamage) && next > in.hs.Commit {
			// This is the tail: it may be being written at this moment.
			return next, nil
		}
		if err != nil {
			return 0, s.damage(c.end, next, err)
		}
		c.pass(r)
		if e == nil {
			continue
		}
		if err := visit(e); err != nil {
			return 0, err
		}
	}
	return next, nil
}

// entry reads and verifies the record at c.end. If it is damaged, it returns errDamage.
func (s *inspected) entry(c *scan) (*InspectedEntry, *record, error) {
	r, err := s.scanHead(s.window, c)
	if err != nil {
		return nil, nil, err
	}
	e, err := s.readEntry(c.end, &r)
	return e, &r, err
}

// readEntry reads and verifies what follows a record's head. If it is damaged, it returns errDamage.
func (s *inspected) readEntry(offset int64, r *record) (*InspectedEntry, error) {
	inline, err := s.inline(offset, r)
	if err != nil {
		return nil, err
	}
	e := &InspectedEntry{
		Index: r.index, Term: r.term, Type: r.raftType, Bytes: int64(r.dataBytes),
		Segment: s.name, Offset: offset, segment: s,
	}
	crc := crc32.Checksum(inline, castagnoli())
	if r.inlineBytes < r.dataBytes {
		if crc, err = e.readTransactions(offset+r.eventBytes(), offset+r.bytes(), crc); err != nil {
			return nil, err
		}
	}
	if crc != r.dataCRC {
		return nil, fmt.Errorf("%w: wrong checksum of the data", errDamage)
	}
	if r.staged {
		if err := e.readStage(offset, r); err != nil {
			return nil, err
		}
	}
	if r.raftType == raftNormal {
		e.Problem = e.parse(inline)
	}
	return e, nil
}

// inline verifies a record's event and returns a copy of the data in it.
func (s *inspected) inline(offset int64, r *record) ([]byte, error) {
	event, err := s.window.bytes(offset, r.eventBytes())
	if err != nil {
		return nil, err
	}
	if err := binlog.VerifyChecksum(event); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamage, err)
	}
	return bytes.Clone(event[recordHeadBytes : len(event)-binlog.ChecksumBytes]), nil
}

// naming returns what the record of a staged segment says about its stage.
func (s *inspected) naming(offset int64, r *record) (naming, error) {
	inline, err := s.inline(offset, r)
	if err != nil {
		return naming{}, err
	}
	n, ok := namingOf(&Entry{Type: r.raftType, Data: inline})
	n.at = int64(r.durable) - n.bytes
	if !ok || int64(r.durable) != s.window.size || n.at < offset+r.bytes() {
		return naming{}, fmt.Errorf("%w: record of a stage of %d bytes, up to %d of %d", errDamage, n.bytes, r.durable, s.window.size)
	}
	return n, nil
}

// time returns when the transaction was committed.
func (n *naming) time() time.Time {
	info, err := binlog.ParseGTID(n.event)
	if err != nil {
		return time.Time{} // cannot happen: namingOf has parsed it
	}
	return binlog.CommitTime(n.event, &info)
}

// readStage reads the stage behind a record and adds its transaction to e.
func (e *InspectedEntry) readStage(offset int64, r *record) error {
	n, err := e.segment.naming(offset, r)
	if err != nil {
		return err
	}
	if err := scanPadding(e.segment.window, offset+r.bytes(), n.at); err != nil {
		return err
	}
	crc, err := e.readTransactions(n.at, n.at+n.bytes, 0)
	if err != nil {
		return err
	}
	if crc != n.crc {
		return fmt.Errorf("%w: wrong checksum of the stage's bytes from %d on", errDamage, n.at)
	}
	if len(e.Transactions) != 1 || e.Transactions[0].GTID != n.gtid {
		return fmt.Errorf("%w: the stage is not the one transaction %v", errDamage, n.gtid)
	}
	e.Bytes += n.bytes
	return nil
}

// parse decodes the inline part of an entry's data.
func (e *InspectedEntry) parse(inline []byte) error {
	h, body, err := entry.Parse(inline)
	if err != nil {
		return err
	}
	e.Header = h
	switch h.Kind {
	case entry.KindEpoch:
		if e.Epoch, err = entry.ParseEpoch(h, body); err != nil {
			return err
		}
	case entry.KindState:
		if _, err := entry.ParseState(h, body); err != nil {
			return err
		}
		e.State = body
	case entry.KindTransactions, entry.KindStaged:
		if int(h.Count) != len(e.Transactions) {
			return fmt.Errorf("it holds %d whole transactions, its header says %d", len(e.Transactions), h.Count)
		}
	}
	return nil
}

// readTransactions reads the transactions between two offsets and adds them to e. It returns the CRC32C of
// their bytes, which continues crc. It returns errDamage for anything else than whole transactions.
func (e *InspectedEntry) readTransactions(from, to int64, crc uint32) (uint32, error) {
	var assembler binlog.Assembler
	err := e.segment.events(from, to, &crc, func(event InspectedEvent) error {
		feed := assembler.Feed
		if !event.Whole() {
			feed = assembler.FeedHead
		}
		step, err := feed(event.Head)
		if err == nil && step == binlog.StepControl {
			err = fmt.Errorf("event of type %d is of no transaction", event.Head.Type())
		}
		if err != nil {
			return fmt.Errorf("%w: at offset %d: %w", errDamage, event.Offset, err)
		}
		if step == binlog.StepBegin {
			info := assembler.Info()
			e.Transactions = append(e.Transactions, InspectedTransaction{
				GTID: info.GTID, Time: binlog.CommitTime(event.Head, &info), Offset: event.Offset,
			})
		}
		t := &e.Transactions[len(e.Transactions)-1]
		t.Bytes = event.Offset + int64(event.Head.Length()) - t.Offset
		return nil
	})
	if err == nil && assembler.InTransaction() {
		err = fmt.Errorf("%w: transaction %v is not whole", errDamage, assembler.Info().GTID)
	}
	return crc, err
}

// events calls visit for the events between two offsets and verifies their checksums. An event of more than
// wholeEventBytesMax is read in parts, if its type allows that. crc is continued over all bytes.
func (s *inspected) events(from, to int64, crc *uint32, visit func(InspectedEvent) error) error {
	for at := from; at < to; {
		if to-at < binlog.HeaderBytes {
			return fmt.Errorf("%w: %d bytes behind the last event", errDamage, to-at)
		}
		head, err := s.window.bytes(at, binlog.HeaderBytes)
		if err != nil {
			return err
		}
		n := int64(binlog.Event(head).Length())
		if n < binlog.HeaderBytes+binlog.ChecksumBytes || n > to-at {
			return fmt.Errorf("%w: event of %d bytes at offset %d, there are %d", errDamage, n, at, to-at)
		}
		part := n
		if t := binlog.Event(head).Type(); t != binlog.TypeQuery && t != binlog.TypeGTID && t != binlog.TypeGTIDTagged {
			part = min(n, wholeEventBytesMax)
		}
		b, err := s.window.bytes(at, part)
		if err != nil {
			return err
		}
		sum := binlog.NewChecksum(b)
		for done := int64(0); ; {
			*crc = crc32.Update(*crc, castagnoli(), b)
			if err := sum.Add(b); err != nil {
				return fmt.Errorf("%w: at offset %d: %w", errDamage, at, err)
			}
			if done == 0 {
				if err := visit(InspectedEvent{Offset: at, Head: b}); err != nil {
					return err
				}
			}
			if done += int64(len(b)); done == n {
				break
			}
			if b, err = s.window.bytes(at+done, min(n-done, wholeEventBytesMax)); err != nil {
				return err
			}
		}
		at += n
	}
	return nil
}

// Events calls visit for the events of one of e's transactions.
func (e *InspectedEntry) Events(t *InspectedTransaction, visit func(InspectedEvent) error) error {
	crc := uint32(0)
	err := e.segment.events(t.Offset, t.Offset+t.Bytes, &crc, visit)
	if errors.Is(err, errDamage) {
		return e.segment.damage(t.Offset, e.Index, err)
	}
	return err
}

// write copies the bytes of one of e's transactions to w.
func (e *InspectedEntry) write(w io.Writer, t *InspectedTransaction) error {
	for done := int64(0); done < t.Bytes; {
		b, err := e.segment.window.bytes(t.Offset+done, min(t.Bytes-done, windowBytes))
		if err != nil {
			return e.segment.damage(t.Offset+done, e.Index, err)
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		done += int64(len(b))
	}
	return nil
}
