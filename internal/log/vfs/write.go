package vfs

import (
	"crypto/rand"
	"errors"
	"io"
	iofs "io/fs"
	"path/filepath"
)

// Owner is the account to which a file belongs.
type Owner struct{ UID, GID int }

// As returns fs with another Create: a file that it makes has this mode and this owner; nil = the process's own
// account. Such a Create never opens what has the name already, but replaces it: mysqld's account may have put
// a link there. A file system without modes is returned unchanged.
func As(fs FS, mode iofs.FileMode, owner *Owner) FS {
	if fs, ok := fs.(interface {
		as(mode iofs.FileMode, owner *Owner) FS
	}); ok {
		return fs.as(mode, owner)
	}
	return fs
}

// Replace writes a small file durably, in place of what has its name. After a crash the file has the whole new
// content, or the old one. path.tmp is the file while it is written.
func Replace(fs FS, path string, content []byte) error {
	if err := writeContent(fs, path+".tmp", content); err != nil {
		return err
	}
	return Move(fs, path+".tmp", path)
}

// WriteNew is Replace for a name that must not exist: else the error is fs.ErrExist. Several processes may call
// it at the same time.
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

// writeContent makes a file. Its content is durable then, but its name is not.
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

// Move is a Rename that is durable when it returns.
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
