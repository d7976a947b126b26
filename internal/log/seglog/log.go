package seglog

import (
	"fmt"
	"io"
	"log/slog"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/entry"
)

const (
	// SegmentBytesDefault is max_binlog_size as quorate sets it. The primary's rotations end segments; this
	// limit is only for what comes between two rotations.
	SegmentBytesDefault = 128 << 20
	// CacheBytesDefault keeps the entries of the last second at 64 MB/s. Followers and the feed read these all
	// the time.
	CacheBytesDefault = 64 << 20

	segmentBytesMaxMax = 1 << 30
)

// Entry is one entry of Raft's log.
type Entry struct {
	Index, Term uint64
	// Type is Raft's: 0 normal, 1 conf change, 2 conf change v2.
	Type uint8
	// Data is encoded by package entry, if Type is 0. Empty data is nil when it is read. The bytes must not be
	// changed.
	Data []byte
}

// Staged returns the staged transaction that the entry names; false if it names none.
func (e Entry) Staged() (entry.Staged, bool) {
	if e.Type != 0 {
		return entry.Staged{}, false
	}
	return entry.StagedIn(e.Data)
}

// Options configure Open.
type Options struct {
	FS vfs.FS
	// Dir is the log's own directory. It is made if it is missing.
	Dir string
	// Identity is the cluster id (8 bytes) and the node id (8 bytes).
	Identity [16]byte
	// Logger gets what recovery did; nil discards it.
	Logger *slog.Logger
	// Heal opens a damaged log, too. The log is cut before the damage, and has to be healed (see Healing) until
	// FinishHealing, even after restarts. The state file must be whole, and so must the log's first segment if
	// others were purged.
	Heal bool
	// Indexed makes Open take a committed segment that is not the last one from its saved index, if it has one that
	// fits, in place of reading it; and makes the log save such indexes. Check then reads those segments. Damage that
	// is found later removes the indexes, so that the next Open reads all segments, as it does without Indexed, and with
	// Heal.
	Indexed bool
	// SegmentBytesMax is the length at which a segment ends, in bytes, up to 1 GiB; 0 = SegmentBytesDefault. A
	// larger entry gets a segment of its own.
	SegmentBytesMax int64
	// CacheBytesMax bounds the cache of the newest entries, in bytes; 0 =
	// CacheBytesDefault.
	CacheBytesMax int64
	// PrefetchBytesMax bounds what Run reads ahead, in bytes; 0 = PrefetchBytesDefault. Each reader has a
	// twelfth of it. Below 4 MiB that has no room for a chunk, and nothing is read ahead.
	PrefetchBytesMax int64
	// Progress is told how many bytes of how many Open has read, before each segment; nil tells nobody. Its error
	// ends Open, which has changed nothing by then.
	Progress func(done, total int64) error
	// Begin says where a new log begins; nil = at entry 1. Until such a log has its first entry, Open finds it
	// damaged.
	Begin *Begin
}

// Begin is the beginning of the log of a node that has everything before it from elsewhere. It must be the
// beginning of a segment of the log from which this log is copied.
type Begin struct {
	// First is the index of the first entry, PreviousTerm the term of the entry before.
	First, PreviousTerm uint64
	// GTIDs holds the transactions of all entries before First.
	GTIDs *gtid.Set
	// FormatDescription is the event at that segment's start; nil = the built-in one, if no epoch is before
	// First.
	FormatDescription []byte
}

// SegmentInfo describes a segment.
type SegmentInfo struct {
	// Name is the name of the file in the log's directory.
	Name string
	// FirstIndex and LastIndex are the entries that the segment holds; LastIndex is FirstIndex-1 while it holds
	// none.
	FirstIndex, LastIndex uint64
	// Bytes is the length of its header and records.
	Bytes int64
	// GTIDsBefore is the set of all transactions in entries before
	// FirstIndex. It is shared: do not change it.
	GTIDsBefore *gtid.Set
	// FormatDescription is the event at the file's start, with the flags of a closed file. It is in force for
	// all transactions of the file. It is shared: do not change it.
	FormatDescription []byte
	// FirstTime and LastTime are when the segment's first and last transaction were committed, in seconds since
	// 1970 by the clock of their primary; 0 if there is none.
	FirstTime, LastTime int64
	// Sealed: the file is a finished binlog file. It will not change any more, and its entries are committed.
	Sealed bool
}

