package seglog

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/entry"
)

// Open opens the log in o.Dir, or makes a new one if there is none, and recovers it (see the package comment).
// It returns ErrFormat, ErrIdentity or a *CorruptError (which is ErrCorrupt) before it has changed anything but saved indexes;
// vfs.ErrLocked if the log is open already; else an error of the file system.
func Open(o Options) (*Log, error) {
	if o.SegmentBytesMax == 0 {
		o.SegmentBytesMax = SegmentBytesDefault
	}
	if o.CacheBytesMax == 0 {
		o.CacheBytesMax = CacheBytesDefault
	}
	if o.PrefetchBytesMax == 0 {
		o.PrefetchBytesMax = PrefetchBytesDefault
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.SegmentBytesMax < 0 || o.SegmentBytesMax > segmentBytesMaxMax {
		return nil, fmt.Errorf("open log: segments of %d bytes, at most %d are possible", o.SegmentBytesMax, segmentBytesMaxMax)
	}
	l := &Log{
		options: o, log: o.Logger, cache: cache{bytesMax: o.CacheBytesMax}, prefetch: newPrefetch(o.PrefetchBytesMax),
		stages: map[entry.StageID]*Stage{}, whole: map[entry.StageID]bool{}, slackBytes: stageSlackBytes,
	}
	if err := l.open(); err != nil {
		_ = l.closeFiles()
		if l.lock != nil {
			_ = l.lock.Close()
		}
		return nil, fmt.Errorf("open log in %s: %w", o.Dir, err)
	}
	return l, nil
}

func (l *Log) open() error {
	// The first look comes before the directory is even locked: a directory that is no log must stay unchanged.
	if _, err := l.look(); err != nil {
		return err
	}
	o := &l.options
	if err := o.FS.MkdirAll(o.Dir); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	lock, err := o.FS.Lock(o.Dir)
	if err != nil {
		return fmt.Errorf("lock directory: %w", err)
	}
	l.lock = lock
	found, err := l.look()
	if err != nil {
		return err
	}
	r, err := l.readLog(found)
	if err != nil {
		return err
	}
	if err := l.repair(found, r); err != nil {
		return err
	}
	l.saveIndexes(true)
	return nil
}

// readLog reads the segments: by their saved indexes where there are some, if Options allow that. If anything is wrong
// then, it reads and verifies all of them. The indexes go before that: if this is ended on its way, the next Open goes on
// with those that were saved meanwhile.
func (l *Log) readLog(f *found) (*recovered, error) {
	if o := &l.options; o.Indexed && !o.Heal && len(f.saved) > 0 {
		r, err := l.readSegments(f)
		if !errors.Is(err, ErrCorrupt) {
			return r, err
		}
		l.log.Warn("the log does not fit its saved indexes, or is damaged: reading all of it", "error", err)
		for _, segment := range f.saved {
			_ = o.FS.Remove(filepath.Join(o.Dir, savedName(segment)))
		}
	} else {
		f.stale = f.saved
	}
	f.saved = nil
	return l.readSegments(f)
}

// found is what is in the directory.
type found struct {
	// segments are the names of the segments, in order.
	segments    []string
	temporaries []string
	// saved are the names of the segments, in order, that have a saved index from which they may be taken, stale those
	// whose index does not count.
	saved, stale []string
	// healing is set if the log is marked as being healed.
	healing *healing
	// state is nil if there is no state file: the log is new.
	state *stateFile
}

// look lists the directory and checks that it belongs to this node.
func (l *Log) look() (*found, error) {
	o := &l.options
	names, err := o.FS.List(o.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return &found{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list directory: %w", err)
	}
	f := &found{}
	foreign := ""
	for _, name := range names {
		_, isSegment := parseSegmentName(name)
		segment, isSaved := isSavedName(name)
		switch {
		case isSegment:
			f.segments = append(f.segments, name)
		case isSaved:
			f.saved = append(f.saved, segment)
		case name == segmentTemporary || name == stateTemporary || name == healingTemporary || name == savedTemporary || isStageName(name):
			f.temporaries = append(f.temporaries, name)
		case name == stateName:
			f.state = &stateFile{}
		case name == healingName:
			f.healing = readHealing(o.FS, o.Dir)
		default:
			foreign = name
		}
	}
	switch {
	case f.state != nil:
		if *f.state, err = readState(o.FS, o.Dir, o.Identity); err != nil {
			return nil, fmt.Errorf("read %s: %w", stateName, err)
		}
	case len(f.segments) > 0:
		return nil, &CorruptError{File: stateName, Detail: "there are segments but no state file"}
	case foreign != "":
		return nil, fmt.Errorf("%w: directory holds no log, but %q", ErrFormat, foreign)
	}
	if h := f.healing; h != nil && !o.Heal {
		return nil, fmt.Errorf("%w: it was damaged in file %s, offset %d, index %d: %s", ErrHealing, h.File, h.Offset, h.Index, h.Detail)
	}
	return f, nil
}

// recovered is what readSegments found in the segments.
type recovered struct {
	segments []*segment
	// last is the scan of the last segment.
	last *scan
	// lastGroup is what must be written again, at the offset lastGroupAt.
	lastGroup   []byte
	lastGroupAt int64
	tornBytes   int64
	// sealed: the last segment has its exact length. It may have been sealed, and copied, before the process
	// died that was about to begin the next one.
	sealed bool
	// commit is the commit index of the hard state, or what the log's first entry proves.
	commit uint64
	// damage is the damage that has to be healed. surplus are the names of the segments that have to go.
	damage  *CorruptError
	surplus []string
	// partial: only a part of the last segment is kept.
	partial bool
}

// readSegments reads and verifies all segments. It changes nothing, but saves the index of each once the header of the
// next one has shown that it goes on from there.
func (l *Log) readSegments(f *found) (*recovered, error) {
	r, hs := &recovered{}, HardState{}
	if f.state != nil {
		hs = f.state.current
	}
	tell := l.progress(f)
	for i, name := range f.segments {
		if err := tell(i); err != nil {
			return nil, err
		}
		err := l.readSegment(r, f, name, i == len(f.segments)-1)
		if damage, ok := errors.AsType[*CorruptError](err); ok && l.options.Heal {
			if err = l.salvage(r, f, i, damage); err == nil {
				break
			}
		}
		if err != nil {
			return nil, fmt.Errorf("read segment %s: %w", name, err)
		}
		if !l.options.Heal {
			l.saveIndexesOf(r.segments, hs.Commit, false)
		}
	}
	if len(r.segments) == 0 {
		if hs != (HardState{}) && r.damage == nil && f.healing == nil {
			r.damage = &CorruptError{File: stateName, Offset: stateSectorBytes, Detail: "there is a hard state but no segment"}
		}
		return r, r.undamaged(l.options.Heal)
	}
	r.commit = hs.Commit
	if first := r.segments[0].first; first > 1 {
		// The entries before it were purged, and nothing is purged before this entry is committed (see Purge).
		// Only the commit index may have been lost.
		r.commit = max(r.commit, first)
	}
	if s := r.segments[len(r.segments)-1]; s.last() < r.commit {
		if r.damage == nil && f.healing == nil {
			r.damage = &CorruptError{
				File: s.name(), Offset: s.end, Index: s.last() + 1,
				Detail: fmt.Sprintf("log ends at index %d, but %d is committed", s.last(), r.commit),
			}
		}
		r.commit = s.last()
	}
	return r, r.undamaged(l.options.Heal)
}

// progress returns what is called before each of the segments found, with its position.
func (l *Log) progress(f *found) (tell func(i int) error) {
	if l.options.Progress == nil {
		return func(int) error { return nil }
	}
	before, total := make([]int64, len(f.segments)), int64(0)
	for i, name := range f.segments {
		info, _ := l.options.FS.Stat(filepath.Join(l.options.Dir, name)) // the reading says what is wrong with it
		before[i], total = total, total+info.Size
	}
	return func(i int) error { return l.options.Progress(before[i], total) }
}

// undamaged returns the damage as an error, unless the log is opened to be healed.
func (r *recovered) undamaged(heal bool) error {
	if r.damage == nil || heal {
		return nil
	}
	return r.damage
}

func (l *Log) readSegment(r *recovered, f *found, name string, isLast bool) error {
	o := &l.options
	if _, ok := slices.BinarySearch(f.saved, name); ok && !isLast {
		h, s := readSaved(o.FS, o.Dir, name)
		// Behind the commit index that is on disk, entries may be replaced.
		if s != nil && s.nextIndex(h)-1 <= f.state.current.Commit {
			if err := r.belongs(o, name, h); err != nil {
				return err
			}
			r.add(h, s, true)
			return nil
		}
	}
	h, s, w, err := readSegment(o.FS, o.Dir, name, isLast)
	if err != nil {
		return err
	}
	defer func() { _ = w.file.Close() }()
	if err := r.belongs(o, name, h); err != nil {
		return err
	}
	// A stage was durable before its file became a segment: such a segment has no tail.
	if s.problem != nil && (!isLast || h.staged) {
		return &CorruptError{File: name, Offset: s.end, Index: s.nextIndex(h), Detail: s.problem.Error(), Err: s.problem}
	}
	if isLast && !h.staged {
		if err := r.endTail(h, s, w); err != nil {
			return err
		}
	}
	r.add(h, s, false)
	return nil
}

// add takes a segment that follows those that were read. saved: s is its saved index.
func (r *recovered) add(h *segmentHeader, s *scan, saved bool) {
	r.segments = append(r.segments, &segment{
		segmentHeader: h, index: s.index, end: s.end, chain: s.chain, times: s.times, stage: s.stage,
		saved: saved, unread: saved,
	})
	r.last = s
}

// belongs returns why a segment with this header cannot follow those that were read.
func (r *recovered) belongs(o *Options, name string, h *segmentHeader) error {
	if h.identity != o.Identity {
		return fmt.Errorf("%w: it has identity %x, this node %x", ErrIdentity, h.identity, o.Identity)
	}
	corrupt := func(format string, args ...any) error {
		return &CorruptError{File: name, Detail: fmt.Sprintf(format, args...)}
	}
	if segmentName(h.first) != name {
		return corrupt("header says that it begins at index %d", h.first)
	}
	if !r.fits(h) {
		var number, index, term uint64
		if n := len(r.segments); n > 0 {
			number, index, term = r.segments[n-1].number, r.segments[n-1].last(), r.last.term
		}
		return corrupt("it does not follow the segment before: number %d, index %d, term %d after number %d, index %d, term %d",
			h.number, h.first, h.previousTerm, number, index, term)
	}
	return nil
}

// fits tells whether a segment with this header may follow those that were read. The segment before the first
// one may have been purged; each purged segment had an entry.
func (r *recovered) fits(h *segmentHeader) bool {
	if n := len(r.segments); n > 0 {
		before := r.segments[n-1]
		return h.number == before.number+1 && h.first == before.last()+1 && h.previousTerm == r.last.term && h.follows(r.last.chain)
	}
	if h.number > 1 {
		return h.first >= h.number
	}
	return h.number == 1 && h.first == 1 && h.previousTerm == 0 && h.follows(0)
}

// endTail decides whether the scan of the last segment was ended by its prepared zeros, by a torn tail, or by
// corruption, and reads the last group. A sector that cannot be read is always corruption, even in the zeros:
// what it held is not known.
func (r *recovered) endTail(h *segmentHeader, s *scan, w *window) error {
	// The sector may be readable by now. That does not make it a torn write.
	if errors.Is(s.problem, syscall.EIO) {
		return &CorruptError{File: segmentName(h.first), Offset: s.end, Index: s.nextIndex(h), Detail: s.problem.Error(), Err: s.problem}
	}
	if s.problem != nil {
		durable, nonZeroEnd, err := h.searchBehind(w, s.end)
		// A sector that cannot be read is no torn write: a torn write can be read.
		if errors.Is(err, errDamage) {
			return &CorruptError{
				File: segmentName(h.first), Offset: s.end, Index: s.nextIndex(h),
				Detail: fmt.Sprintf("behind its last valid record: %v", err), Err: err,
			}
		}
		if err != nil {
			return err
		}
		if durable > s.end {
			return &CorruptError{
				File: segmentName(h.first), Offset: s.end, Index: s.nextIndex(h),
				Detail: fmt.Sprintf("%v; the file was durable up to %d", s.problem, durable),
			}
		}
		r.tornBytes = nonZeroEnd - s.end
	}
	r.sealed = s.index.count > 0 && s.end == w.size
	r.lastGroupAt = s.durable
	b, err := w.bytes(s.durable, s.end-s.durable)
	if errors.Is(err, errDamage) {
		return &CorruptError{File: segmentName(h.first), Offset: s.durable, Detail: fmt.Sprintf("read the last group once more: %v", err), Err: err}
	}
	if err != nil {
		return fmt.Errorf("read last group: %w", err)
	}
	r.lastGroup = append([]byte(nil), b...)
	return nil
}

// repair changes the directory to what recovery found, durably, and sets up the log. Nothing was changed
// before.
func (l *Log) repair(f *found, r *recovered) error {
	o := &l.options
	l.removeStale(f)
	for _, name := range f.temporaries {
		if err := o.FS.Remove(filepath.Join(o.Dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) { // an index was saved under that name
			return fmt.Errorf("remove %s: %w", name, err)
		}
	}
	if f.state == nil {
		if err := createState(o.FS, o.Dir, o.Identity); err != nil {
			return fmt.Errorf("create %s: %w", stateName, err)
		}
		state, err := readState(o.FS, o.Dir, o.Identity)
		if err != nil {
			return fmt.Errorf("read %s: %w", stateName, err)
		}
		f.state = &state
	}
	l.state = *f.state
	if err := l.state.open(o.FS, o.Dir); err != nil {
		return fmt.Errorf("write %s: %w", stateName, err)
	}
	l.hs = l.state.current
	l.healing = f.healing
	if r.damage != nil {
		if err := l.beginHealing(r); err != nil {
			return fmt.Errorf("begin healing: %w", err)
		}
	}
	l.hs.Commit = max(l.hs.Commit, r.commit)
	if l.healing != nil {
		l.hs.Commit = r.commit // the part that is left
	}
	if len(r.segments) == 0 {
		if err := l.firstSegment(); err != nil {
			return err
		}
	} else if err := l.repairTail(r); err != nil {
		return fmt.Errorf("repair segment %s: %w", r.segments[len(r.segments)-1].name(), err)
	}
	// A crashed process may have changed names without a sync.
	if err := o.FS.SyncDir(o.Dir); err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return nil
}

// removeStale removes saved indexes that do not count, and those of segments that were purged. No error matters: an index
// that stays is checked at its next use. A log that is opened without Indexed keeps them for the next start.
func (l *Log) removeStale(f *found) {
	o := &l.options
	if !o.Indexed && !o.Heal {
		return
	}
	for _, segment := range f.saved {
		if _, ok := slices.BinarySearch(f.segments, segment); !ok {
			f.stale = append(f.stale, segment)
		}
	}
	for _, segment := range f.stale {
		_ = o.FS.Remove(filepath.Join(o.Dir, savedName(segment)))
	}
}

// firstSegment makes the segment with which a new log begins. If the log begins behind entry 1, the segment's
// number is not 1, as if segments before it were purged.
func (l *Log) firstSegment() error {
	l.writer = writer{gtids: &gtid.Set{}}
	b := l.options.Begin
	if b == nil || b.First <= 1 {
		return l.startSegment(builtinFormatDescription())
	}
	l.writer.gtids = b.GTIDs.Clone()
	if b.FormatDescription == nil {
		return l.startSegment(builtinFormatDescription())
	}
	return l.startSegment(b.FormatDescription)
}

// repairTail cuts the last segment to its valid records and writes the last group again: after a failed
// write-back the group may be only in memory, and the kernel would not try again by itself.
func (l *Log) repairTail(r *recovered) error {
	tail := r.segments[len(r.segments)-1]
	l.setSegments(r.segments)
	if tail.stage != nil {
		l.writer = writer{gtids: r.last.gtids}
		return nil
	}
	f, err := l.options.FS.OpenReadWrite(filepath.Join(l.options.Dir, tail.name()))
	if err != nil {
		return err
	}
	l.writer = writer{file: f, prepared: tail.end, gtids: r.last.gtids}
	if err := cut(f, tail.end, r.lastGroup, r.lastGroupAt); err != nil {
		return err
	}
	if r.tornBytes > 0 {
		l.stats.TornBytes = r.tornBytes
		l.log.Warn("cut torn tail of log", "segment", tail.name(), "offset", tail.end,
			"bytes", r.tornBytes, "last_index", tail.last(), "reason", r.last.problem)
	}
	if r.sealed {
		return l.closeActive()
	}
	return nil
}

func cut(f vfs.File, end int64, lastGroup []byte, lastGroupAt int64) error {
	if len(lastGroup) > 0 {
		if _, err := f.WriteAt(lastGroup, lastGroupAt); err != nil {
			return err
		}
	}
	if err := f.Truncate(end); err != nil {
		return err
	}
	return f.Sync()
}
