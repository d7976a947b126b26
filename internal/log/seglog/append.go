package seglog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/sys/invariant"
)

const (
	// groupBufferBytes is how much of a group is collected for one pwrite. A group of small entries (up to 8
	// MiB in all, by Raft's message size) takes few calls. Larger pieces of data go to the file without a copy.
	groupBufferBytes = 1 << 20

	// directBytes: a longer piece of data goes to the file without a copy.
	directBytes = 64 << 10

	// uncacheBytes is how many bytes on disk collect before the page cache is told to drop them. Only readers
	// that lag would read them, and it is cheaper to write into pages that come back at once than into pages
	// that were never used (BenchmarkAppend).
	uncacheBytes = 1 << 20

	// prepareBytes is how far zeros are written ahead. A write into zeros that are on disk needs no new blocks,
	// so its fdatasync waits for no journal commit: it takes two thirds of the time at 1 KiB, measured.
	// The chunk of zeros shares the fdatasync of the group that first passes the prepared region. At 2 MiB that
	// is one of 128 groups of 16 KiB, which stays out of their 99th percentile; with 1 MiB it did not. With
	// groups of 128 KiB it is in their 99th percentile, and with 4 MiB it took twice as long there.
	prepareBytes = 2 << 20

	// prepareGroupBytesMax: behind a larger group nothing is prepared. Zeros would double the bytes that are
	// written, to save a small part of a long sync.
	prepareGroupBytesMax = 256 << 10

	// prepareAlign makes the zeros end with a page, so that they cause no second write to a page.
	prepareAlign = 4096
)

// writer is the end of the log as Append sees it.
type writer struct {
	// file is the active segment's file; nil if the next entry begins a new segment.
	file vfs.File
	// prepared is the offset up to which the file has been written, with
	// records or with zeros.
	prepared int64
	// cached is the offset up to which the page cache was told to drop the bytes.
	cached int64
	// gtids holds the transactions of the whole log.
	gtids *gtid.Set
	// claims are the stages that this call of Append has claimed.
	claims []*Stage

	// buf collects what will be written at bufAt. head holds the bytes around the data of one record.
	buf   []byte
	bufAt int64
	head  []byte
	zeros []byte

	// Of the group that is being written: the places of the records, and the transactions in them.
	places []place
	added  []gtid.GTID
	times  timeSpan
}

// Append stores entries and, unless it is nil, the hard state, and returns once they are on disk. A hard state
// in which only Commit is new need not be on disk then.
//
// entries follow each other, and the log: the first index is at most LastIndex+1. If it is lower, the log's
// entries from there on are removed first; entries up to the commit index are never removed (I7). The log keeps
// the data.
//
// It returns ErrTooLarge, or ErrNoStage if an entry names a stage that is not here and complete; then nothing
// was done. After ErrFull nothing is acknowledged, but entries that had to be removed are gone, and the first
// of entries may be stored. The same call, or another one, may follow. Any other error is ErrFailed, which all
// later calls return, too, or ErrClosed.
func (l *Log) Append(entries []Entry, hs *HardState) error {
	if err := l.failure(); err != nil {
		return err
	}
	for i := range entries {
		if len(entries[i].Data) > EntryBytesMax {
			return fmt.Errorf("append entry %d: %w: %d bytes, at most %d", entries[i].Index, ErrTooLarge, len(entries[i].Data), EntryBytesMax)
		}
	}
	l.check(entries, hs)
	entries = entries[l.had(entries):]
	defer l.release()
	if err := l.claim(entries); err != nil {
		return err
	}
	err := l.append(entries, hs)
	if refused := errors.Is(err, ErrFull); len(entries) > 0 || refused {
		l.refused = refused
	}
	if err != nil && !errors.Is(err, ErrFull) {
		return l.fail(err)
	}
	return err
}

