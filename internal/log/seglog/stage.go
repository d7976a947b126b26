package seglog

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/entry"
)

const (
	stagePrefix = "stage."

	// stageSyncBytes is the most of a growing stage that is not on disk. When the stage is complete, the rest
	// is synced in some 10 ms, beside the log's own syncs.
	stageSyncBytes = 8 << 20

	// stageSlackBytes is the room that is reserved before a stage's bytes, in addition to the present segment
	// header. It is for the naming entry (its two events have some hundred bytes) and for the growth of
	// PREVIOUS_GTIDS until then (a UUID has 40 bytes, an interval 16). If it is too little, the stage is
	// copied.
	stageSlackBytes = 64 << 10

	// stageAlign: the reserved region's length is a multiple of this. So no page of the bytes, which are synced
	// before, is written to again.
	stageAlign = 4096
)

func stageName(id entry.StageID) string { return stagePrefix + id.String() }

func isStageName(name string) bool {
	var id entry.StageID
	_, err := fmt.Sscanf(strings.TrimPrefix(name, stagePrefix), "%d-%d", &id.Term, &id.Number)
	return err == nil && name == stageName(id)
}

// Stage is a large transaction's bytes on their way beside the log. One goroutine writes it: Write, then Finish
// or Abort.
type Stage struct {
	log *Log
	id  entry.StageID

	// Owned by the goroutine that writes.
	file   vfs.File
	synced int64

	// Guarded by Log.stagesMu. name is the name of the file, empty once the stage is gone. region is where the
	// bytes begin in the file.
	name     string
	region   int64
	bytes    int64
	crc      uint32
	complete bool
	// claimed: a call of Append is about to name the stage.
	claimed bool
}

