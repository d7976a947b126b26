package vfs

import (
	"errors"
	"io"
)

// ErrLocked is returned by FS.Lock while another holder has the lock.
var ErrLocked = errors.New("vfs: directory is locked")

// FS is a file system. The error for a name that does not exist is an fs.ErrNotExist.
type FS interface {
	// Create opens name for reading and writing. The file is empty: if it existed, its content is gone.
	Create(name string) (File, error)
	// Open opens the file name for reading only.
	Open(name string) (File, error)
	// OpenReadWrite opens the existing file name for reading and writing.
	OpenReadWrite(name string) (File, error)
	// Remove removes the file name.
	Remove(name string) error
	// RemoveAll removes name and everything below it. It is no error if name does not exist.
	RemoveAll(name string) error
	// Rename gives a file or a directory another name atomically, also in another directory. A file may replace
	// another file.
	Rename(oldname, newname string) error
	// Link gives a file a second name, atomically. If that name exists, the error is an fs.ErrExist.
	Link(oldname, newname string) error
	// MkdirAll makes a directory and its missing parents, durably.
	MkdirAll(dir string) error
	// List returns the sorted names in a directory, without their paths.
	List(dir string) ([]string, error)
	// Stat describes name.
	Stat(name string) (Info, error)
	// SyncDir makes the names in dir durable.
	SyncDir(dir string) error
	// Lock takes an exclusive lock on a directory and writes nothing into it. Closing the result, or the end of
	// the process, releases it. If the lock is held, even by this process, it returns ErrLocked at once.
	Lock(dir string) (io.Closer, error)
}

// Info describes a name.
type Info struct {
	// Size is a file's length in bytes; 0 for a directory.
	Size int64
	// Dir is true for a directory.
	Dir bool
}

// File is an open file. It has no position: each access names its offset.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Truncate sets the file's length. A longer file reads as zeros behind
	// its old end.
	Truncate(size int64) error
	// Sync makes the content, the length and all other metadata durable.
	Sync() error
	// SyncData makes the content durable, and the metadata that is needed to read it (fdatasync). It may leave
	// out a shorter length: use Sync for that.
	SyncData() error
	// Uncache says that the bytes from offset up to end will hardly be read again soon, so the system may free
	// the memory that only repeats what is on the disk. It is advice, changes nothing, and cannot fail.
	Uncache(offset, end int64)
	// Size returns the length in bytes.
	Size() (int64, error)
	// Has tells whether name is a name of this file, and not one of another file or a symbolic link.
	Has(name string) (bool, error)
}
