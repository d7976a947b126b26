package seglog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/sys/clock"
)

// Saved indexes. Part of the format (docs/formats.md, "Saved index").
const (
	savedMagic     = "QIDX"
	savedVersion   = 1
	savedPrefix    = "index."
	savedTemporary = "index.tmp"
	savedHeadBytes = 124
	pointSaved     = 16
	termRunSaved   = 12
	// savedBytesMax bounds what Open reads of such a file. A segment of 1 GiB has 256 KiB of points. A segment
	// whose index is larger is read by each Open.
	savedBytesMax = 1 << 20

	// checkBytes is how much Check reads at once: what a commit may have to wait for at the disk. checkBytesPerSecond
	// is how fast it reads at most: 16 GiB take nine minutes.
	checkBytes          = 256 << 10
	checkBytesPerSecond = 32 << 20
	// checkAttempts is how often Check reads a segment that it finds damaged. checkAgain is the pause in between if the
	// disk could not read: it may be able to later. checkSoon is the pause if the bytes are wrong.
	checkAttempts = 3
	checkAgain    = 20 * time.Second
	checkSoon     = time.Second
)

// savedName returns the name of a segment's saved index.
func savedName(segment string) string {
	return savedPrefix + strings.TrimPrefix(segment, segmentPrefix)
}

// isSavedName tells whether a file is the saved index of a segment, and of which.
func isSavedName(name string) (segment string, ok bool) {
	digits, ok := strings.CutPrefix(name, savedPrefix)
	if !ok {
		return "", false
	}
	_, ok = parseSegmentName(segmentPrefix + digits)
	return segmentPrefix + digits, ok
}

// encodeSaved returns the saved index of a segment that will not change any more.
func encodeSaved(s *segment) []byte {
	b := append(make([]byte, 0, savedHeadBytes+len(s.index.points)*pointSaved+len(s.index.terms)*termRunSaved+4), savedMagic...)
	b = binary.LittleEndian.AppendUint16(b, savedVersion)
	b = binary.LittleEndian.AppendUint16(b, recordVersion)
	b = append(b, s.identity[:]...)
	span := stageSpan{}
	if s.stage != nil {
		span = *s.stage
	}
	for _, v := range []uint64{
		s.first, uint64(s.end), uint64(s.times.first), uint64(s.times.last),
		span.id.Term, span.id.Number, uint64(span.at), uint64(span.bytes),
	} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	for _, v := range []uint32{s.seed, s.chain, span.crc, s.index.count, uint32(len(s.index.points)), uint32(len(s.index.terms))} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	// 12 bytes are left for later versions.
	b = append(b, make([]byte, savedHeadBytes-len(b))...)
	for _, p := range s.index.points {
		b = binary.LittleEndian.AppendUint64(b, uint64(p.offset))
		b = binary.LittleEndian.AppendUint32(b, p.ordinal)
		b = binary.LittleEndian.AppendUint32(b, p.chain)
	}
	for _, t := range s.index.terms {
		b = binary.LittleEndian.AppendUint64(b, t.term)
		b = binary.LittleEndian.AppendUint32(b, t.ordinal)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli()))
}

// decodeSaved returns what a scan of the segment with header h and size bytes would find, by its saved index; nil
// if the bytes are not that index. Only the header of the next segment shows that the segment still has this
// content: it continues the chain.
func decodeSaved(b []byte, h *segmentHeader, size int64) *scan {
	if len(b) < savedHeadBytes+4 || string(b[:4]) != savedMagic || binary.LittleEndian.Uint16(b[4:]) != savedVersion ||
		binary.LittleEndian.Uint16(b[6:]) > recordVersion || !crcValid(b, len(b)-4) || [16]byte(b[8:]) != h.identity {
		return nil
	}
	u64 := func(i int) uint64 { return binary.LittleEndian.Uint64(b[24+8*i:]) }
	u32 := func(i int) uint32 { return binary.LittleEndian.Uint32(b[88+4*i:]) }
	points, terms := int64(u32(4)), int64(u32(5))
	if u64(0) != h.first || u64(1) != uint64(size) || u32(0) != h.seed || points == 0 || terms == 0 ||
		int64(len(b)) != savedHeadBytes+points*pointSaved+terms*termRunSaved+4 {
		return nil
	}
	s := &scan{
		index: sparseIndex{count: u32(3), points: make([]point, points), terms: make([]termRun, terms)},
		end:   size, chain: u32(1), times: timeSpan{int64(u64(2)), int64(u64(3))},
	}
	if h.staged {
		s.stage = &stageSpan{at: int64(u64(6)), bytes: int64(u64(7)), crc: u32(2)}
		s.stage.id.Term, s.stage.id.Number = u64(4), u64(5)
	}
	rest := b[savedHeadBytes:]
	for i := range s.index.points {
		s.index.points[i] = point{int64(binary.LittleEndian.Uint64(rest)), binary.LittleEndian.Uint32(rest[8:]), binary.LittleEndian.Uint32(rest[12:])}
		rest = rest[pointSaved:]
	}
	for i := range s.index.terms {
		s.index.terms[i] = termRun{binary.LittleEndian.Uint64(rest), binary.LittleEndian.Uint32(rest[8:])}
		rest = rest[termRunSaved:]
	}
	s.term = s.index.terms[terms-1].term
	return s
}