// CreateStage begins a stage. It returns ErrStageExists if a stage with this id is growing, complete or in the
// log, or ErrFull; then nothing was done. Any goroutine may call it.
func (l *Log) CreateStage(id entry.StageID) (*Stage, error) {
	if err := l.failure(); err != nil {
		return nil, err
	}
	region := align(l.tail().bytes + l.slackBytes)
	l.stagesMu.Lock()
	defer l.stagesMu.Unlock()
	if l.stages == nil {
		return nil, ErrClosed
	}
	if l.stages[id] != nil || l.stagedSegment(id) != nil {
		return nil, fmt.Errorf("%w: %v", ErrStageExists, id)
	}
	s := &Stage{log: l, id: id, name: stageName(id), region: region}
	path := filepath.Join(l.options.Dir, s.name)
	f, err := l.options.FS.Create(path)
	if err == nil {
		// Zeros are written, so that the room is there when the naming entry comes.
		if _, err = f.WriteAt(make([]byte, region), 0); err != nil {
			_ = f.Close()
			err = errors.Join(full(err), l.options.FS.Remove(path))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("create stage %v: %w", id, full(err))
	}
	s.file = f
	l.stages[id] = s
	return s, nil
}

func align(n int64) int64 { return (n + stageAlign - 1) &^ (stageAlign - 1) }

// Write appends to the stage. After ErrFull it may be called again with the rest of p. It returns ErrNoStage
// once the stage was dropped.
func (s *Stage) Write(p []byte) (int, error) {
	if s.file == nil || s.gone() {
		return 0, fmt.Errorf("write stage %v: %w", s.id, ErrNoStage)
	}
	n, err := s.file.WriteAt(p, s.region+s.bytes)
	if err = full(err); err == nil && s.bytes+int64(n)-s.synced >= stageSyncBytes {
		err = s.sync(s.file.SyncData, s.bytes+int64(n))
	}
	s.log.stagesMu.Lock()
	defer s.log.stagesMu.Unlock()
	s.crc = crc32.Update(s.crc, castagnoli(), p[:n])
	s.bytes += int64(n)
	if err != nil {
		return n, fmt.Errorf("write stage %v: %w", s.id, err)
	}
	return n, nil
}

// sync makes the first bytes of the stage durable. An error is terminal, as for the log itself.
func (s *Stage) sync(sync func() error, bytes int64) error {
	if err := s.log.sync(sync); err != nil {
		return s.log.fail(fmt.Errorf("sync stage %v: %w", s.id, err))
	}
	s.synced = bytes
	return nil
}

func (s *Stage) gone() bool {
	s.log.stagesMu.Lock()
	defer s.log.stagesMu.Unlock()
	return s.name == ""
}

// Finish completes the stage. It returns an error unless what was written has this length and CRC32C, and is
// durable. After an error the stage stays until Abort.
func (s *Stage) Finish(bytes uint64, crc uint32) error {
	if s.file == nil || s.gone() {
		return fmt.Errorf("finish stage %v: %w", s.id, ErrNoStage)
	}
	if uint64(s.bytes) != bytes || s.crc != crc {
		return fmt.Errorf("finish stage %v: it has %d bytes with CRC32C %08x, not %d with %08x", s.id, s.bytes, s.crc, bytes, crc)
	}
	if err := s.sync(s.file.Sync, s.bytes); err != nil {
		return err
	}
	f := s.file
	s.file = nil
	if err := f.Close(); err != nil {
		return errors.Join(fmt.Errorf("close stage %v: %w", s.id, err), s.drop())
	}
	s.log.stagesMu.Lock()
	defer s.log.stagesMu.Unlock()
	if s.name == "" {
		return fmt.Errorf("finish stage %v: %w", s.id, ErrNoStage)
	}
	s.complete = true
	s.log.setWhole(s.id, true)
	return nil
}

// Abort removes the stage. After a Finish that succeeded, and when it is called again, it does nothing.
func (s *Stage) Abort() error {
	f := s.file
	if f == nil {
		return nil
	}
	s.file = nil
	err := f.Close()
	return errors.Join(err, s.drop())
}

// drop removes the stage's file, unless it is gone already, or an entry is about to name it.
func (s *Stage) drop() error {
	f, err := s.unlink()
	if f != nil {
		_ = f.Close()
	}
	return err
}

// unlink removes the file's name, and returns the file for its caller to close. To free the blocks of many GiB takes
// seconds. The kernel does that when a file without a name is closed: not in unlink, which holds Log.stagesMu.
func (s *Stage) unlink() (vfs.File, error) {
	s.log.stagesMu.Lock()
	defer s.log.stagesMu.Unlock()
	if s.name == "" || s.claimed {
		return nil, nil
	}
	path := filepath.Join(s.log.options.Dir, s.name)
	s.leave()
	f, err := s.log.options.FS.Open(path)
	if err = errors.Join(err, s.log.options.FS.Remove(path)); err != nil {
		return f, fmt.Errorf("remove stage %v: %w", s.id, err)
	}
	return f, nil
}

// leave marks the stage as gone. Log.stagesMu is held.
func (s *Stage) leave() {
	s.name = ""
	s.log.setWhole(s.id, false)
	delete(s.log.stages, s.id)
}

// HasStage tells whether a stage is complete and durable, or in the log. It never waits for a disk, because
// raft's loop calls it.
func (l *Log) HasStage(id entry.StageID) bool {
	l.wholeMu.Lock()
	whole := l.whole[id]
	l.wholeMu.Unlock()
	// Append puts a stage into the log before it stops being a stage, so this order misses none.
	return whole || l.stagedSegment(id) != nil
}

// setWhole notes whether a stage is complete.
func (l *Log) setWhole(id entry.StageID, whole bool) {
	l.wholeMu.Lock()
	defer l.wholeMu.Unlock()
	if whole {
		l.whole[id] = true
	} else {
		delete(l.whole, id)
	}
}

// stagedSegment returns the segment that holds stage id; nil if there is none. It begins with the newest
// segment, which mostly is the right one.
func (l *Log) stagedSegment(id entry.StageID) *segment {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for i := len(l.segments) - 1; i >= 0; i-- {
		if s := l.segments[i]; s.stage != nil && s.stage.id == id {
			return s
		}
	}
	return nil
}

// stageIDs returns the stages that are not in the log, in order.
func (l *Log) stageIDs() []entry.StageID {
	l.stagesMu.Lock()
	defer l.stagesMu.Unlock()
	return slices.SortedFunc(maps.Keys(l.stages), func(a, b entry.StageID) int {
		return cmp.Or(cmp.Compare(a.Term, b.Term), cmp.Compare(a.Number, b.Number))
	})
}

// DropStages removes the stages that are not in the log and for which keep returns false. The writer of such a
// stage gets ErrNoStage.
func (l *Log) DropStages(keep func(entry.StageID) bool) error {
	var errs error
	for _, id := range l.stageIDs() {
		if keep(id) {
			continue
		}
		l.stagesMu.Lock()
		s := l.stages[id]
		l.stagesMu.Unlock()
		if s != nil {
			errs = errors.Join(errs, s.drop())
		}
	}
	return errs
}

// closeStages forgets all stages. The next Open removes their files.
func (l *Log) closeStages() {
	l.stagesMu.Lock()
	defer l.stagesMu.Unlock()
	for _, s := range l.stages {
		s.leave()
	}
	l.stages = nil
}

// StageReader reads a transaction's bytes; offset 0 is its GTID event. It keeps its file open even if the stage
// is named, purged, or cut off.
type StageReader struct {
	stage *Stage
	file  vfs.File
	at    int64
}

// OpenStage opens a stage for reading that is growing, complete or in the log; else it returns ErrNoStage. Any
// goroutine may call it.
func (l *Log) OpenStage(id entry.StageID) (*StageReader, error) {
	for {
		r, err := l.openStage(id)
		if r != nil || err != nil {
			return r, err
		}
		found := l.stagedSegment(id)
		if found == nil {
			return nil, fmt.Errorf("open stage %v: %w", id, ErrNoStage)
		}
		f, err := l.options.FS.Open(filepath.Join(l.options.Dir, found.name()))
		// A file is removed or replaced only after its segment has left the log.
		if again := l.stagedSegment(id); again == found {
			if err != nil {
				return nil, fmt.Errorf("open stage %v: %w", id, err)
			}
			s := &Stage{log: l, id: id, name: found.name(), bytes: found.stage.bytes, complete: true}
			return &StageReader{s, f, found.stage.at}, nil
		}
		if err == nil {
			_ = f.Close()
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("open stage %v: %w", id, err)
		}
	}
}

// openStage opens a stage that is not in the log; nil if there is none.
func (l *Log) openStage(id entry.StageID) (*StageReader, error) {
	l.stagesMu.Lock()
	defer l.stagesMu.Unlock()
	s := l.stages[id]
	if s == nil {
		return nil, nil
	}
	f, err := l.options.FS.Open(filepath.Join(l.options.Dir, s.name))
	if err != nil {
		return nil, fmt.Errorf("open stage %v: %w", id, err)
	}
	return &StageReader{s, f, s.region}, nil
}

// Bytes returns how many bytes of the transaction can be read, and whether these are all.
func (r *StageReader) Bytes() (n int64, complete bool) {
	r.stage.log.stagesMu.Lock()
	defer r.stage.log.stagesMu.Unlock()
	return r.stage.bytes, r.stage.complete
}

// ReadAt implements io.ReaderAt. Behind the bytes that there are it returns io.EOF. If the stage was removed
// before it was complete, it returns ErrNoStage.
func (r *StageReader) ReadAt(p []byte, offset int64) (int, error) {
	r.stage.log.stagesMu.Lock()
	bytes, gone := r.stage.bytes, r.stage.name == "" && !r.stage.complete
	r.stage.log.stagesMu.Unlock()
	switch {
	case gone:
		return 0, fmt.Errorf("read stage %v: %w", r.stage.id, ErrNoStage)
	case offset < 0 || offset >= bytes:
		return 0, io.EOF
	}
	short := int64(len(p)) > bytes-offset
	if short {
		p = p[:bytes-offset]
	}
	n, err := r.file.ReadAt(p, r.at+offset)
	if err == nil && short {
		err = io.EOF
	}
	return n, err
}

// Damaged is called by a reader that has found the bytes damaged, as err says. It returns the *CorruptError with which
// the process must end; the next Open reads all segments.
func (r *StageReader) Damaged(err error) error {
	if s := r.stage.log.stagedSegment(r.stage.id); s != nil {
		r.stage.log.Doubt(s.name())
	}
	return &CorruptError{File: "stage " + r.stage.id.String(), Detail: err.Error()}
}

// Close closes the reader's file.
func (r *StageReader) Close() error { return r.file.Close() }
