package faultmount

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// unsyncedBytesMax bounds how much is kept of one file to undo its changes: above that
// the file is synced. InnoDB writes less between two syncs.
const unsyncedBytesMax = 64 << 20

// change has the content that a change of a file has replaced.
type change struct {
	size int64 // of the file before
	at   int64
	old  []byte
}

// unsynced has the changes of one file since its last sync.
type unsynced struct {
	mu      sync.Mutex
	file    *os.File // set while there are changes
	first   uint64   // number of changes[0]
	changes []change
	bytes   int64
}

type inode struct{ dev, ino uint64 }

// journal has the changes that a loss of power would undo.
type journal struct {
	mu    sync.Mutex
	files map[inode]*unsynced
}

func newJournal() *journal { return &journal{files: map[inode]*unsynced{}} }

func (j *journal) of(st *syscall.Stat_t) *unsynced {
	j.mu.Lock()
	defer j.mu.Unlock()
	key := inode{st.Dev, st.Ino}
	u := j.files[key]
	if u == nil {
		u = &unsynced{}
		j.files[key] = u
	}
	return u
}

// change calls do, which changes [at, at+length) of a file, and first notes the present
// content. Behind the end of the file there is nothing to note.
func (j *journal) change(f *os.File, at, length int64, do func() error) error {
	st, err := statFile(f)
	if err != nil {
		return err
	}
	u := j.of(&st)
	u.mu.Lock()
	defer u.mu.Unlock()
	if st, err = statFile(f); err != nil { // once more: another write may have come before this one
		return err
	}
	length = max(0, min(length, st.Size-at))
	if u.bytes+length > unsyncedBytesMax {
		if err := f.Sync(); err != nil {
			return err
		}
		u.drop(u.first + uint64(len(u.changes)))
		if length > unsyncedBytesMax {
			return do() // the kernel may make it durable at any time
		}
	}
	c := change{size: st.Size, at: at, old: make([]byte, length)}
	if length > 0 {
		if _, err := f.ReadAt(c.old, at); err != nil {
			return err
		}
	}
	if u.file == nil {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return err
		}
		u.file = os.NewFile(uintptr(fd), f.Name())
	}
	u.changes, u.bytes = append(u.changes, c), u.bytes+length
	return do()
}

// sync makes durable what was changed before.
func (j *journal) sync(f *os.File) error {
	st, err := statFile(f)
	if err != nil {
		return err
	}
	u := j.of(&st)
	u.mu.Lock()
	upTo := u.first + uint64(len(u.changes))
	u.mu.Unlock()
	if err := f.Sync(); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.drop(upTo)
	return nil
}

// forget drops the changes of a file that has no name any more.
func (j *journal) forget(st *syscall.Stat_t) {
	u := j.of(st)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.drop(u.first + uint64(len(u.changes)))
}

// drop forgets the changes before number upTo. u.mu is held.
func (u *unsynced) drop(upTo uint64) {
	for u.first < upTo {
		u.bytes -= int64(len(u.changes[0].old))
		u.changes, u.first = u.changes[1:], u.first+1
	}
	if len(u.changes) == 0 && u.file != nil {
		_ = u.file.Close() // it is a second descriptor; nothing was written through it
		u.file, u.changes = nil, nil
	}
}

// undo undoes all changes. No operation may be under way.
func (j *journal) undo() error {
	var errs []error
	for _, u := range j.files {
		for _, c := range slices.Backward(u.changes) {
			err := u.file.Truncate(c.size)
			if err == nil {
				_, err = u.file.WriteAt(c.old, c.at)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("undo a change of %s: %w", u.file.Name(), err))
			}
		}
		u.drop(u.first + uint64(len(u.changes)))
	}
	return errors.Join(errs...)
}

func statFile(f *os.File) (st syscall.Stat_t, err error) {
	return st, syscall.Fstat(int(f.Fd()), &st)
}
