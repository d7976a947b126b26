package seglog

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/quorate/quorate/internal/vfs"
)

// ReadBytesMax is the most data that one call of Entries returns, whatever the
// caller allows, unless a single entry is larger: a reader that has fallen
// behind must not make the process hold all of the log.
const ReadBytesMax = 64 << 20

// plan is what a call of Entries is going to return.
type plan struct {
	generation uint64
	reads      []read
	// cached are the entries behind the reads.
	cached []Entry
}

// read is a run of entries in one segment.
type read struct {
	segment *segmentHeader
	// first is the index of the first entry.
	first  uint64
	places []place
	// end is the offset behind the last entry.
	end int64
}

// Entries returns the entries from lo up to, but without, hi. It returns fewer,
// but at least one if any, where their data would be over bytesMax bytes or
// over ReadBytesMax. It returns ErrCompacted or ErrUnavailable if the log does
// not hold all of them, and a *CorruptError for an entry that has gone bad on
// disk. The caller must not change the data: others share it.
func (l *Log) Entries(lo, hi, bytesMax uint64) ([]Entry, error) {
	bytesMax = min(bytesMax, ReadBytesMax)
	for {
		p, err := l.plan(lo, hi, bytesMax)
		if err != nil {
			return nil, err
		}
		entries, err := l.execute(p)
		if err == nil {
			return entries, nil
		}
		// Each turn of this loop needs another truncation.
		l.mu.RLock()
		overtaken := l.generation != p.generation
		l.mu.RUnlock()
		if !overtaken {
			return nil, err
		}
	}
}

func (l *Log) plan(lo, hi, bytesMax uint64) (*plan, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	first, last := l.segments[0].first, l.tail().last()
	switch {
	case lo < first:
		return nil, fmt.Errorf("%w: index %d, first %d", ErrCompacted, lo, first)
	case hi > last+1:
		return nil, fmt.Errorf("%w: index %d, last %d", ErrUnavailable, hi-1, last)
	}
	p := &plan{generation: l.generation}
	cached, ok := l.cache.from()
	if !ok {
		cached = last + 1
	}
	bytes, at := uint64(0), lo
	fits := func(dataBytes uint64) bool {
		bytes += dataBytes
		return bytes <= bytesMax || at == lo
	}
	for at < min(hi, cached) {
		s := l.segments[l.find(at)]
		start := at
		for at < min(hi, cached, s.last()+1) && fits(uint64(s.places[at-s.first].dataBytes)) {
			at++
		}
		stop := at
		end := s.end
		if stop <= s.last() {
			end = int64(s.places[stop-s.first].offset)
		}
		if stop > start {
			p.reads = append(p.reads, read{s.segmentHeader, start, s.places[start-s.first : stop-s.first], end})
		}
		if bytes > bytesMax {
			return p, nil
		}
	}
	start := at
	for at < hi && fits(uint64(len(l.cache.entries[at-cached].Data))) {
		at++
	}
	if at > start {
		p.cached = append(p.cached, l.cache.entries[start-cached:at-cached]...)
	}
	return p, nil
}

// execute reads what p says, without the lock.
func (l *Log) execute(p *plan) ([]Entry, error) {
	entries := p.cached
	if len(p.reads) > 0 {
		entries = nil
		for _, r := range p.reads {
			var err error
			if entries, err = l.readRun(entries, r); err != nil {
				return nil, fmt.Errorf("read segment %s: %w", segmentName(r.segment.first), err)
			}
		}
		entries = append(entries, p.cached...)
	}
	l.cacheEntries.Add(uint64(len(p.cached)))
	for _, r := range p.reads {
		l.diskEntries.Add(uint64(len(r.places)))
		l.diskBytes.Add(uint64(r.end - int64(r.places[0].offset)))
	}
	return entries, nil
}

// readRun appends the entries of one run to dst.
func (l *Log) readRun(dst []Entry, r read) ([]Entry, error) {
	name := segmentName(r.segment.first)
	f, err := l.options.FS.Open(filepath.Join(l.options.Dir, name))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	start := int64(r.places[0].offset)
	b := make([]byte, r.end-start)
	if err := readFull(f, b, start); err != nil {
		return nil, err
	}
	for i, p := range r.places {
		end := r.end
		if i+1 < len(r.places) {
			end = int64(r.places[i+1].offset)
		}
		index, offset := r.first+uint64(i), int64(p.offset)
		e, err := decodeEntry(b[offset-start:end-start], offset, r.segment.seed)
		if err == nil && (e.Index != index || e.Term != p.term) {
			err = fmt.Errorf("%w: it is entry %d of term %d, not of term %d", errDamage, e.Index, e.Term, p.term)
		}
		if err != nil {
			return nil, &CorruptError{File: name, Offset: offset, Index: index, Detail: err.Error()}
		}
		dst = append(dst, e)
	}
	return dst, nil
}

func readFull(f vfs.File, b []byte, offset int64) error {
	n, err := f.ReadAt(b, offset)
	if n == len(b) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("read %d bytes at %d: %w", len(b), offset, io.ErrUnexpectedEOF)
	}
	return err
}

// decodeEntry decodes and verifies the record b that stands at offset in a
// segment with the given seed. The entry's data aliases b, the rest of which is
// spoilt. It returns errDamage.
func decodeEntry(b []byte, offset int64, seed uint32) (Entry, error) {
	r, err := parseRecordHead(b, offset, seed)
	if err != nil {
		return Entry{}, err
	}
	data, err := r.data(b)
	if err != nil {
		return Entry{}, err
	}
	return Entry{Index: r.index, Term: r.term, Type: r.raftType, Data: data}, nil
}
