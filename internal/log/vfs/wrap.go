package vfs

import (
	"io"
	iofs "io/fs"
	"sync/atomic"
	"time"
)

// Op names a call of FS or File for a Hook.
type Op string

// The calls that hooks see. Close, Size, Has and Uncache are left out: they cannot fail in a way that matters.
const (
	OpCreate        Op = "create"
	OpOpen          Op = "open"
	OpOpenReadWrite Op = "open-read-write"
	OpRemove        Op = "remove"
	OpRemoveAll     Op = "remove-all"
	OpRename        Op = "rename" // the path is the new name
	OpLink          Op = "link"   // the path is the new name
	OpMkdirAll      Op = "mkdir-all"
	OpList          Op = "list"
	OpStat          Op = "stat"
	OpSyncDir       Op = "sync-dir"
	OpLock          Op = "lock"
	OpRead          Op = "read"
	OpWrite         Op = "write"
	OpTruncate      Op = "truncate"
	OpSync          Op = "sync"
	OpSyncData      Op = "sync-data"
)

// Changes reports whether the call changes what is in memory or on the disk.
func (op Op) Changes() bool {
	switch op {
	case OpOpen, OpOpenReadWrite, OpList, OpStat, OpLock, OpRead:
		return false
	}
	return true
}

// Hook is called before each call. If it returns an error, the call fails with that error and does nothing. A
// hook may block. Several goroutines may call it at once.
type Hook func(op Op, path string) error

// FailNth returns a hook that fails only one call: the nth for which match returns true, counted from 1.
func FailNth(n int64, err error, match func(op Op, path string) bool) Hook {
	var seen atomic.Int64
	return func(op Op, path string) error {
		if match(op, path) && seen.Add(1) == n {
			return err
		}
		return nil
	}
}

// Latency returns a hook that delays each call by the time that delay returns.
func Latency(delay func(op Op, path string) time.Duration) Hook {
	return func(op Op, path string) error {
		time.Sleep(delay(op, path))
		return nil
	}
}

// Wrap returns base with hook before each call, also before the calls of its files.
func Wrap(base FS, hook Hook) FS { return &wrapFS{base: base, hook: hook} }

type wrapFS struct {
	base FS
	hook Hook
}

func (w *wrapFS) as(mode iofs.FileMode, owner *Owner) FS {
	return Wrap(As(w.base, mode, owner), w.hook)
}

type wrapFile struct {
	File
	path string
	hook Hook
}

func (w *wrapFS) open(op Op, name string, open func(string) (File, error)) (File, error) {
	if err := w.hook(op, name); err != nil {
		return nil, err
	}
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	return &wrapFile{File: f, path: name, hook: w.hook}, nil
}

func (w *wrapFS) call(op Op, name string, do func(string) error) error {
	if err := w.hook(op, name); err != nil {
		return err
	}
	return do(name)
}

// Create implements FS.
func (w *wrapFS) Create(name string) (File, error) { return w.open(OpCreate, name, w.base.Create) }

// Open implements FS.
func (w *wrapFS) Open(name string) (File, error) { return w.open(OpOpen, name, w.base.Open) }

// OpenReadWrite implements FS.
func (w *wrapFS) OpenReadWrite(name string) (File, error) {
	return w.open(OpOpenReadWrite, name, w.base.OpenReadWrite)
}

// Remove implements FS.
func (w *wrapFS) Remove(name string) error { return w.call(OpRemove, name, w.base.Remove) }

// RemoveAll implements FS.
func (w *wrapFS) RemoveAll(name string) error { return w.call(OpRemoveAll, name, w.base.RemoveAll) }

// Rename implements FS.
func (w *wrapFS) Rename(oldname, newname string) error {
	if err := w.hook(OpRename, newname); err != nil {
		return err
	}
	return w.base.Rename(oldname, newname)
}

// Link implements FS.
func (w *wrapFS) Link(oldname, newname string) error {
	if err := w.hook(OpLink, newname); err != nil {
		return err
	}
	return w.base.Link(oldname, newname)
}

// MkdirAll implements FS.
func (w *wrapFS) MkdirAll(dir string) error { return w.call(OpMkdirAll, dir, w.base.MkdirAll) }

// List implements FS.
func (w *wrapFS) List(dir string) ([]string, error) {
	if err := w.hook(OpList, dir); err != nil {
		return nil, err
	}
	return w.base.List(dir)
}

// Stat implements FS.
func (w *wrapFS) Stat(name string) (Info, error) {
	if err := w.hook(OpStat, name); err != nil {
		return Info{}, err
	}
	return w.base.Stat(name)
}

// SyncDir implements FS.
func (w *wrapFS) SyncDir(dir string) error { return w.call(OpSyncDir, dir, w.base.SyncDir) }

// Lock implements FS.
func (w *wrapFS) Lock(dir string) (io.Closer, error) {
	if err := w.hook(OpLock, dir); err != nil {
		return nil, err
	}
	return w.base.Lock(dir)
}

// ReadAt implements File.
func (f *wrapFile) ReadAt(p []byte, offset int64) (int, error) {
	if err := f.hook(OpRead, f.path); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, offset)
}

// WriteAt implements File.
func (f *wrapFile) WriteAt(p []byte, offset int64) (int, error) {
	if err := f.hook(OpWrite, f.path); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, offset)
}

// Truncate implements File.
func (f *wrapFile) Truncate(size int64) error {
	if err := f.hook(OpTruncate, f.path); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

// Sync implements File.
func (f *wrapFile) Sync() error {
	if err := f.hook(OpSync, f.path); err != nil {
		return err
	}
	return f.File.Sync()
}

// SyncData implements File.
func (f *wrapFile) SyncData() error {
	if err := f.hook(OpSyncData, f.path); err != nil {
		return err
	}
	return f.File.SyncData()
}
