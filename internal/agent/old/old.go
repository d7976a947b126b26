package old

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/sys/clock"
)

const (
	// deleting ends the name of a directory that is being deleted.
	deleting = ".deleting"
	// tidyEvery is how often Run looks.
	tidyEvery = time.Minute

	// keptMax and keptFor bound what is kept. So does the disk: one part in freePart of it stays free.
	keptMax  = 2
	keptFor  = 7 * 24 * time.Hour
	freePart = 10
)

// Config is what a Keeper works with.
type Config struct {
	// Dir is the node's data directory.
	Dir string
	// Member tells whether the node is healthy, and a member with its present data.
	Member func() bool
	// Copying tells whether a copy for a backup is on the disk. It takes no space for which old data have to go.
	Copying func() bool
	// Show takes what is kept, for the status.
	Show func([]status.OldData)
	// Note takes what was deleted, for the audit log.
	Note   func(what string)
	Logger *slog.Logger
}

// Keeper keeps what the node has given up, and deletes it in time. One goroutine at a time may use it.
type Keeper struct {
	Config
	fs vfs.FS
	// bytes is how large a directory is, by its name.
	bytes map[string]int64
}

// New returns a Keeper. It starts nothing.
func New(c Config) *Keeper { return &Keeper{Config: c, fs: vfs.OS{}, bytes: make(map[string]int64)} }

// given is one directory below old/.
type given struct {
	dir string // its name
	at  time.Time
}

// Run looks after the former data, until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	for {
		k.Tidy(time.Now())
		if clock.Sleep(ctx, clock.Machine{}, tidyEvery) != nil {
			return nil
		}
	}
}

func (k *Keeper) path(dir string) string { return filepath.Join(k.Dir, datadir.OldDir, dir) }

// list returns the directories below old/, oldest first. Other names there do not belong to the agent.
func (k *Keeper) list() (all []given, err error) {
	names, err := k.fs.List(k.path(""))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for old data: %w", err)
	}
	for _, name := range names {
		text, _, _ := strings.Cut(name, "-")
		at, err := time.Parse(datadir.OldTimeFormat, text)
		switch {
		case err != nil:
		case strings.HasSuffix(name, deleting): // a crash has interrupted that
			if err := k.delete(k.path(name)); err != nil {
				return nil, fmt.Errorf("delete old data: %w", err)
			}
		default:
			all = append(all, given{dir: name, at: at})
		}
	}
	return all, nil
}

// toGo says why the first of these, the oldest, is to be deleted; "" = it stays. member: the node
// is healthy, and a member with its present data.
func toGo(all []given, now time.Time, member bool, free, total uint64) (why string) {
	switch {
	case len(all) == 0:
		return ""
	case len(all) > keptMax:
		return fmt.Sprintf("%d newer ones are kept", keptMax)
	case member && now.Sub(all[0].at) > keptFor:
		return fmt.Sprintf("the node has been a member again, and %d days are over", keptFor/(24*time.Hour))
	case free < total/freePart:
		return fmt.Sprintf("less than one part in %d of the disk is free", freePart)
	}
	return ""
}

// Tidy deletes the directories that need not be kept any longer, and shows the rest. Errors are logged: nothing
// depends on Tidy.
func (k *Keeper) Tidy(now time.Time) {
	k.tidy(now, func() (free, total uint64, err error) {
		var disk unix.Statfs_t
		err = unix.Statfs(k.Dir, &disk)
		return disk.Bavail * uint64(disk.Bsize), disk.Blocks * uint64(disk.Bsize), err
	})
}

// tidy is Tidy on a disk with so many free bytes and so many bytes.
func (k *Keeper) tidy(now time.Time, disk func() (free, total uint64, err error)) {
	for {
		all, err := k.list()
		free, total, diskErr := disk()
		if err = errors.Join(err, diskErr); err != nil {
			k.Logger.Warn("cannot check the old data", "error", err)
			return
		}
		if k.Copying() {
			free = total
		}
		why := toGo(all, now, k.Member(), free, total)
		if why == "" {
			k.show(all)
			return
		}
		if err := k.remove(all[0], why); err != nil {
			k.Logger.Warn("cannot delete old data", "dir", all[0].dir, "error", err)
			return
		}
	}
}

// remove deletes a directory. After a crash in between, its name shows that it is incomplete.
func (k *Keeper) remove(o given, why string) error {
	path := k.path(o.dir)
	text := fmt.Sprintf("delete old data in %s: %s", path, why)
	k.Logger.Warn(text)
	if err := k.fs.Rename(path, path+deleting); err != nil {
		return err
	}
	k.Note(text)
	return k.delete(path + deleting)
}

// delete deletes a directory whose name says so. It makes the name durable first: otherwise a loss of power could
// leave part of the directory under its former name.
func (k *Keeper) delete(path string) error {
	if err := k.fs.SyncDir(filepath.Dir(path)); err != nil {
		return err
	}
	return k.fs.RemoveAll(path)
}

// Free deletes all directories: a copy of another node's data needs the space.
func (k *Keeper) Free() {
	all, err := k.list()
	for _, o := range all {
		err = errors.Join(err, k.remove(o, "the copy of another node's data needs the space"))
	}
	if err != nil {
		k.Logger.Warn("cannot make room for the data of another node", "error", err)
	}
}

// show puts the directories into the status.
func (k *Keeper) show(all []given) {
	shown := make([]status.OldData, 0, len(all))
	for _, o := range all {
		path := k.path(o.dir)
		if _, ok := k.bytes[o.dir]; !ok {
			bytes, err := size(path)
			if err != nil {
				continue // a person deletes it
			}
			k.bytes[o.dir] = bytes
		}
		shown = append(shown, status.OldData{Dir: path, Bytes: k.bytes[o.dir], Until: o.at.Add(keptFor)})
	}
	k.Show(shown)
}

// size returns how many bytes the files below a directory have.
func size(dir string) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	return bytes, err
}
