package repository

import (
	"context"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/quorate/quorate/internal/log/vfs"
)

// directory is a repository in a directory.
type directory struct {
	fs   vfs.FS
	path string
	// uid and gid are the directory's owner, if root writes for another account; -1 = files keep their
	// owner.
	uid, gid int
}

// NewDirectory returns the repository in a directory, which must exist.
func NewDirectory(fs vfs.FS, path string) (Store, error) {
	info, err := fs.Stat(path)
	if err == nil && !info.Dir {
		err = errors.New("it is no directory")
	}
	if err != nil {
		return nil, fmt.Errorf("open the repository %s (make it, or mount its disk): %w", path, err)
	}
	d := directory{fs, path, -1, -1}
	if _, real := fs.(vfs.OS); real && os.Geteuid() == 0 {
		if info, err := os.Stat(path); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				d.uid, d.gid = int(st.Uid), int(st.Gid)
			}
		}
	}
	return d, nil
}

// Put implements Store.
func (d directory) Put(ctx context.Context, name string, fill func(io.Writer) error) (err error) {
	if err := checkName(name); err != nil {
		return err
	}
	if _, err := d.Parts(ctx, true); err != nil {
		return err
	}
	f, part, err := d.create(name)
	if err != nil {
		return fmt.Errorf("write an object: %w", err)
	}
	w := &fileWriter{ctx: ctx, f: f}
	if d.uid >= 0 {
		err = os.Lchown(part, d.uid, d.gid)
	}
	if err == nil {
		err = fill(w)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", part, err), f.Close(), d.fs.Remove(part))
	}
	// Close the file last: a part without a lock would be taken for one that is left.
	if err := errors.Join(d.fs.Rename(part, filepath.Join(d.path, name)), f.Close(), d.fs.SyncDir(d.path)); err != nil {
		return fmt.Errorf("write an object: %w", err)
	}
	return nil
}

// fileWriter writes a file from its beginning on.
type fileWriter struct {
	ctx context.Context
	f   vfs.File
	at  int64
}

// Write implements io.Writer.
func (w *fileWriter) Write(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, context.Cause(w.ctx)
	}
	n, err := w.f.WriteAt(p, w.at)
	w.at += int64(n)
	return n, err
}

// Get implements Store.
func (d directory) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	f, err := d.fs.Open(filepath.Join(d.path, name))
	if errors.Is(err, iofs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	if err != nil {
		return nil, fmt.Errorf("open an object: %w", err)
	}
	size, err := f.Size()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open an object: %w", err), f.Close())
	}
	return &fileReader{ctx, io.NewSectionReader(f, 0, size), f}, nil
}

type fileReader struct {
	ctx context.Context
	io.Reader
	io.Closer
}

// Read implements io.Reader. An error of the disk, or of the mount, says nothing about the object.
func (r *fileReader) Read(p []byte) (n int, err error) {
	if err = context.Cause(r.ctx); err == nil {
		n, err = r.Reader.Read(p)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: %w", ErrGet, err)
	}
	return n, err
}

// List implements Store.
func (d directory) List(context.Context) (objects []Object, err error) {
	names, err := d.fs.List(d.path)
	if err != nil {
		return nil, fmt.Errorf("list the repository: %w", err)
	}
	if len(names) > ObjectsMax {
		return nil, tooMany(d.path)
	}
	for _, name := range names {
		if checkName(name) != nil || strings.HasPrefix(name, ".") {
			continue
		}
		info, err := d.fs.Stat(filepath.Join(d.path, name))
		if errors.Is(err, iofs.ErrNotExist) {
			continue // it was deleted meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("list the repository: %w", err)
		}
		if !info.Dir {
			objects = append(objects, Object{name, info.Size})
		}
	}
	return objects, nil
}

// Delete implements Store.
func (d directory) Delete(_ context.Context, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	err := d.fs.Remove(filepath.Join(d.path, name))
	if errors.Is(err, iofs.ErrNotExist) {
		return fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	if err == nil {
		err = d.fs.SyncDir(d.path)
	}
	if err != nil {
		return fmt.Errorf("delete an object: %w", err)
	}
	return nil
}

// Whole implements Store.
func (d directory) Whole() bool { return true }
