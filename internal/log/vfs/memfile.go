package vfs

import (
	"io"
	"io/fs"
	"slices"
)

// memFile is a handle of a file in a Mem. It stays usable when its name is
// removed, as on Unix.
type memFile struct {
	fs       *Mem
	name     string
	inode    *memInode
	writable bool
	closed   bool
}

// enter locks the file system, if the handle allows the call.
func (f *memFile) enter(op string, write bool) error {
	f.fs.mu.Lock()
	switch {
	case f.closed:
		f.fs.mu.Unlock()
		return &fs.PathError{Op: op, Path: f.name, Err: fs.ErrClosed}
	case write && !f.writable:
		f.fs.mu.Unlock()
		return &fs.PathError{Op: op, Path: f.name, Err: fs.ErrPermission}
	}
	return nil
}

// ReadAt implements File.
func (f *memFile) ReadAt(p []byte, offset int64) (int, error) {
	if err := f.enter("read", false); err != nil {
		return 0, err
	}
	defer f.fs.mu.Unlock()
	if offset < 0 {
		return 0, &fs.PathError{Op: "read", Path: f.name, Err: fs.ErrInvalid}
	}
	n := 0
	if offset < int64(len(f.inode.data)) {
		n = copy(p, f.inode.data[offset:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements File.
func (f *memFile) WriteAt(p []byte, offset int64) (int, error) {
	if err := f.enter("write", true); err != nil {
		return 0, err
	}
	defer f.fs.mu.Unlock()
	if offset < 0 {
		return 0, &fs.PathError{Op: "write", Path: f.name, Err: fs.ErrInvalid}
	}
	if len(p) > 0 {
		f.inode.change(fileOp{offset, slices.Clone(p)})
	}
	return len(p), nil
}

// Truncate implements File.
func (f *memFile) Truncate(size int64) error {
	if err := f.enter("truncate", true); err != nil {
		return err
	}
	defer f.fs.mu.Unlock()
	if size < 0 {
		return &fs.PathError{Op: "truncate", Path: f.name, Err: fs.ErrInvalid}
	}
	f.inode.change(fileOp{offset: size})
	return nil
}

// Sync implements File.
func (f *memFile) Sync() error { return f.sync(true) }

// SyncData implements File. A truncation that shortened the file, and everything after it, stays not durable.
// The contract allows that, so code that relies on more fails in tests.
func (f *memFile) SyncData() error { return f.sync(false) }

func (f *memFile) sync(metadata bool) error {
	if err := f.enter("sync", false); err != nil {
		return err
	}
	defer f.fs.mu.Unlock()
	n := f.inode
	durable := len(n.pending)
	if !metadata {
		size := int64(len(n.durable))
		for i, op := range n.pending {
			if op.data == nil && op.offset < size {
				durable = i
				break
			}
			size = max(size, op.offset+int64(len(op.data)))
		}
	}
	for _, op := range n.pending[:durable] {
		n.durable = op.apply(n.durable)
	}
	n.pending = slices.Delete(n.pending, 0, durable)
	return nil
}

// Uncache implements File. It does nothing: there is no disk below the memory.
func (f *memFile) Uncache(int64, int64) {}

// Size implements File.
func (f *memFile) Size() (int64, error) {
	if err := f.enter("stat", false); err != nil {
		return 0, err
	}
	defer f.fs.mu.Unlock()
	return int64(len(f.inode.data)), nil
}

// Has implements File.
func (f *memFile) Has(name string) (bool, error) {
	there, err := f.fs.open("stat", name, false)
	if err != nil {
		return false, err
	}
	return there.(*memFile).inode == f.inode, there.Close()
}

// Close implements File.
func (f *memFile) Close() error {
	if err := f.enter("close", false); err != nil {
		return err
	}
	f.closed = true
	f.fs.mu.Unlock()
	return nil
}
