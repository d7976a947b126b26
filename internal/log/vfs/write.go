package vfs

import (
	"crypto/rand"
	"errors"
	"io"
	iofs "io/fs"
	"path/filepath"
)

// Owner is the account that a file belongs to.
type Owner struct{ UID, GID int }

// As returns fs with the mode and the owner that a file has which Create makes; nil = the process's
// own account. Such a Create never opens what has the name, it takes its place: mysqld's account may
// have put a link there. A file system without modes is returned as it is.
func As(fs FS, mode iofs.FileMode, owner *Owner) FS {
	if fs, ok := fs.(interface {
		as(mode iofs.FileMode, owner *Owner) FS
	}); ok {
		return fs.as(mode, owner)
	}
	return fs
}

// Replace makes a small file, in place of what has its name: the whole content is there, durably, or
// what was there before. path.tmp is the file on the way.
func Replace(fs FS, path string, content []byte) error {
	if err := writeContent(fs, path+".tmp", content); err != nil {
		return err
	}
	return Move(fs, path+".tmp", path)
}

// WriteNew is Replace for a name that nothing may have: the error is fs.ErrExist then. Others may do
// the same at once.
func WriteNew(fs FS, path string, content []byte) error {
	temporary := path + "." + rand.Text() + ".tmp"
	err := writeContent(fs, temporary, content)
	if err == nil {
		err = fs.Link(temporary, path) // unlike a rename, it replaces nothing
	}
	if removed := fs.Remove(temporary); !errors.Is(removed, iofs.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	if err != nil {
		return err
	}
	return fs.SyncDir(filepath.Dir(path))
}

// writeContent makes a file, and its content durable, but not its name.
func writeContent(fs FS, path string, content []byte) error {
	f, err := fs.Create(path)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(content, 0)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Move is Rename, durable when it returns.
func Move(fs FS, oldname, newname string) error {
	if err := fs.Rename(oldname, newname); err != nil {
		return err
	}
	return fs.SyncDir(filepath.Dir(newname))
}

// ReadFile reads a small file.
func ReadFile(fs FS, path string) (b []byte, err error) {
	f, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b = make([]byte, size)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b[:n], nil
}