// check panics if the caller breaks what the log relies on.
func (l *Log) check(entries []Entry, hs *HardState) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	last := l.segments[len(l.segments)-1].last()
	if len(entries) > 0 {
		first := entries[0].Index
		invariant.Check(first <= last+1, "log-order", "append of entry %d behind %d", first, last)
		invariant.Check(first > l.hs.Commit && first >= l.segments[0].first, "I7",
			"entry %d would be replaced, %d is committed, the log begins at %d", first, l.hs.Commit, l.segments[0].first)
		term, err := l.term(first - 1)
		invariant.Check(err == nil, "log-order", "term of entry %d: %v", first-1, err)
		at, ok := first, true
		for i := range entries {
			if e := &entries[i]; e.Index != at || e.Term < term {
				ok = false
				break
			}
			at, term = at+1, entries[i].Term
		}
		invariant.Check(ok, "log-order", "no entry %d of term %d or later in its place", at, term)
		last = entries[len(entries)-1].Index
	}
	if hs != nil {
		invariant.Check(hs.Term >= l.hs.Term && hs.Commit >= l.hs.Commit && hs.Commit <= last, "hard-state",
			"%+v after %+v with last entry %d", *hs, l.hs, last)
		invariant.Check(hs.Term > l.hs.Term || l.hs.Vote == 0 || hs.Vote == l.hs.Vote, "hard-state",
			"second vote in a term: %+v after %+v", *hs, l.hs)
	}
}

// had returns how many of entries an earlier call has stored that found the disk full. They are not removed and
// written again.
func (l *Log) had(entries []Entry) int {
	if !l.refused {
		return 0
	}
	last := l.LastIndex()
	for n := range entries {
		e := &entries[n]
		if e.Index > last {
			return n
		}
		if term, err := l.Term(e.Index); err != nil || term != e.Term {
			return n
		}
	}
	if n := len(entries); n == 0 || entries[n-1].Index == last {
		return n
	}
	return 0
}

