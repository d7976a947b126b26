package seglog

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/quorate/quorate/internal/binlog"
	"github.com/quorate/quorate/internal/gtid"
	"github.com/quorate/quorate/internal/vfs"
)

// place says where an entry is in its segment: 16 bytes per entry of the log.
type place struct {
	term      uint64
	offset    uint32
	dataBytes uint32
}

// segment is one file of the log. Log.mu guards its fields; places only grows at
// its end, so that a reader may keep a part of it.
type segment struct {
	*segmentHeader
	places []place
	// end is the offset behind the last record.
	end int64
	// chain is the last record's chain value, or the seed.
	chain uint32
}

func (s *segment) name() string { return segmentName(s.first) }

// last is the index of the last entry: first-1 if there is none.
func (s *segment) last() uint64 { return s.first + uint64(len(s.places)) - 1 }

// scan is what reading a segment from its start yields.
type scan struct {
	places []place
	end    int64
	// chain and term are those of the last record, or what the header says.
	chain uint32
	term  uint64
	// durable is the highest durable offset in any valid record.
	durable int64
	// gtids holds all transactions up to end, if they were asked for.
	gtids *gtid.Set
	// problem says why the scan ended before the limit; nil if it did not.
	problem error
}

// scanRecords reads and verifies the records from the header's end up to
// limit. It returns errors of reading only: damage ends the scan.
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
	return s, nil
}

func (h *segmentHeader) scanRecord(w *window, s *scan) error {
	head, err := w.bytes(s.end, recordHeadBytes)
	if err != nil {
		return err
	}
	r, err := parseRecordHead(head, s.end, h.seed)
	if err != nil {
		return err
	}
	index := h.first + uint64(len(s.places))
	switch {
	case r.index != index:
		return fmt.Errorf("%w: record has index %d", errDamage, r.index)
	case r.term < s.term:
		return fmt.Errorf("%w: record has term %d after term %d", errDamage, r.term, s.term)
	case !r.linked(head, s.chain):
		return fmt.Errorf("%w: record is not chained to the one before", errDamage)
	}
	b, err := w.bytes(s.end, r.bytes())
	if err != nil {
		return err
	}
	_, rest, err := r.parts(b)
	if err != nil {
		return err
	}
	if s.gtids != nil && len(rest) > 0 {
		found, ok := appendGTIDs(nil, rest)
		if !ok {
			return fmt.Errorf("%w: events are not whole transactions", errDamage)
		}
		for _, g := range found {
			s.gtids.Add(g)
		}
	}
	s.places = append(s.places, place{term: r.term, offset: uint32(s.end), dataBytes: r.dataBytes})
	s.durable = max(s.durable, int64(r.durable))
	s.chain, s.term, s.end = r.chain, r.term, s.end+r.bytes()
	return nil
}

// searchBehind looks at what is behind a damaged record, at any offset: how
// far valid records say that the file was durable, and where the last byte
// that is not zero ends.
func (h *segmentHeader) searchBehind(w *window, damage int64) (durable, nonZeroEnd int64, err error) {
	nonZeroEnd = damage
	for at := damage; at < w.size; at += windowBytes {
		// The overlap finds a head that begins in this piece and ends in the
		// next; nothing begins in the overlap only.
		n := min(windowBytes+recordHeadBytes-1, w.size-at)
		b, err := w.bytes(at, n)
		if err != nil {
			return 0, 0, err
		}
		piece := append([]byte(nil), b...)
		if last := bytes.TrimRight(piece, "\x00"); len(last) > 0 {
			nonZeroEnd = at + int64(len(last))
		}
		for from := 0; ; {
			i := bytes.Index(piece[from:], []byte(recordMagic))
			if i < 0 {
				break
			}
			magic := from + i
			from = magic + 1
			if magic < binlog.HeaderBytes {
				continue
			}
			start := magic - binlog.HeaderBytes
			r, err := parseRecordHead(piece[start:], at+int64(start), h.seed)
			if err != nil {
				continue
			}
			event, err := w.bytes(at+int64(start), r.eventBytes())
			if errors.Is(err, errDamage) {
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

// createSegment makes the file of h, durably, in place of one that may have
// the name. Then it can be written to.
func createSegment(fs vfs.FS, dir string, h *segmentHeader, previousChain uint32) (vfs.File, error) {
	name := segmentName(h.first)
	if err := createDurably(fs, dir, segmentTemporary, name, h.append(nil, previousChain)); err != nil {
		return nil, err
	}
	return fs.OpenReadWrite(filepath.Join(dir, name))
}

// readSegment opens and verifies a whole segment and changes nothing. The
// scan's problem is for the caller to judge; damage in the header is ErrCorrupt.
func readSegment(fs vfs.FS, dir, name string, withGTIDs bool) (h *segmentHeader, s *scan, w *window, err error) {
	f, err := fs.Open(filepath.Join(dir, name))
	if err != nil {
		return nil, nil, nil, err
	}
	if w, err = newWindow(f); err == nil {
		h, err = parseSegmentHeader(w)
	}
	if errors.Is(err, errDamage) {
		err = &CorruptError{File: name, Detail: err.Error()}
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