// Stats are counters since Open, and sizes.
type Stats struct {
	// Appends counts the calls of Append that wrote something. Entries and Bytes count what they wrote, in
	// bytes of the files.
	Appends, Entries, Bytes uint64
	// Syncs counts fdatasync and fsync of segments and hard state. SyncTime is the time spent in them.
	Syncs    uint64
	SyncTime time.Duration
	// ZeroBytes counts the zeros that were written ahead of entries.
	ZeroBytes uint64
	// Truncations counts conflicts that removed entries.
	Truncations uint64
	// PurgedSegments counts the files that Purge removed.
	PurgedSegments uint64
	// TornBytes is the length of the torn tail that Open cut; 0 = none.
	TornBytes int64
	// CacheEntries counts entries read from the cache, PrefetchEntries entries from the prefetch cache,
	// MissedEntries entries for which their reader waited for the disk.
	CacheEntries, PrefetchEntries, MissedEntries uint64
	// DiskEntries and DiskBytes count what was read from files. PrefetchBytes counts the bytes of entries that
	// were read ahead, WastedBytes those that no reader took.
	DiskEntries, DiskBytes, PrefetchBytes, WastedBytes uint64
	// CacheBytes is the cache's present size, Segments the number of files.
	CacheBytes int64
	Segments   int
}

// Log is an open log. See the package comment for who may call what.
type Log struct {
	options Options
	log     *slog.Logger
	lock    io.Closer

	// Owned by the goroutine of Append.
	writer writer
	state  stateFile
	// healing is set while the log lacks entries that it once had.
	healing *healing
	// refused is set while the last Append found the disk full.
	refused bool

	// purging is held by Purge, so that there is one at a time.
	purging sync.Mutex

	// stagesMu guards the stages that are not in the log, by id. It may be held during calls that make and
	// remove names, so Append takes it only for an entry that names a stage. stages is nil once the log is closed.
	// Order: stagesMu before mu.
	stagesMu sync.Mutex
	stages   map[entry.StageID]*Stage

	// whole holds the ids of the complete stages. Its lock is never held during I/O.
	wholeMu sync.Mutex
	whole   map[entry.StageID]bool
	// slackBytes is stageSlackBytes, except in tests.
	slackBytes int64

	// mu guards the fields below. Only the goroutine of Append changes them, so it reads them without the lock.
	// Exceptions are segments, whose front belongs to Purge, and failed.
	mu       sync.RWMutex
	segments []*segment
	// olderBytes is the length of all segments but the last, which alone still grows.
	olderBytes int64
	hs         HardState
	cache      cache
	// failed is the error that all calls return from then on that would change something.
	failed error
	// generation counts truncations: a reader that was overtaken by one starts again.
	generation uint64
	stats      Stats

	prefetch prefetch
	// busy measures how much of the time entries are being appended.
	busy busyClock
	// grown counts the bytes that were appended.
	grown atomic.Int64
	// Readers count these without the lock.
	cacheEntries, diskEntries, diskBytes atomic.Uint64
}

// tail returns the last segment; nil while Open makes the first one.
func (l *Log) tail() *segment {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if len(l.segments) == 0 {
		return nil
	}
	return l.segments[len(l.segments)-1]
}

// fail makes err the error of the log, unless the log has one already, and returns the log's error.
func (l *Log) fail(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil {
		l.failed = fmt.Errorf("%w: %w", ErrFailed, err)
	}
	return l.failed
}

func (l *Log) failure() error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.failed
}

// HardState returns the hard state that was stored last; zero for a new log. After a crash its term may be
// lower than the last entry's: entries are stored first.
func (l *Log) HardState() HardState {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.hs
}

// FirstIndex returns the index of the first entry; 1 for an empty log.
func (l *Log) FirstIndex() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.segments[0].first
}

