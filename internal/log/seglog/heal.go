package seglog

import (
	"encoding/json"
	"errors"
	"fmt"
	iofs "io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/sys/invariant"
)

// The marker of a log that is being healed. Part of the format.
const (
	healingName      = "healing"
	healingTemporary = "healing.tmp"
	healingFormat    = 1

	// asideSuffix marks files that are set aside while a log is healed, as SEGMENT.N.damaged; asideMax bounds
	// N.
	asideSuffix = ".damaged"
	asideMax    = 1000
)

// ErrHealing is returned by Open, without Options.Heal, for a log whose healing was begun and not finished: it
// lacks entries that it had promised to keep.
var ErrHealing = errors.New("log is being healed")

// Healing says what is wrong with a log that was opened with Options.Heal.
type Healing struct {
	// Damage is the damage that was found when the healing was begun.
	Damage CorruptError
	// Promised is the hard state that the node stored last. Entries that it had acknowledged in Promised.Term,
	// or before, may be missing.
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

// Healing says what is missing in a log that was damaged, and was cut before the damage. Such a log may take no
// part in Raft: append what is missing, then call FinishHealing. For any other log the result is zero.
func (l *Log) Healing() Healing {
	if l.healing == nil {
		return Healing{}
	}
	h := l.healing
	return Healing{CorruptError{File: h.File, Offset: h.Offset, Index: h.Index, Detail: h.Detail}, l.state.current}
}

// FinishHealing says that the log holds everything that it had promised to keep, unless that was replaced
// since, and stores hs. Only the goroutine of Append may call it.
func (l *Log) FinishHealing(hs HardState) error {
	invariant.Check(l.healing != nil && hs.Commit >= l.state.current.Commit, "I7",
		"healing ends at %+v, promised was %+v", hs, l.state.current)
	if err := l.Append(nil, &hs); err != nil {
		return err
	}
	if err := l.removeAside(); err != nil {
		return l.fail(err)
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

// readHealing reads the marker. A marker that cannot be read counts as well: its content is only for people.
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

// salvage notes damage in the segment at position i of the names found, and keeps what is whole before it. If
// nothing whole is before it and the log was purged, salvage returns damage itself: how the log began cannot be
// known then.
func (l *Log) salvage(r *recovered, f *found, i int, damage *CorruptError) error {
	r.damage, r.surplus = damage, f.segments[i:]
	h, s, err := l.beforeDamage(f.segments[i])
	if err == nil && segmentName(h.first) == f.segments[i] && r.fits(h) && !h.staged && s.index.count > 0 {
		r.segments = append(r.segments, &segment{segmentHeader: h, index: s.index, end: s.end, chain: s.chain, times: s.times})
		r.last, r.surplus, r.partial = s, f.segments[i+1:], true
		return nil
	}
	if i == 0 {
		if first, _ := parseSegmentName(f.segments[0]); first > 1 {
			return damage
		}
		return nil
	}
	// The segment before the damage is the last one now, and may have been copied.
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

// beginHealing notes the damage durably, before anything is changed. Then it sets aside the segments behind the
// damage, newest first: whole entries in them may be the only ones that are left, if no peer comes back. If a
// part of a segment is kept, a copy of the whole segment is set aside.
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
		aside, err := l.nameAside(r.surplus[i])
		if err != nil {
			return err
		}
		if err := o.FS.Rename(filepath.Join(o.Dir, r.surplus[i]), aside); err != nil {
			return fmt.Errorf("set %s aside: %w", r.surplus[i], err)
		}
		if err := o.FS.SyncDir(o.Dir); err != nil {
			return fmt.Errorf("sync directory: %w", err)
		}
	}
	if r.partial {
		if err := l.copyAside(r.segments[len(r.segments)-1].name()); err != nil {
			return err
		}
	}
	return nil
}

// nameAside returns a name that no file set aside has yet. Each healing that begins again adds some files.
func (l *Log) nameAside(name string) (string, error) {
	for n := range asideMax {
		path := filepath.Join(l.options.Dir, fmt.Sprintf("%s.%d%s", name, n, asideSuffix))
		if _, err := l.options.FS.Stat(path); errors.Is(err, iofs.ErrNotExist) {
			return path, nil
		} else if err != nil {
			return "", fmt.Errorf("set %s aside: %w", name, err)
		}
	}
	return "", fmt.Errorf("set %s aside: there are %d of it", name, asideMax)
}

// copyAside copies a segment that is about to be cut. Parts that the disk cannot read are zeros in the copy.
func (l *Log) copyAside(name string) (err error) {
	o := &l.options
	path, err := l.nameAside(name)
	if err != nil {
		return err
	}
	from, err := o.FS.Open(filepath.Join(o.Dir, name))
	if err != nil {
		return fmt.Errorf("copy %s aside: %w", name, err)
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	to, err := o.FS.Create(path)
	if err != nil {
		return fmt.Errorf("copy %s aside: %w", name, err)
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	size, err := from.Size()
	for b, at := make([]byte, windowBytes), int64(0); err == nil && at < size; at += windowBytes {
		part := b[:min(windowBytes, size-at)]
		if n, readErr := from.ReadAt(part, at); n < len(part) {
			if !errors.Is(readErr, syscall.EIO) {
				err = readErr
				break
			}
			clear(part[n:])
		}
		_, err = to.WriteAt(part, at)
	}
	if err == nil {
		err = to.Sync()
	}
	if err == nil {
		err = o.FS.SyncDir(o.Dir)
	}
	if err != nil {
		return fmt.Errorf("copy %s aside: %w", name, err)
	}
	return nil
}

// removeAside removes the files that were set aside: the log has all their entries again.
func (l *Log) removeAside() error {
	names, err := l.options.FS.List(l.options.Dir)
	if err != nil {
		return fmt.Errorf("list directory: %w", err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, asideSuffix) {
			continue
		}
		if err := l.options.FS.Remove(filepath.Join(l.options.Dir, name)); err != nil {
			return fmt.Errorf("remove %s: %w", name, err)
		}
	}
	return nil
}
