package seglog

import (
	"fmt"
	"path/filepath"

	"github.com/quorate/quorate/internal/sys/invariant"
)

// Purge removes the oldest segments, as a whole, as long as they hold no entry behind upTo, and returns what it
// removed. It never removes an entry that is not committed, and leaves a committed entry behind: the log's
// first entry then tells the next Open what is committed at least. Any goroutine may call it, while others
// append and read. A reader of removed entries gets ErrCompacted.
//
// After ErrFailed the process must end, as after that of Append. Any other error leaves the segment in question
// in place; Purge may be called again.
func (l *Log) Purge(upTo uint64) (removed []SegmentInfo, err error) {
	l.purging.Lock()
	defer l.purging.Unlock()
	for {
		s, err := l.detach(upTo)
		if err != nil || s == nil {
			return removed, err
		}
		name := s.name()
		if err := l.options.FS.Remove(filepath.Join(l.options.Dir, name)); err != nil {
			l.attach(s)
			return removed, fmt.Errorf("remove segment %s: %w", name, err)
		}
		_ = l.options.FS.Remove(filepath.Join(l.options.Dir, savedName(name))) // the next Open would remove it, too
		// Each removal is durable before the next one: if a segment came back without the one behind it, that
		// would count as corruption.
		if err := l.sync(func() error { return l.options.FS.SyncDir(l.options.Dir) }); err != nil {
			return removed, l.fail(fmt.Errorf("sync directory after removal of %s: %w", name, err))
		}
		info := s.info()
		info.Sealed = true
		removed = append(removed, info)
	}
}

// detach hides the oldest segment from readers, if it may be removed; else it returns nil.
func (l *Log) detach(upTo uint64) (*segment, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return nil, l.failed
	}
	s := l.segments[0]
	if len(l.segments) < 2 || s.last() > upTo {
		return nil, nil
	}
	if next := l.segments[1]; next.empty() || next.first > l.hs.Commit {
		return nil, nil
	}
	rest := append([]*segment(nil), l.segments[1:]...)
	kept := rest[len(rest)-1].last()
	invariant.Check(s.last() < l.hs.Commit && s.last() < kept, "I7",
		"purge of entries %d-%d, %d is committed, the log ends at %d", s.first, s.last(), l.hs.Commit, kept)
	l.segments, l.olderBytes = rest, l.olderBytes-s.end
	l.stats.PurgedSegments++
	notify(l.prefetch.wake) // for readers that wait for entries that are gone
	return s, nil
}

// attach undoes detach.
func (l *Log) attach(s *segment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.segments, l.olderBytes = append([]*segment{s}, l.segments...), l.olderBytes+s.end
	l.stats.PurgedSegments--
}
