package seglog

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"syscall"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// segment is one file of the log. Log.mu guards its fields. A copy of the struct stays correct for the records
// that it counts, unless these are cut off.
type segment struct {
	*segmentHeader
	index sparseIndex
	// end is the offset behind the last record.
	end int64
	// chain is the last record's chain value, or the seed.
	chain uint32
	times timeSpan
	// stage is set if the segment's only entry names a stage.
	stage *stageSpan
	// saved: its index was saved, or cannot be. unread: Open has taken it from its saved index. doubted: it turned out
	// to be damaged.
	saved, unread, doubted bool
}

func (s *segment) name() string { return segmentName(s.first) }

// last is the index of the last entry; first-1 if there is none.
func (s *segment) last() uint64 { return s.first + uint64(s.index.count) - 1 }

// recordsEnd is the offset at which a reader of entries may stop.
func (s *segment) recordsEnd() int64 {
	if s.stage != nil {
		return s.stage.at
	}
	return s.end
}

func (s *segment) empty() bool { return s.index.count == 0 }

// lastTerm is the term of the segment's last entry, or of the entry before the segment if it is empty.
func (s *segment) lastTerm() uint64 {
	if s.empty() {
		return s.previousTerm
	}
	return s.index.term(s.index.count - 1)
}

// scan is the result of reading a segment from its start.
type scan struct {
	index sparseIndex
	end   int64
	// chain and term are those of the last record; without a record, those of the header.
	chain uint32
	term  uint64
	// durable is the highest durable offset in any valid record.
	durable int64
	times   timeSpan
	// gtids holds all transactions up to end, if the caller asked for them.
	gtids *gtid.Set
	stage *stageSpan
	// problem says why the scan ended before the limit; nil if it reached the limit.
	problem error
}

// nextIndex is the index of the entry behind those that were found.
func (s *scan) nextIndex(h *segmentHeader) uint64 { return h.first + uint64(s.index.count) }

// scanRecords reads and verifies the records from the header's end up to limit. Its errors are only errors of
// reading, and ErrFormat. Damage ends the scan, and is not an error.
func (h *segmentHeader) scanRecords(w *window, limit int64, withGTIDs bool) (*scan, error) {
	s := &scan{end: h.bytes, chain: h.seed, term: h.previousTerm, durable: h.bytes}
	if withGTIDs {
		s.gtids = h.gtidsBefore.Clone()
	}
	for s.end < limit {
		err := h.scanRecord(w, s)
		if errors.Is(err, errDamage) {
			s.problem = err
			return s, nil
		}
		if err != nil {
			return nil, err
		}
	}
	if h.staged && s.stage == nil {
		s.problem = fmt.Errorf("%w: segment of a stage has no record", errDamage)
	}
	return s, nil
}

// scanHead reads the next record's head and verifies that it belongs there.
func (h *segmentHeader) scanHead(w *window, s *scan) (record, error) {
	head, err := w.bytes(s.end, recordHeadBytes)
	if err != nil {
		return record{}, err
	}
	r, err := parseRecordHead(head, s.end, h.seed)
	switch {
	case errors.Is(err, errNewer):
		return record{}, newerRecord(w, s.end, err)
	case err != nil:
		return record{}, err
	case r.index != s.nextIndex(h):
		return record{}, fmt.Errorf("%w: record has index %d", errDamage, r.index)
	case r.term < s.term:
		return record{}, fmt.Errorf("%w: record has term %d after term %d", errDamage, r.term, s.term)
	case !r.linked(head, s.chain):
		return record{}, fmt.Errorf("%w: record is not chained to the one before", errDamage)
	case r.staged != h.staged:
		return record{}, fmt.Errorf("%w: record with a stage: %v, segment: %v", errDamage, r.staged, h.staged)
	}
	return r, nil
}

func (h *segmentHeader) scanRecord(w *window, s *scan) error {
	r, err := h.scanHead(w, s)
	if err != nil {
		return err
	}
	if r.staged {
		return h.scanStaged(w, s, &r)
	}
	b, err := w.bytes(s.end, r.bytes())
	if err != nil {
		return err
	}
	_, rest, err := r.parts(b)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		if s.gtids != nil {
			found, ok := appendGTIDs(nil, rest)
			if !ok {
				return fmt.Errorf("%w: events are not whole transactions", errDamage)
			}
			for _, g := range found {
				s.gtids.Add(g)
			}
		}
		s.times.add(rest)
	}
	s.index.add(place{offset: s.end, term: r.term, chain: s.chain})
	s.durable = max(s.durable, int64(r.durable))
	s.chain, s.term, s.end = r.chain, r.term, s.end+r.bytes()
	return nil
}