func (l *Log) append(entries []Entry, hs *HardState) error {
	l.busy.start()
	defer l.busy.stop()
	if len(entries) > 0 && entries[0].Index <= l.tail().last() {
		if err := l.truncate(entries[0].Index); err != nil {
			return fmt.Errorf("truncate log at entry %d: %w", entries[0].Index, err)
		}
	}
	for len(entries) > 0 {
		if n, ok := namingOf(&entries[0]); ok {
			if err := l.adopt(&entries[0], n); err != nil {
				return fmt.Errorf("adopt stage %v as entry %d: %w", n.id, entries[0].Index, err)
			}
			entries = entries[1:]
			continue
		}
		if err := l.openFor(&entries[0]); err != nil {
			return fmt.Errorf("begin segment at entry %d: %w", entries[0].Index, err)
		}
		n := l.fitting(entries)
		if err := l.writeGroup(entries[:n]); err != nil {
			return fmt.Errorf("write entry %d: %w", entries[0].Index, err)
		}
		entries = entries[n:]
	}
	if hs == nil || *hs == l.hs {
		return nil
	}
	begin := time.Now()
	synced, err := l.state.save(*hs)
	if err != nil {
		return fmt.Errorf("write %s: %w", stateName, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hs = *hs
	if synced {
		l.stats.Syncs++
		l.stats.SyncTime += time.Since(begin)
	}
	return nil
}

// openFor begins a new segment if e must be the first entry of one.
func (l *Log) openFor(e *Entry) error {
	fde, opens := formatDescriptionOf(e)
	tail := l.tail()
	full := tail.end+recordBytes(len(e.Data)) > l.options.SegmentBytesMax
	if !opens && !full && !tail.empty() && l.writer.file != nil {
		return nil
	}
	if fde == nil {
		fde = l.formatInForce()
		if opens {
			l.log.Warn("entry has no usable FORMAT_DESCRIPTION", "index", e.Index, "term", e.Term)
			fde = builtinFormatDescription()
		}
	}
	if tail.empty() && l.writer.file != nil && bytes.Equal(fde, tail.formatDescription) {
		return nil
	}
	if err := l.seal(); err != nil {
		return err
	}
	return l.startSegment(fde)
}

// formatInForce returns the FORMAT_DESCRIPTION for the entries after the log's last one. An empty segment does
// not count: its FORMAT_DESCRIPTION may have come with an entry that was cut off.
func (l *Log) formatInForce() []byte {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for i := len(l.segments) - 1; i >= 0; i-- {
		if s := l.segments[i]; !s.empty() {
			return s.formatDescription
		}
	}
	return builtinFormatDescription()
}

// opensSegment tells whether e must be, by its kind, the first entry of a segment.
func opensSegment(e *Entry) bool {
	if e.Type != raftNormal {
		return false
	}
	h, _, err := entry.Parse(e.Data)
	return err == nil && (h.Kind == entry.KindEpoch || h.Kind == entry.KindRotate || h.Kind == entry.KindStaged)
}

// fitting returns how many of entries go into the active segment. It is at least one.
func (l *Log) fitting(entries []Entry) int {
	end := l.tail().end + recordBytes(len(entries[0].Data))
	for n := 1; n < len(entries); n++ {
		end += recordBytes(len(entries[n].Data))
		if end > l.options.SegmentBytesMax || opensSegment(&entries[n]) {
			return n
		}
	}
	return len(entries)
}

// seal cuts the active segment to its exact length, durably. Only after that may the next segment be made.
func (l *Log) seal() error {
	f, end := l.writer.file, l.tail().end
	if f != nil && l.writer.prepared > end {
		if err := f.Truncate(end); err != nil {
			return err
		}
		if err := l.sync(f.Sync); err != nil {
			return err
		}
		l.writer.prepared = end
	}
	return l.closeActive()
}

// nextHeader returns the header of a segment for the entries after the log's last one. If the last segment is
// empty, the new one replaces it.
func (l *Log) nextHeader(fde []byte) *segmentHeader {
	h := &segmentHeader{
		identity: l.options.Identity, number: 1, first: 1,
		formatDescription: fde, gtidsBefore: l.writer.gtids.Clone(),
	}
	tail := l.tail()
	if tail == nil {
		if b := l.options.Begin; b != nil && b.First > 1 {
			h.number, h.first, h.previousTerm = 2, b.First, b.PreviousTerm
		}
		return h
	}
	h.number, h.first, h.previousTerm, h.previousChain = tail.number+1, tail.last()+1, tail.lastTerm(), tail.chain
	if tail.empty() {
		h.number, h.previousChain = tail.number, tail.previousChain
	}
	return h
}

// show makes s the last segment. An empty last segment is replaced.
func (l *Log) show(s *segment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := l.segments
	if n := len(kept); n > 0 && kept[n-1].empty() {
		kept = kept[:n-1]
	} else if n > 0 {
		l.olderBytes += kept[n-1].end
	}
	l.segments = append(kept[:len(kept):len(kept)], s)
}

// startSegment makes an empty segment, durably, which becomes the active one. The segment before must be
// sealed.
func (l *Log) startSegment(fde []byte) error {
	if err := l.closeActive(); err != nil {
		return err
	}
	h := l.nextHeader(fde)
	f, err := createSegment(l.options.FS, l.options.Dir, h)
	if err != nil {
		return fmt.Errorf("create %s: %w", segmentName(h.first), err)
	}
	l.writer.file, l.writer.prepared, l.writer.cached = f, h.bytes, 0
	l.show(&segment{segmentHeader: h, end: h.bytes, chain: h.seed})
	l.saveIndexes(false)
	return nil
}

func (l *Log) closeActive() error {
	f := l.writer.file
	if f == nil {
		return nil
	}
	l.writer.file = nil
	return f.Close()
}

// sync calls a Sync or SyncData and counts it.
func (l *Log) sync(sync func() error) error {
	begin := time.Now()
	err := sync()
	took := time.Since(begin)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Syncs++
	l.stats.SyncTime += took
	return err
}

// writeGroup writes entries behind the active segment's last record, makes them
// durable and shows them to readers.
func (l *Log) writeGroup(entries []Entry) error {
	tail, w := l.tail(), &l.writer
	end, chain, err := w.putGroup(tail, entries)
	if err != nil {
		return l.undo(err)
	}
	zeros, err := w.prepare(tail.end, end, l.options.SegmentBytesMax)
	if err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	if err := l.sync(w.file.SyncData); err != nil {
		return err
	}
	w.uncache(end)
	for _, g := range w.added {
		w.gtids.Add(g)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Appends++
	l.stats.Entries += uint64(len(entries))
	l.stats.Bytes += uint64(end - tail.end)
	l.grown.Add(end - tail.end)
	l.stats.ZeroBytes += uint64(zeros)
	for _, p := range w.places {
		tail.index.add(p)
	}
	tail.end, tail.chain, tail.times = end, chain, w.times
	l.cache.add(entries)
	return nil
}

// putGroup writes the records of entries behind tail and returns where they
// end, and the last chain value.
func (w *writer) putGroup(tail *segment, entries []Entry) (end int64, chain uint32, err error) {
	end, chain = tail.end, tail.chain
	w.bufAt, w.places, w.added, w.times = end, w.places[:0], w.added[:0], tail.times
	for i := range entries {
		e := &entries[i]
		r := record{
			raftType: e.Type, index: e.Index, term: e.Term, durable: uint64(tail.end), seed: tail.seed,
			dataBytes: uint32(len(e.Data)), inlineBytes: uint32(len(e.Data)),
		}
		var split bool
		if w.added, split = splitTransactions(w.added, e); split {
			r.inlineBytes = entry.HeaderBytes
			w.times.add(e.Data[entry.HeaderBytes:])
		}
		w.places = append(w.places, place{offset: end, term: e.Term, chain: chain})
		if err := w.putRecord(&r, e.Data, end, chain); err != nil {
			return 0, 0, err
		}
		end, chain = end+r.bytes(), r.chain
	}
	return end, chain, w.flush()
}

// undo cuts off what a group may have left on a disk that was found full. Any other error is terminal.
func (l *Log) undo(err error) error {
	w, end := &l.writer, l.tail().end
	found := full(err)
	if !errors.Is(found, ErrFull) {
		return err
	}
	if err := w.file.Truncate(end); err != nil {
		return fmt.Errorf("undo: %w", err)
	}
	if err := l.sync(w.file.Sync); err != nil {
		return fmt.Errorf("undo: %w", err)
	}
	w.prepared = end
	return found
}

// putRecord writes the record of data at offset and sets the fields of r that
// depend on data and place.
func (w *writer) putRecord(r *record, data []byte, offset int64, chain uint32) error {
	inline, rest := data[:r.inlineBytes], data[r.inlineBytes:]
	r.dataCRC = crc32.Checksum(data, castagnoli())
	w.head = r.appendHead(w.head[:0], offset, chain)
	sum := crc32.Update(crc32.ChecksumIEEE(w.head), crc32.IEEETable, inline)
	if err := w.put(w.head); err != nil {
		return err
	}
	if err := w.put(inline); err != nil {
		return err
	}
	w.head = binary.LittleEndian.AppendUint32(w.head[:0], sum)
	if err := w.put(w.head); err != nil {
		return err
	}
	return w.put(rest)
}

// put writes p after what was put before.
func (w *writer) put(p []byte) error {
	direct := len(p) > directBytes
	if direct || len(w.buf)+len(p) > groupBufferBytes {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if !direct {
		w.buf = append(w.buf, p...)
		return nil
	}
	_, err := w.file.WriteAt(p, w.bufAt)
	w.bufAt += int64(len(p))
	return err
}

// uncache lets the page cache drop what is on disk up to end, except the page in which the next group
// continues.
func (w *writer) uncache(end int64) {
	if end &^= prepareAlign - 1; end-w.cached >= uncacheBytes || end < w.cached {
		w.file.Uncache(w.cached, end)
		w.cached = end
	}
}

func (w *writer) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	_, err := w.file.WriteAt(w.buf, w.bufAt)
	w.bufAt += int64(len(w.buf))
	w.buf = w.buf[:0]
	return err
}

// prepare writes zeros ahead if the group from start to end went beyond the prepared part. It returns how many
// it wrote: fewer on a full disk.
func (w *writer) prepare(start, end, segmentBytesMax int64) (int64, error) {
	if end <= w.prepared {
		return 0, nil
	}
	w.prepared = end
	to := min((end+prepareBytes)&^(prepareAlign-1), segmentBytesMax)
	if end-start > prepareGroupBytesMax || to <= end {
		return 0, nil
	}
	if w.zeros == nil {
		w.zeros = make([]byte, groupBufferBytes)
	}
	for w.prepared < to {
		n, err := w.file.WriteAt(w.zeros[:min(to-w.prepared, int64(len(w.zeros)))], w.prepared)
		w.prepared += int64(n)
		if errors.Is(full(err), ErrFull) {
			break
		}
		if err != nil {
			return 0, err
		}
	}
	return w.prepared - end, nil
}
