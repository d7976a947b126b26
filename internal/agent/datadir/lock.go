package datadir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	// LockFile has the flock of the one agent per directory.
	LockFile = "lock"
	// lockText is in the lock of a directory that was empty (Reserve).
	lockText = "one quorate agent at a time\n"
)

// Locked is a Home in a real file system, with the lock of the one agent that runs there.
type Locked struct {
	*Home
	lock *os.File
	// made are the paths that were made for the lock. They are removed if this node does not begin here.
	made []string
}

// NewLocked returns a home whose lock is not held yet.
func NewLocked(h *Home) *Locked { return &Locked{Home: h} }

// Open takes the directory's lock, unless Reserve has, and writes the identity in a fresh
// directory.
func (l *Locked) Open() error {
	if err := l.hold(); err != nil {
		return err
	}
	if err := l.Begin(); err != nil {
		return errors.Join(err, l.Close())
	}
	return nil
}

// Reserve locks an empty directory, and proves that files can be written there. It is called
// before any peer is told that the directory is empty: that may cost the node its vote and its data.
func (l *Locked) Reserve() error {
	if err := l.hold(); err != nil {
		return err
	}
	_, err := l.lock.WriteAt([]byte(lockText), 0)
	if err = errors.Join(err, l.lock.Sync()); err == nil {
		err = l.fs.SyncDir(l.Path())
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write in data directory %s (is its disk mounted?): %w", l.Path(), err), l.Close())
	}
	return nil
}

// hold makes the directory if it is not there, and takes its lock. A fresh directory must
// still have no identity.
func (l *Locked) hold() error {
	if !l.Held() {
		var made []string
		for path := l.Join(LockFile); !exists(path); path = filepath.Dir(path) {
			made = append(made, path)
		}
		if err := MakeDir(l.Path()); err != nil {
			return errors.Join(fmt.Errorf("create data directory (is its disk mounted?): %w", err), l.Close())
		}
		if info, err := os.Stat(l.Path()); err == nil && info.Mode().Perm()&0o022 != 0 {
			return errors.Join(fmt.Errorf("others may write in data directory %s (%v): chmod go-w it", l.Path(), info.Mode()), l.Close())
		}
		if err := l.TakeLock(); err != nil {
			return errors.Join(err, l.Close())
		}
		l.made = made
	}
	if !l.fresh {
		return nil
	}
	there, err := l.Find(IdentityFile)
	if there { // its disk was mounted since
		err = fmt.Errorf("data directory %s was empty a moment ago, and now has data (was its disk mounted just now?): start the agent again", l.Path())
	}
	if err != nil {
		return errors.Join(err, l.Close())
	}
	return nil
}

// ErrInUse means that another process has the data directory.
var ErrInUse = errors.New("is in use by another quorate agent: stop that agent first")

// TakeLock takes the lock of what is mounted at the path now.
func (l *Locked) TakeLock() error {
	f, err := os.OpenFile(l.Join(LockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, os.ErrPermission) && exists(l.Join(LockFile)) {
		return fmt.Errorf("data directory %s: the lock file belongs to another account, perhaps left by a root command that was killed: chown %s to the account of the agent: %w",
			l.Path(), l.Join(LockFile), err)
	}
	if err != nil {
		return fmt.Errorf("write in data directory %s (is its disk mounted?): %w", l.Path(), err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("data directory %s %w", l.Path(), ErrInUse)
		}
		return fmt.Errorf("lock data directory: %w", err)
	}
	if l.lock != nil {
		_ = l.lock.Close() // the lock of what was there before the mount
	}
	l.lock = f
	if !l.Held() { // an agent that did not begin has removed it meanwhile
		return fmt.Errorf("data directory %s %w", l.Path(), ErrInUse)
	}
	return nil
}

// Held tells whether the lock is held, and its file is still the one at the path.
func (l *Locked) Held() bool {
	if l.lock == nil {
		return false
	}
	same, err := l.sameFile()
	return err == nil && same
}

// sameFile tells whether the lock's file is the one at the path.
func (l *Locked) sameFile() (bool, error) {
	held, err := l.lock.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Stat(l.Join(LockFile))
	return err == nil && os.SameFile(held, there), err
}

// ErrReplaced says that a data directory was removed, moved or replaced while an agent ran with it: nobody will ever
// find what that agent writes.
var ErrReplaced = errors.New("was removed or replaced while this agent ran")

// InPlace returns ErrReplaced unless the lock's file is still the one at the path. It reports no other error: a disk that
// fails tells that at the next write.
func (l *Locked) InPlace() error {
	if l.lock == nil {
		return nil
	}
	if same, err := l.sameFile(); errors.Is(err, os.ErrNotExist) || err == nil && !same {
		return fmt.Errorf("data directory %s %w", l.Path(), ErrReplaced)
	}
	return nil
}

// Close gives the lock back. If this node has not begun here, Close removes what was made for the lock.
func (l *Locked) Close() error {
	if l.lock == nil {
		return nil
	}
	if begun, err := l.Find(IdentityFile); l.Held() && err == nil && !begun {
		for _, path := range l.made {
			_ = os.Remove(path) // a directory only if it is empty
		}
	}
	err := l.lock.Close()
	l.lock, l.made = nil, nil
	return err
}