// readSaved returns the header of a segment and what its saved index says of the rest; nil if there is none that fits.
func readSaved(fsys vfs.FS, dir, name string) (*segmentHeader, *scan) {
	f, err := fsys.Open(filepath.Join(dir, name))
	if err != nil {
		return nil, nil
	}
	defer func() { _ = f.Close() }()
	w, err := newWindow(f)
	if err != nil {
		return nil, nil
	}
	w.ahead = pointBytes // more is hardly in a header
	h, err := parseSegmentHeader(w)
	if err != nil {
		return nil, nil
	}
	saved, err := fsys.Open(filepath.Join(dir, savedName(name)))
	if err != nil {
		return nil, nil
	}
	defer func() { _ = saved.Close() }()
	n, err := saved.Size()
	if err != nil || n > savedBytesMax {
		return nil, nil
	}
	b := make([]byte, n)
	if got, _ := saved.ReadAt(b, 0); int64(got) < n {
		return nil, nil
	}
	return h, decodeSaved(b, h, w.size)
}

// saveIndexes saves the index of each segment that will not change any more and has none; all: also before a segment
// that has one. Nothing relies on such a file: it is not synced, and a disk that takes none is only noted.
func (l *Log) saveIndexes(all bool) {
	l.mu.RLock()
	segments, commit := l.segments, l.hs.Commit
	l.mu.RUnlock()
	l.saveIndexesOf(segments, commit, all)
}

// saveIndexesOf is saveIndexes for these segments. commit is on disk.
func (l *Log) saveIndexesOf(segments []*segment, commit uint64, all bool) {
	if !l.options.Indexed {
		return
	}
	for i := len(segments) - 2; i >= 0; i-- {
		s := segments[i]
		if s.empty() || s.last() > commit {
			continue
		}
		if !l.mark(s) {
			if all {
				continue
			}
			return // so are all before it, or the next Open saves them
		}
		if err := l.saveIndex(s); err != nil {
			l.log.Debug("index of a segment not saved", "segment", s.name(), "error", err)
		}
	}
}

// mark notes that a segment's index is saved, or cannot be: the segment may have been purged, or the disk may be full for
// long. It returns false if that was noted before.
func (l *Log) mark(s *segment) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	news, s.saved = !s.saved, true
	return news
}

