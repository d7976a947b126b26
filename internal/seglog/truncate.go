package seglog

import (
	"fmt"
	"path/filepath"
)

// truncate removes the entries from index on, durably. A crash at any point
// leaves a prefix of the log that holds at least what is before index.
func (l *Log) truncate(index uint64) error {
	at := l.find(index)
	tail := l.segments[at]
	removed := l.segments[at+1:]
	kept := index - tail.first
	l.hide(at, index)
	if err := l.closeActive(); err != nil {
		return err
	}
	// Newest first, and each removal durable before the next: a segment that
	// came back without the one before it would be taken for corruption.
	for i := len(removed) - 1; i >= 0; i-- {
		if err := l.options.FS.Remove(filepath.Join(l.options.Dir, removed[i].name())); err != nil {
			return err
		}
		if err := l.sync(func() error { return l.options.FS.SyncDir(l.options.Dir) }); err != nil {
			return err
		}
	}
	if kept > 0 {
		return l.cutActive(kept)
	}
	// The segment's FORMAT_DESCRIPTION came with an entry that is gone. The
	// segment before is not opened again: it may have been sealed, and copied.
	fde := builtinFormatDescription()
	if at > 0 {
		fde = l.segments[at-1].formatDescription
	}
	l.writer.gtids = tail.gtidsBefore.Clone()
	return l.startSegment(tail.number, tail.first, fde)
}

// hide removes the entries from index on, which is in the segment at position
// at, from what readers see.
func (l *Log) hide(at int, index uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.generation++
	l.stats.Truncations++
	l.cache.truncate(index)
	tail := *l.segments[at]
	kept := index - tail.first
	tail.end = int64(tail.places[kept].offset)
	// Without spare room: the next append must not write into places that a
	// reader keeps.
	tail.places = tail.places[:kept:kept]
	l.segments = append(l.segments[:at:at], &tail)
}

// cutActive cuts the last segment behind its first kept records, as hide left
// it, and reads those again for their chain and their transactions.
func (l *Log) cutActive(kept uint64) error {
	o, tail := &l.options, l.tail()
	f, err := o.FS.OpenReadWrite(filepath.Join(o.Dir, tail.name()))
	if err != nil {
		return err
	}
	l.writer.file, l.writer.prepared = f, tail.end
	if err := f.Truncate(tail.end); err != nil {
		return err
	}
	if err := l.sync(f.Sync); err != nil {
		return err
	}
	_, s, w, err := readSegment(o.FS, o.Dir, tail.name(), true)
	if err != nil {
		return err
	}
	_ = w.file.Close()
	if s.problem != nil || uint64(len(s.places)) != kept {
		return &CorruptError{
			File: tail.name(), Offset: s.end, Index: tail.first + uint64(len(s.places)),
			Detail: fmt.Sprintf("%d entries are left of %d: %v", len(s.places), kept, s.problem),
		}
	}
	l.writer.gtids = s.gtids
	l.mu.Lock()
	defer l.mu.Unlock()
	tail.chain = s.chain
	return nil
}
