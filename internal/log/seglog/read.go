package seglog

import (
	"errors"
	"fmt"
	"path/filepath"
)

// ReadBytesMax is the most data that one call of Entries returns, even if the caller allows more, unless a
// single entry is larger. A reader that has fallen behind must not make the process hold the whole log.
const ReadBytesMax = 64 << 20

// reading is a call of Entries that is under way.
type reading struct {
	lo, hi, bytesMax uint64
	// generation is that of the log when the first entry was looked for.
	generation uint64
	entries    []Entry
	bytes      uint64
	// full is set once an entry did not fit any more.
	full bool
	// reader is the Reader or peer that reads; nil for a single call that nobody continues. fromFile is how
	// many entries were not in memory.
	reader   *Reader
	fromFile int
	// once: the page cache need not keep what is read.
	once bool
	// memory: entries that have to come from the file are read ahead for a peer of raft, and not by this call.
	memory bool
	// recent is set once entries came from the cache of the newest entries.
	recent bool
}

// next is the index of the next entry to be read.
func (r *reading) next() uint64 { return r.lo + uint64(len(r.entries)) }

// fits tells whether an entry with dataBytes of data may be added. The first entry always may.
func (r *reading) fits(dataBytes uint64) bool {
	r.full = len(r.entries) > 0 && r.bytes+dataBytes > r.bytesMax
	return !r.full
}

func (r *reading) add(e Entry) {
	r.entries = append(r.entries, e)
	r.bytes += uint64(len(e.Data))
}

// Entries returns the entries from lo up to, but without, hi. It returns fewer, but at least one if there are
// any, if their data would be over bytesMax bytes or over ReadBytesMax. It reads at once, without regard for
// appends: to read much, use a Reader. It returns ErrCompacted or ErrUnavailable if the log does not hold all
// of them, and a *CorruptError for an entry that has gone bad on disk. The caller must not change the data,
// which is shared.
func (l *Log) Entries(lo, hi, bytesMax uint64) ([]Entry, error) {
	return l.entries(&reading{lo: lo, hi: hi, bytesMax: min(bytesMax, ReadBytesMax)})
}

func (l *Log) entries(r *reading) ([]Entry, error) {
	err := l.read(r)
	if errors.Is(err, ErrNotInMemory) {
		return nil, err
	}
	l.prefetch.served(r)
	if err != nil {
		return nil, err
	}
	return r.entries, nil
}

// EntriesInMemory is Entries for a reader that must not wait for the disk. It returns ErrNotInMemory if the
// first entry has to come from the disk, and makes Run read it ahead: Arrived says when to ask again. If Run is
// not under way, or does not read that entry ahead, it waits for the disk all the same.
func (l *Log) EntriesInMemory(lo, hi, bytesMax uint64) ([]Entry, error) {
	return l.entries(&reading{lo: lo, hi: hi, bytesMax: min(bytesMax, ReadBytesMax), memory: true})
}

// Arrived gets a value when something was read ahead for which EntriesInMemory was called.
func (l *Log) Arrived() <-chan struct{} { return l.prefetch.arrived }

func (l *Log) read(r *reading) error {
	for {
		s, err := l.step(r)
		if err != nil || s == nil {
			return err
		}
		if r.memory && len(r.entries) > 0 {
			return nil
		}
		if r.memory && l.prefetch.want(r) {
			return fmt.Errorf("read entry %d: %w", r.next(), ErrNotInMemory)
		}
		if l.prefetch.await(r) {
			continue
		}
		// Another turn after an error is possible only after another truncation, or it ends in ErrCompacted.
		if err := l.readRun(r, s); err != nil && !l.overtaken(r) {
			if errors.Is(err, ErrCorrupt) {
				l.Doubt(s.name())
			}
			return fmt.Errorf("read segment %s: %w", s.name(), err)
		}
	}
}

func (l *Log) overtaken(r *reading) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return r.generation != l.generation || r.lo < l.segments[0].first
}

