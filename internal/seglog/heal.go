package seglog

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/quorate/quorate/internal/invariant"
	"github.com/quorate/quorate/internal/vfs"
)

// The marker of a log that is being healed. Part of the format.
const (
	healingName      = "healing"
	healingTemporary = "healing.tmp"
	healingFormat    = 1
)

// ErrHealing is returned by Open, without Options.Heal, for a log whose healing
// was begun and not finished: it lacks entries that it had promised to keep.
var ErrHealing = errors.New("seglog: log is being healed")

// Healing says what is wrong with a log that was opened with Options.Heal.
type Healing struct {
	// Damage is what was found when the healing was begun.
	Damage CorruptError
	// Promised is the hard state as the node stored it last. Entries that it had
	// acknowledged in Promised.Term, or before, may be missing.
	Promised HardState
}

// healing is the content of the marker.
type healing struct {
	Format int    `json:"format"`
	File   string `json:"file"`
	Offset int64  `json:"offset"`
	Index  uint64 `json:"index"`
	Detail string `json:"detail"`
}

// Healing reports whether the log lacks what it once had, and so may take no
// part in Raft: it was damaged, and was cut before the damage. Append what is
// missing, then call FinishHealing.
func (l *Log) Healing() (Healing, bool) {
	if l.healing == nil {
		return Healing{}, false
	}
	h := l.healing
	return Healing{CorruptError{File: h.File, Offset: h.Offset, Index: h.Index, Detail: h.Detail}, l.state.current}, true
}

// FinishHealing says that the log holds everything that it had promised to keep
// and that was not replaced since, and stores hs. It belongs to the goroutine of
// Append.
func (l *Log) FinishHealing(hs HardState) error {
	invariant.Check(l.healing != nil && hs.Commit >= l.state.current.Commit, "I7",
		"healing ends at %+v, promised was %+v", hs, l.state.current)
	if err := l.Append(nil, &hs); err != nil {
		return err
	}
	if err := l.options.FS.Remove(filepath.Join(l.options.Dir, healingName)); err != nil {
		return l.fail(fmt.Errorf("remove %s: %w", healingName, err))
	}
	if err := l.sync(func() error { return l.options.FS.SyncDir(l.options.Dir) }); err != nil {
		return l.fail(fmt.Errorf("sync directory: %w", err))
	}
	l.healing = nil
	return nil
}

// readHealing reads the marker. One that cannot be read is there all the same:
// what it says is for people.
func readHealing(fs vfs.FS, dir string) *healing {
	h := &healing{}
	f, err := fs.Open(filepath.Join(dir, healingName))
	if err == nil {
		defer func() { _ = f.Close() }()
		size, _ := f.Size()
		b := make([]byte, min(size, 64<<10))
		if _, err = f.ReadAt(b, 0); err == nil {
			err = json.Unmarshal(b, h)
		}
	}
	if err != nil {
		h.Detail = fmt.Sprintf("%s cannot be read: %v", healingName, err)
	}
	return h
}

// salvage takes note of damage in the segment at position i of the names found,
// and keeps what is whole before it. It returns damage itself where nothing is:
// such a log was purged, and what it began with cannot be known.
func (l *Log) salvage(r *recovered, f *found, i int, damage *CorruptError) error {
	r.damage, r.surplus = damage, f.segments[i:]
	h, s, err := l.beforeDamage(f.segments[i])
	if err == nil && segmentName(h.first) == f.segments[i] && r.fits(h) && !h.staged && s.index.count > 0 {
		r.segments = append(r.segments, &segment{segmentHeader: h, index: s.index, end: s.end, chain: s.chain, times: s.times})
		r.last, r.surplus = s, f.segments[i+1:]
		return nil
	}
	if i == 0 {
		if first, _ := parseSegmentName(f.segments[0]); first > 1 {
			return damage
		}
		return nil
	}
	// The segment before is the last one now, and may have been copied.
	r.sealed = true
	_, r.last, err = l.beforeDamage(f.segments[i-1])
	return err
}

// beforeDamage reads a segment up to the damage in it, or to its end.
func (l *Log) beforeDamage(name string) (*segmentHeader, *scan, error) {
	h, s, w, err := readSegment(l.options.FS, l.options.Dir, name, true)
	if err != nil {
		return nil, nil, err
	}
	return h, s, w.file.Close()
}

// beginHealing notes the damage durably, before anything is removed, and then
// removes the segments behind it, newest first.
func (l *Log) beginHealing(r *recovered) error {
	o := &l.options
	d := r.damage
	h := &healing{healingFormat, d.File, d.Offset, d.Index, d.Detail}
	b, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("encode %s: %w", healingName, err)
	}
	if err := createDurably(o.FS, o.Dir, healingTemporary, healingName, b); err != nil {
		return fmt.Errorf("create %s: %w", healingName, err)
	}
	l.healing = h
	for i := len(r.surplus) - 1; i >= 0; i-- {
		if err := o.FS.Remove(filepath.Join(o.Dir, r.surplus[i])); err != nil {
			return fmt.Errorf("remove %s: %w", r.surplus[i], err)
		}
		if err := o.FS.SyncDir(o.Dir); err != nil {
			return fmt.Errorf("sync directory: %w", err)
		}
	}
	return nil
}
