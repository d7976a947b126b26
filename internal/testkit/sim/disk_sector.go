package sim

import (
	"errors"
	"syscall"

	"github.com/quorate/quorate/internal/log/vfs"
)

// sectorBytes is what a disk fails to read at once.
const sectorBytes = 512

// badSector is one that the disk cannot read until it is written again. Its file goes, or is cut off before it, and so
// does it.
type badSector struct {
	file string
	at   int64
}

// sectorFS is a file system over a disk with a bad sector.
type sectorFS struct {
	vfs.FS
	d *disk
}

// Open implements vfs.FS.
func (s sectorFS) Open(name string) (vfs.File, error) {
	f, err := s.FS.Open(name)
	return s.file(name, f), err
}

// OpenReadWrite implements vfs.FS.
func (s sectorFS) OpenReadWrite(name string) (vfs.File, error) {
	f, err := s.FS.OpenReadWrite(name)
	return s.file(name, f), err
}

// Create implements vfs.FS.
func (s sectorFS) Create(name string) (vfs.File, error) {
	s.gone(name)
	return s.FS.Create(name)
}

// Rename implements vfs.FS.
func (s sectorFS) Rename(from, to string) error {
	err := s.FS.Rename(from, to)
	if err == nil {
		s.gone(from)
		s.gone(to)
	}
	return err
}

// Remove implements vfs.FS.
func (s sectorFS) Remove(name string) error {
	err := s.FS.Remove(name)
	if err == nil {
		s.gone(name)
	}
	return err
}

func (s sectorFS) gone(name string) {
	if b := s.d.bad; b != nil && b.file == name {
		s.d.bad = nil
	}
}

func (s sectorFS) file(name string, f vfs.File) vfs.File {
	if b := s.d.bad; f != nil && b != nil && b.file == name {
		return sectorFile{f, s.d}
	}
	return f
}

// sectorFile is the file that the bad sector is in.
type sectorFile struct {
	vfs.File
	d *disk
}

// ReadAt implements vfs.File.
func (f sectorFile) ReadAt(p []byte, offset int64) (int, error) {
	b := f.d.bad
	if b == nil || offset >= b.at+sectorBytes || offset+int64(len(p)) <= b.at {
		return f.File.ReadAt(p, offset)
	}
	n, err := f.File.ReadAt(p[:max(0, b.at-offset)], offset)
	if err == nil {
		err = syscall.EIO
	}
	return n, err
}

// WriteAt implements vfs.File.
func (f sectorFile) WriteAt(p []byte, offset int64) (int, error) {
	if b := f.d.bad; b != nil && offset <= b.at && offset+int64(len(p)) >= b.at+sectorBytes {
		f.d.bad = nil
	}
	return f.File.WriteAt(p, offset)
}

// Truncate implements vfs.File.
func (f sectorFile) Truncate(size int64) error {
	err := f.File.Truncate(size)
	if b := f.d.bad; err == nil && b != nil && size <= b.at {
		f.d.bad = nil
	}
	return err
}

// size is that of a file that is there.
func (d *disk) size(name string) int64 {
	info, err := d.mem.Stat(name)
	if err != nil {
		return 1
	}
	return max(1, info.Size)
}

// flip turns a bit of a file over, durably.
func (d *disk) flip(name string, at int64, bit byte) error {
	file, err := d.mem.OpenReadWrite(name)
	if err != nil {
		return err
	}
	b := make([]byte, 1)
	if _, err = file.ReadAt(b, at); err == nil {
		b[0] ^= bit
		_, err = file.WriteAt(b, at)
	}
	return errors.Join(err, file.Sync())
}