// step takes what is in memory and says what comes next. It returns a copy of the segment to read from, or nil
// if r is done.
func (l *Log) step(r *reading) (*segment, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if len(r.entries) > 0 && r.generation != l.generation {
		*r = reading{lo: r.lo, hi: r.hi, bytesMax: r.bytesMax, reader: r.reader, memory: r.memory}
	}
	r.generation = l.generation
	first, last := l.segments[0].first, l.segments[len(l.segments)-1].last()
	switch {
	case r.lo < first:
		return nil, fmt.Errorf("%w: index %d, first %d", ErrCompacted, r.lo, first)
	case r.hi > last+1:
		return nil, fmt.Errorf("%w: index %d, last %d", ErrUnavailable, r.hi-1, last)
	case r.full || r.next() >= r.hi:
		return nil, nil
	}
	cached, ok := l.cache.from()
	if !ok {
		cached = last + 1
	}
	if r.next() < cached {
		l.prefetch.take(r, cached)
		if r.full || r.next() >= r.hi {
			return nil, nil
		}
	}
	if r.next() < cached {
		s := *l.segments[l.find(r.next())]
		return &s, nil
	}
	begin := len(r.entries)
	r.recent = true
	for r.next() < r.hi {
		e := &l.cache.entries[r.next()-cached]
		if !r.fits(uint64(len(e.Data))) {
			break
		}
		r.add(*e)
	}
	l.cacheEntries.Add(uint64(len(r.entries) - begin))
	return nil, nil
}

// readRun adds the entries that s holds to r, as many as fit. It does not hold the lock.
func (l *Log) readRun(r *reading, s *segment) error {
	f, err := l.options.FS.Open(filepath.Join(l.options.Dir, s.name()))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	from, to := uint32(r.next()-s.first), uint32(min(r.hi-s.first, uint64(s.index.count)))
	w := &window{file: f, size: s.index.bound(to, s.recordsEnd()), lasting: true}
	c := s.walk(w, from)
	if begin := c.offset; r.once {
		defer func() { f.Uncache(begin, c.offset) }()
	}
	for c.ordinal < to {
		// If entries are not small, one read gets everything: what is before the first entry, and as much as
		// may still be returned.
		w.ahead = pointBytes + int64(r.bytesMax-min(r.bytes, r.bytesMax))
		record, err := c.head()
		if err == nil && c.ordinal >= from {
			if !r.fits(uint64(record.dataBytes)) {
				return nil
			}
			err = c.add(r, &record)
			r.fromFile++
			l.diskEntries.Add(1)
			l.diskBytes.Add(uint64(record.bytes()))
		}
		if errors.Is(err, errDamage) {
			return &CorruptError{File: s.name(), Offset: c.offset, Index: s.first + uint64(c.ordinal), Detail: err.Error()}
		}
		if err != nil {
			return err
		}
		c.pass(&record)
	}
	return nil
}

// walk is a walk over a segment's records.
type walk struct {
	segment *segment
	window  *window
	// ordinal is that of the next record, offset its place, chain the chain value of the record before.
	ordinal uint32
	offset  int64
	chain   uint32
}

// walk begins at the last point at or before the record from.
func (s *segment) walk(w *window, from uint32) *walk {
	p := s.index.seek(from)
	return &walk{segment: s, window: w, ordinal: p.ordinal, offset: p.offset, chain: p.chain}
}

// head reads and verifies the head of the next record, also by its chain. So the length in it can be relied on.
// If it is damaged, head returns errDamage.
func (c *walk) head() (record, error) {
	head, err := c.window.bytes(c.offset, recordHeadBytes)
	if err != nil {
		return record{}, err
	}
	r, err := parseRecordHead(head, c.offset, c.segment.seed)
	if err != nil {
		return record{}, err
	}
	index, term := c.segment.first+uint64(c.ordinal), c.segment.index.term(c.ordinal)
	if r.index != index || r.term != term || !r.linked(head, c.chain) {
		return record{}, fmt.Errorf("%w: it is entry %d of term %d, not entry %d of term %d, or not chained to the one before",
			errDamage, r.index, r.term, index, term)
	}
	return r, nil
}

func (c *walk) pass(r *record) {
	c.ordinal, c.offset, c.chain = c.ordinal+1, c.offset+r.bytes(), r.chain
}

// add reads the record whose head is record and adds its entry to r.
func (c *walk) add(r *reading, record *record) error {
	b, err := c.window.bytes(c.offset, record.bytes())
	if err != nil {
		return err
	}
	e, err := decodeEntry(b, c.offset, c.segment.seed)
	if err != nil {
		return err
	}
	r.add(e)
	return nil
}

// decodeEntry decodes and verifies the record b that stands at offset in a segment with the given seed. The
// entry's data aliases b, and the rest of b must not be used any more. If the record is damaged, it returns
// errDamage.
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
