package vfs

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Permissions of the files that OS makes: the log holds the users' data.
const (
	filePermissions = 0o640
	dirPermissions  = 0o750
)

// OS is the operating system's file system. The zero value is ready.
type OS struct {
	mode  iofs.FileMode // set by As; 0 = filePermissions
	owner *Owner
}

var _ FS = OS{}

type osFile struct{ *os.File }

func (OS) as(mode iofs.FileMode, owner *Owner) FS { return OS{mode: mode, owner: owner} }

// Create implements FS.
func (o OS) Create(name string) (File, error) {
	if o.mode == 0 {
		return openFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, filePermissions)
	}
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	f, err := openFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, o.mode)
	if err == nil && o.owner != nil {
		if err = f.Chown(o.owner.UID, o.owner.GID); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, err
}

// Open implements FS. A FIFO without a writer opens at once, and is empty.
func (OS) Open(name string) (File, error) { return openFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) }

// OpenReadWrite implements FS.
func (OS) OpenReadWrite(name string) (File, error) { return openFile(name, os.O_RDWR, 0) }

// openFile opens a file, but does not follow a link: some files are in mysqld's directory, and mysqld's account
// may be another one.
func openFile(name string, flags int, mode iofs.FileMode) (osFile, error) {
	f, err := os.OpenFile(name, flags|unix.O_NOFOLLOW, mode)
	return osFile{f}, err
}

// Remove implements FS.
func (OS) Remove(name string) error { return os.Remove(name) }

// RemoveAll implements FS.
func (OS) RemoveAll(name string) error { return os.RemoveAll(name) }

// Rename implements FS.
func (OS) Rename(oldname, newname string) error { return os.Rename(oldname, newname) }

// Link implements FS.
func (OS) Link(oldname, newname string) error { return os.Link(oldname, newname) }

// MkdirAll implements FS.
func (o OS) MkdirAll(dir string) error {
	err := os.Mkdir(dir, dirPermissions)
	if errors.Is(err, os.ErrNotExist) {
		if err := o.MkdirAll(filepath.Dir(dir)); err != nil {
			return err
		}
		err = os.Mkdir(dir, dirPermissions)
	}
	if errors.Is(err, os.ErrExist) {
		info, statErr := os.Stat(dir)
		if statErr != nil {
			return statErr
		}
		if !info.IsDir() {
			return err
		}
		// A process that died before the sync may have made it a moment ago. But if this process may not read
		// the parent directory, it did not make the directory, and may not be able to sync the parent.
		err = o.SyncDir(filepath.Dir(dir))
		if errors.Is(err, os.ErrPermission) {
			return nil
		}
		return err
	}
	if err != nil {
		return err
	}
	return o.SyncDir(filepath.Dir(dir))
}

// List implements FS.
func (OS) List(dir string) ([]string, error) {
	found, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(found))
	for i, e := range found {
		names[i] = e.Name()
	}
	return names, nil
}

// Stat implements FS.
func (OS) Stat(name string) (Info, error) {
	info, err := os.Stat(name)
	if err != nil {
		return Info{}, err
	}
	if info.IsDir() {
		return Info{Dir: true}, nil
	}
	return Info{Size: info.Size()}, nil
}

// SyncDir implements FS.
func (OS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if closeErr := d.Close(); err == nil {
		err = closeErr
	}
	return err
}

// Lock implements FS by flock(2) on the directory itself.
func (OS) Lock(dir string) (io.Closer, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return d, nil
	}
	_ = d.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("lock %s: %w", dir, ErrLocked)
	}
	return nil, &os.PathError{Op: "flock", Path: dir, Err: err}
}

// SyncData implements File.
func (f osFile) SyncData() error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if err == nil {
			return nil
		}
		// EINTR says that nothing was attempted, not that something failed.
		if !errors.Is(err, unix.EINTR) {
			return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
		}
	}
}

// Uncache implements File.
func (f osFile) Uncache(offset, end int64) {
	if offset < end {
		_ = unix.Fadvise(int(f.Fd()), offset, end-offset, unix.FADV_DONTNEED)
	}
}

// Size implements File.
func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Has implements File.
func (f osFile) Has(name string) (bool, error) {
	own, err := f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Lstat(name)
	return err == nil && os.SameFile(own, there), err
}
