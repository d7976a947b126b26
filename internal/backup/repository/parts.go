package repository

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/quorate/quorate/internal/log/vfs"
)

// A file that is being written has a name of its own, even if several write the same object:
// .NAME.TIME-RANDOM-BOOT.part. TIME is in seconds since 1970, BOOT identifies the host until its next start. Its
// writer has a flock on it. Earlier versions did not write BOOT and did not lock.
var partName = regexp.MustCompile(`^\.(.+)\.(\d+)-[A-Z2-7]+(?:-([0-9a-f]+))?\.part$`)

// partAgeMax is how old a part may become if it cannot be seen whether a process writes it.
const partAgeMax = 48 * time.Hour

// PartState says whether a process writes a part.
type PartState int

// The states.
const (
	// PartUnknown: another host may write it, or it was interrupted there, or before this host's last start.
	// PartWritten: a process writes it. PartLeft: its writer was interrupted.
	PartUnknown PartState = iota
	PartWritten
	PartLeft
)

// Part is the unfinished file of a Put that is under way or was interrupted.
type Part struct {
	Name, Object string
	Bytes        int64
	State        PartState
}

// Parts implements Store.
func (d directory) Parts(_ context.Context, remove bool) ([]Part, error) {
	return d.parts(time.Now(), remove)
}

func (d directory) parts(now time.Time, remove bool) (all []Part, err error) {
	names, err := d.fs.List(d.path)
	if err != nil {
		return nil, fmt.Errorf("list the repository: %w", err)
	}
	for _, name := range names {
		m := partName.FindStringSubmatch(name)
		if m == nil {
			continue
		}
		info, err := d.fs.Stat(filepath.Join(d.path, name))
		if err == nil {
			at, _ := strconv.ParseInt(m[2], 10, 64) // with too many digits it does not count as old
			p := Part{Name: name, Object: m[1], Bytes: info.Size}
			p.State, err = d.look(name, m[3] != "" && m[3] == bootID(), now.Sub(time.Unix(at, 0)) >= partAgeMax, remove)
			if err == nil {
				all = append(all, p)
			}
		}
		if err != nil && !errors.Is(err, iofs.ErrNotExist) { // if the file is gone, its Put has ended meanwhile
			return nil, fmt.Errorf("look at what an interrupted backup has left: %w", err)
		}
	}
	return all, nil
}

// look tells whether a process writes a part, and removes a part that is left, if remove is set. It holds the lock
// until the file is gone: so a Put that has just made the file notices, and makes another.
func (d directory) look(name string, here, old, remove bool) (state PartState, err error) {
	path := filepath.Join(d.path, name)
	f, err := d.fs.OpenReadWrite(path) // NFS locks only files that are open for writing
	if errors.Is(err, iofs.ErrNotExist) {
		return PartUnknown, err
	}
	if err == nil {
		defer func() { _ = f.Close() }()
		err = lock(f, syscall.LOCK_NB)
	}
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return PartWritten, nil
	case !old && (!here || err != nil):
		return PartUnknown, nil
	case remove:
		return PartLeft, d.fs.Remove(path)
	}
	return PartLeft, nil
}

// create makes the part of an object, and locks it.
func (d directory) create(object string) (f vfs.File, path string, err error) {
	for boot := bootID(); ; {
		path = filepath.Join(d.path, strings.TrimSuffix(fmt.Sprintf(".%s.%d-%s-%s", object, time.Now().Unix(), rand.Text(), boot), "-")+".part")
		if f, err = d.fs.Create(path); err != nil {
			return nil, "", err
		}
		locked := lock(f, syscall.LOCK_NB)
		_, err = d.fs.Stat(path)
		if err == nil && (locked == nil || boot == "") {
			return f, path, nil
		}
		err = errors.Join(err, f.Close())
		if err != nil && !errors.Is(err, iofs.ErrNotExist) { // else another process has removed it, before it was locked
			return nil, "", err
		}
		if locked != nil && err == nil { // locks do not work here: so the name must not have BOOT
			boot = ""
			if err := d.fs.Remove(path); err != nil {
				return nil, "", err
			}
		}
	}
}

// lock takes a flock on a file. Closing the file releases it.
func lock(f vfs.File, how int) error {
	file, ok := f.(interface{ Fd() uintptr })
	if !ok {
		return errors.ErrUnsupported
	}
	for {
		if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// bootDigits is how many digits of the host's boot id a part's name has. So the name has less than 255 characters
// even for the longest object's name.
const bootDigits = 8

// bootID identifies this host until its next start; "" = not known. It is in the name because two hosts may not see
// each other's locks.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || len(id) < bootDigits {
		return ""
	}
	return string(id[:bootDigits])
}