// LastIndex returns the index of the last entry, which is on disk; FirstIndex-1
// if there is none.
func (l *Log) LastIndex() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.segments[len(l.segments)-1].last()
}

// Term returns the term of the entry at index, from FirstIndex-1 to LastIndex. For other indexes it returns
// ErrCompacted or ErrUnavailable.
func (l *Log) Term(index uint64) (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.term(index)
}

func (l *Log) term(index uint64) (uint64, error) {
	first, last := l.segments[0], l.segments[len(l.segments)-1].last()
	switch {
	case index+1 == first.first:
		return first.previousTerm, nil
	case index < first.first:
		return 0, fmt.Errorf("%w: index %d, first %d", ErrCompacted, index, first.first)
	case index > last:
		return 0, fmt.Errorf("%w: index %d, last %d", ErrUnavailable, index, last)
	}
	s := l.segments[l.find(index)]
	return s.index.term(uint32(index - s.first)), nil
}

// find returns the position of the segment that holds index, or would hold it. index must not be before the
// first segment.
func (l *Log) find(index uint64) int {
	return sort.Search(len(l.segments), func(i int) bool { return l.segments[i].first > index }) - 1
}

// setSegments makes these the log's segments. mu is held for writing.
func (l *Log) setSegments(segments []*segment) {
	l.segments, l.olderBytes = segments, 0
	for _, s := range segments[:len(segments)-1] {
		l.olderBytes += s.end
	}
}

// Size returns the number of segments, and the length of all of them, in bytes. Unlike Segments it takes no longer for
// a longer log.
func (l *Log) Size() (segments int, bytes int64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.segments), l.olderBytes + l.segments[len(l.segments)-1].end
}

// Segments describes all segments, oldest first. There is at least one.
func (l *Log) Segments() []SegmentInfo {
	l.mu.RLock()
	defer l.mu.RUnlock()
	infos := make([]SegmentInfo, len(l.segments))
	for i, s := range l.segments {
		infos[i] = s.info()
		// A segment with an entry that is not committed may still be cut.
		infos[i].Sealed = i < len(l.segments)-1 && s.last() <= l.hs.Commit
	}
	return infos
}

// info describes the segment. It does not set Sealed.
func (s *segment) info() SegmentInfo {
	return SegmentInfo{
		Name:              s.name(),
		FirstIndex:        s.first,
		LastIndex:         s.last(),
		Bytes:             s.end,
		GTIDsBefore:       s.gtidsBefore,
		FormatDescription: s.formatDescription,
		FirstTime:         s.times.first,
		LastTime:          s.times.last,
	}
}

// Stats returns the counters.
func (l *Log) Stats() Stats {
	l.mu.RLock()
	defer l.mu.RUnlock()
	s := l.stats
	s.CacheBytes, s.Segments = l.cache.bytes, len(l.segments)
	s.CacheEntries, s.DiskEntries, s.DiskBytes = l.cacheEntries.Load(), l.diskEntries.Load(), l.diskBytes.Load()
	p := &l.prefetch
	p.mu.Lock()
	defer p.mu.Unlock()
	s.PrefetchEntries, s.MissedEntries, s.PrefetchBytes, s.WastedBytes = p.entries, p.misses, p.read, p.wasted
	return s
}

// Close releases the files and the lock. What a call of Append has returned for is on disk already. Calling
// Close again does nothing. A Purge that is under way ends first.
func (l *Log) Close() error {
	if l.lock == nil {
		return nil
	}
	l.purging.Lock()
	defer l.purging.Unlock()
	l.mu.Lock()
	if l.failed == nil {
		l.failed = ErrClosed
	}
	l.mu.Unlock()
	l.closeStages()
	err := l.closeFiles()
	if lockErr := l.lock.Close(); err == nil {
		err = lockErr
	}
	l.lock = nil
	if err != nil {
		return fmt.Errorf("close log: %w", err)
	}
	return nil
}

func (l *Log) closeFiles() error {
	var err error
	for _, f := range []vfs.File{l.writer.file, l.state.file} {
		if f == nil {
			continue
		}
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
	}
	return err
}
