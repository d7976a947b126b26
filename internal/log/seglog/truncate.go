package seglog

import (
	"errors"
	"fmt"
	"path/filepath"
)

// truncate removes the entries from index on, durably. A crash at any point leaves a prefix of the log with at
// least the entries before index.
func (l *Log) truncate(index uint64) error {
	cut, err := l.locate(index)
	if err != nil {
		return err
	}
	removed := l.hide(cut)
	if err := l.closeActive(); err != nil {
		return err
	}
	// Newest first, and each removal is durable before the next one: if a segment came back without the one
	// before it, that would count as corruption.
	for i := len(removed) - 1; i >= 0; i-- {
		if err := l.remove(removed[i]); err != nil {
			return err
		}
	}
	if cut.kept > 0 {
		return l.cutActive()
	}
	if len(removed) > 0 && removed[0].first == index {
		// The whole segment is gone: the next entry begins a new one.
		l.writer.gtids = removed[0].gtidsBefore.Clone()
		return nil
	}
	// The segment's FORMAT_DESCRIPTION came with an entry that is gone. The segment before is not opened again:
	// it may have been sealed, and copied.
	l.writer.gtids = l.tail().gtidsBefore.Clone()
	err = l.startSegment(l.formatInForce())
	if errors.Is(err, ErrFull) {
		if err := l.emptyTail(); err != nil {
			return fmt.Errorf("empty segment on a full disk: %w", err)
		}
	}
	return err
}

// remove removes a segment's file, durably. The file of a stage becomes a stage again.
func (l *Log) remove(s *segment) error {
	var err error
	if s.stage != nil {
		err = l.unadopt(s)
	} else {
		err = l.options.FS.Remove(filepath.Join(l.options.Dir, s.name()))
	}
	if err != nil {
		return err
	}
	return l.sync(func() error { return l.options.FS.SyncDir(l.options.Dir) })
}

// cutting is where a truncation cuts.
type cutting struct {
	index uint64
	// kept is the number of entries that stay in the segment of index. offset is where they end, chain the
	// chain value of the last of them.
	kept   uint32
	offset int64
	chain  uint32
}

// locate finds the place of the entry at index.
func (l *Log) locate(index uint64) (cutting, error) {
	l.mu.RLock()
	s := *l.segments[l.find(index)]
	l.mu.RUnlock()
	if s.first == index {
		return cutting{index: index, offset: s.bytes, chain: s.seed}, nil
	}
	f, err := l.options.FS.Open(filepath.Join(l.options.Dir, s.name()))
	if err != nil {
		return cutting{}, err
	}
	defer func() { _ = f.Close() }()
	kept := uint32(index - s.first)
	c := s.walk(&window{file: f, size: s.end, ahead: pointBytes}, kept)
	for c.ordinal < kept {
		r, err := c.head()
		if errors.Is(err, errDamage) {
			l.Doubt(s.name())
			return cutting{}, &CorruptError{File: s.name(), Offset: c.offset, Index: s.first + uint64(c.ordinal), Detail: err.Error()}
		}
		if err != nil {
			return cutting{}, err
		}
		c.pass(&r)
	}
	return cutting{index, kept, c.offset, c.chain}, nil
}

// hide removes what will be cut from what readers see, and returns the segments that go as a whole. A segment
// that holds a stage has one entry, and is not the log's first.
func (l *Log) hide(cut cutting) []*segment {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.find(cut.index)
	l.generation++
	l.stats.Truncations++
	l.cache.truncate(cut.index)
	l.prefetch.reset()
	tail := *l.segments[at]
	if tail.stage != nil {
		removed := l.segments[at:]
		l.setSegments(l.segments[:at:at])
		return removed
	}
	removed := l.segments[at+1:]
	tail.end, tail.chain, tail.index = cut.offset, cut.chain, tail.index.cut(cut.kept)
	l.setSegments(append(l.segments[:at:at], &tail))
	return removed
}

// cutActive cuts the last segment to what hide left of it, and reads it again for its transactions.
func (l *Log) cutActive() error {
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
	if s.problem != nil || s.index.count != tail.index.count || s.chain != tail.chain {
		return &CorruptError{
			File: tail.name(), Offset: s.end, Index: tail.first + uint64(s.index.count),
			Detail: fmt.Sprintf("%d entries are left of %d: %v", s.index.count, tail.index.count, s.problem),
		}
	}
	l.writer.gtids = s.gtids
	l.mu.Lock()
	defer l.mu.Unlock()
	tail.times = s.times
	return nil
}

// emptyTail cuts all entries off the last segment's file, because there is no room for the file that would
// replace it.
func (l *Log) emptyTail() error {
	f, err := l.options.FS.OpenReadWrite(filepath.Join(l.options.Dir, l.tail().name()))
	if err != nil {
		return err
	}
	err = f.Truncate(l.tail().end)
	if err == nil {
		err = l.sync(f.Sync)
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}