func (l *Log) saveIndex(s *segment) error {
	b := encodeSaved(s)
	if len(b) > savedBytesMax {
		return nil
	}
	o := &l.options
	temporary := filepath.Join(o.Dir, savedTemporary)
	f, err := o.FS.Create(temporary)
	if err == nil {
		_, err = f.WriteAt(b, 0)
		err = errors.Join(err, f.Close())
		if err == nil {
			err = o.FS.Rename(temporary, filepath.Join(o.Dir, savedName(s.name())))
		}
	}
	if err != nil {
		return errors.Join(err, o.FS.Remove(temporary))
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	if s.doubted { // meanwhile
		_ = o.FS.Remove(filepath.Join(o.Dir, savedName(s.name())))
	}
	return nil
}

// Doubt removes the saved index of a segment that turned out to be damaged, so that the next Open reads it, and no index
// is saved of it any more. If the file cannot be removed, that damage is found again. Who reads an entry that is damaged
// need not call it.
func (l *Log) Doubt(name string) {
	l.mu.Lock()
	for _, s := range l.segments {
		if s.name() == name {
			s.saved, s.doubted = true, true
		}
	}
	l.mu.Unlock()
	err := l.options.FS.Remove(filepath.Join(l.options.Dir, savedName(name)))
	l.log.Error("a segment of the log is damaged: the next start reads it", "segment", name, "index_removed", err == nil)
}

// Check reads and verifies the segments that Open took from their saved indexes, slowly, the newest first. It returns
// a *CorruptError for the first damage, and nil once all are read or ctx has ended. The next Open still takes that segment
// from its index, unless Doubt is called. Check must end before Close is called.
func (l *Log) Check(ctx context.Context, c clock.Clock) error {
	l.mu.RLock()
	segments := l.segments
	l.mu.RUnlock()
	checked, skipped := 0, 0
	for _, s := range slices.Backward(segments) {
		if !s.unread {
			continue
		}
		err := l.checkPatiently(ctx, c, s)
		switch {
		case errors.Is(err, ErrCorrupt):
			return fmt.Errorf("check the log in the background: %w", err)
		case ctx.Err() != nil:
			return nil
		case err != nil:
			l.log.Warn("a segment of the log was not checked", "segment", s.name(), "error", err)
			skipped++
		default:
			checked++
		}
	}
	if checked+skipped > 0 {
		l.log.Info("the log's older segments were checked: no damage", "segments", checked, "not_checked", skipped)
	}
	return nil
}

// checkPatiently checks a segment again if it seems to be damaged: the disk may only have failed to read it.
func (l *Log) checkPatiently(ctx context.Context, c clock.Clock, s *segment) error {
	for attempt := 1; ; attempt++ {
		err := l.checkSegment(ctx, c, s)
		switch {
		case ctx.Err() != nil || !l.lists(s): // or it was purged meanwhile
			return nil
		case err == nil || attempt == checkAttempts:
			return err
		}
		l.log.Warn("a segment of the log cannot be read: trying again", "segment", s.name(), "attempt", attempt, "of", checkAttempts, "error", err)
		pause := checkSoon
		if errors.Is(err, syscall.EIO) {
			pause = checkAgain
		}
		_ = clock.Sleep(ctx, c, pause)
	}
}

func (l *Log) checkSegment(ctx context.Context, c clock.Clock, s *segment) error {
	f, err := l.options.FS.Open(filepath.Join(l.options.Dir, s.name()))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	w, err := newWindow(&slowFile{f, ctx, c})
	if err != nil {
		return err
	}
	corrupt := func(at int64, index uint64, err error) error {
		return &CorruptError{File: s.name(), Offset: at, Index: index, Detail: err.Error(), Err: err}
	}
	h, err := parseSegmentHeader(w)
	if errors.Is(err, errDamage) {
		return corrupt(0, s.first, err)
	}
	if err != nil {
		return err
	}
	found, err := h.scanRecords(w, w.size, false)
	switch {
	case err != nil:
		return err
	case found.problem != nil:
		return corrupt(found.end, found.nextIndex(h), found.problem)
	case found.end != s.end || found.chain != s.chain || found.index.count != s.index.count:
		return corrupt(found.end, found.nextIndex(h), fmt.Errorf("%w: its saved index says %d entries in %d bytes", errDamage, s.index.count, s.end))
	}
	return nil
}

// slowFile is read in the background: in small parts, with pauses, and the page cache drops what was read.
type slowFile struct {
	vfs.File
	ctx   context.Context
	clock clock.Clock
}

// ReadAt implements io.ReaderAt.
func (f *slowFile) ReadAt(p []byte, offset int64) (n int, err error) {
	for n < len(p) && err == nil {
		part, got := p[n:min(n+checkBytes, len(p))], 0
		got, err = f.File.ReadAt(part, offset+int64(n))
		f.Uncache(offset+int64(n), offset+int64(n+got))
		n += got
		if err == nil {
			err = clock.Sleep(f.ctx, f.clock, time.Duration(got)*time.Second/checkBytesPerSecond)
		}
	}
	return n, err
}