// newerRecord decides whether something that looks like a record of a later version is one. If it is, the error
// is ErrFormat; else it is a damaged record, and the error is newer.
func newerRecord(w *window, offset int64, newer error) error {
	head, err := w.bytes(offset, binlog.HeaderBytes)
	if err != nil {
		return err
	}
	n := int64(binlog.Event(head).Length())
	if n < recordHeadBytes || n > recordBytes(EntryBytesMax) {
		return newer
	}
	event, err := w.bytes(offset, n)
	if err != nil {
		return err
	}
	if binlog.VerifyChecksum(event) != nil || binlog.Event(event).LogPos() != uint32(offset+n) {
		return newer
	}
	return fmt.Errorf("%w: %v: it was written by a newer quorate", ErrFormat, newer)
}

// headsIn yields what looks like a record's head in a piece of the file, with its offset in the file. The piece
// begins at offset at. Whether the rest of the record's event is intact was not checked.
func (h *segmentHeader) headsIn(piece []byte, at int64) iter.Seq2[int64, record] {
	return func(yield func(int64, record) bool) {
		for next := 0; ; {
			i := bytes.Index(piece[next:], []byte(recordMagic))
			if i < 0 {
				return
			}
			start := next + i - binlog.HeaderBytes
			next += i + 1
			if start < 0 {
				continue
			}
			r, err := parseRecordHead(piece[start:], at+int64(start), h.seed)
			if err == nil && !yield(at+int64(start), r) {
				return
			}
		}
	}
}

// searchBehind looks at everything behind a damaged record, at any offset. durable is how far the file was
// durable by its valid records, nonZeroEnd is where the last byte ends that is not zero.
func (h *segmentHeader) searchBehind(w *window, damage int64) (durable, nonZeroEnd int64, err error) {
	nonZeroEnd = damage
	for at := damage; at < w.size; at += windowBytes {
		// The overlap finds a head that begins in this piece and ends in the next one. Nothing begins only in
		// the overlap.
		n := min(windowBytes+recordHeadBytes-1, w.size-at)
		b, err := w.bytes(at, n)
		if err != nil {
			return 0, 0, err
		}
		piece := append([]byte(nil), b...)
		if last := bytes.TrimRight(piece, "\x00"); len(last) > 0 {
			nonZeroEnd = at + int64(len(last))
		}
		for offset, r := range h.headsIn(piece, at) {
			if r.staged {
				continue
			}
			event, err := w.bytes(offset, r.eventBytes())
			if errors.Is(err, errDamage) && !errors.Is(err, syscall.EIO) {
				continue
			}
			if err != nil {
				return 0, 0, err
			}
			if binlog.VerifyChecksum(event) == nil {
				durable = max(durable, int64(r.durable))
			}
		}
	}
	return durable, nonZeroEnd, nil
}

// createSegment makes the file of h, durably, and opens it for writing. A file that has the name is replaced.
// ErrFull: nothing was done.
func createSegment(fs vfs.FS, dir string, h *segmentHeader) (vfs.File, error) {
	name := segmentName(h.first)
	if err := createDurably(fs, dir, segmentTemporary, name, h.append(nil)); err != nil {
		return nil, err
	}
	return fs.OpenReadWrite(filepath.Join(dir, name))
}

// readSegment opens and verifies a whole segment and changes nothing. The caller has to judge the scan's
// problem. Damage in the header is ErrCorrupt.
func readSegment(fs vfs.FS, dir, name string, withGTIDs bool) (h *segmentHeader, s *scan, w *window, err error) {
	f, err := fs.Open(filepath.Join(dir, name))
	if err != nil {
		return nil, nil, nil, err
	}
	if w, err = newWindow(f); err == nil {
		h, err = parseSegmentHeader(w)
	}
	if errors.Is(err, errDamage) {
		err = &CorruptError{File: name, Detail: err.Error(), Err: err}
	}
	if err == nil {
		s, err = h.scanRecords(w, w.size, withGTIDs)
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, nil, err
	}
	return h, s, w, nil
}
