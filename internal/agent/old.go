package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

// A node that is rebuilt gives up its data. The data is not deleted at once: it is moved into a
// directory of its own below old/, by renames, and kept for a while. So a person can take back an
// order that was a mistake.

const (
	// oldDeleting ends the name of a directory that is being deleted.
	oldDeleting = ".deleting"
	oldEvery    = time.Minute

	// oldMax and oldKeptFor bound what is kept. So does the disk: one part in oldFreePart of it
	// stays free.
	oldMax      = 2
	oldKeptFor  = 7 * 24 * time.Hour
	oldFreePart = 10
)

// oldData is one directory below old/.
type oldData struct {
	dir string // its name
	at  time.Time
}

// listOld returns the directories below old/, oldest first. Other names there are not the agent's.
func (d *dataDir) listOld() (all []oldData, err error) {
	entries, err := os.ReadDir(d.Join(datadir.OldDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for old data: %w", err)
	}
	for _, e := range entries {
		text, _, _ := strings.Cut(e.Name(), "-")
		at, err := time.Parse(datadir.OldTimeFormat, text)
		switch {
		case err != nil:
		case strings.HasSuffix(e.Name(), oldDeleting): // a crash has ended that
			if err := os.RemoveAll(d.Join(datadir.OldDir, e.Name())); err != nil {
				return nil, fmt.Errorf("delete old data: %w", err)
			}
		default:
			all = append(all, oldData{dir: e.Name(), at: at})
		}
	}
	return all, nil
}

// oldToGo says why the first of these, the oldest, is to be deleted; "" = it stays. member: the node
// is healthy, and a member with its present data.
func oldToGo(all []oldData, now time.Time, member bool, free, total uint64) (why string) {
	switch {
	case len(all) == 0:
		return ""
	case len(all) > oldMax:
		return fmt.Sprintf("%d newer ones are kept", oldMax)
	case member && now.Sub(all[0].at) > oldKeptFor:
		return fmt.Sprintf("the node has been a member again, and %d days are over", oldKeptFor/(24*time.Hour))
	case free < total/oldFreePart:
		return fmt.Sprintf("less than one part in %d of the disk is free", oldFreePart)
	}
	return ""
}

// disk returns the free bytes and all bytes of the data directory's disk.
func (d *dataDir) disk() (free, total uint64, err error) {
	var disk unix.Statfs_t
	err = unix.Statfs(d.Path(), &disk)
	return disk.Bavail * uint64(disk.Bsize), disk.Blocks * uint64(disk.Bsize), err
}

// tidyOld deletes the directories that need not be kept any longer, and shows the rest. disk returns
// the free bytes and all bytes. Errors are logged: nothing depends on tidyOld.
func (a *Agent) tidyOld(now time.Time, disk func() (free, total uint64, err error)) {
	role := a.board.Own().Role
	member := role == status.RoleReplica || role == status.RolePrimary || role == status.RoleLogger
	for {
		all, err := a.data.listOld()
		free, total, diskErr := disk()
		if err = errors.Join(err, diskErr); err != nil {
			a.logger.Warn("look after old data", "error", err)
			return
		}
		why := oldToGo(all, now, member, free, total)
		if why == "" {
			a.showOld(all)
			return
		}
		if err := a.deleteOld(all[0], why); err != nil {
			a.logger.Warn("delete old data", "dir", all[0].dir, "error", err)
			return
		}
	}
}

// deleteOld deletes a directory. After a crash in between, its name shows that it is incomplete.
func (a *Agent) deleteOld(o oldData, why string) error {
	path := a.data.Join(datadir.OldDir, o.dir)
	text := fmt.Sprintf("delete old data in %s: %s", path, why)
	a.logger.Warn(text)
	if err := os.Rename(path, path+oldDeleting); err != nil {
		return err
	}
	a.records.Note(text, "done")
	return os.RemoveAll(path + oldDeleting)
}

// freeOld deletes all directories: a copy of another node's data needs the space.
func (a *Agent) freeOld() {
	all, err := a.data.listOld()
	for _, o := range all {
		err = errors.Join(err, a.deleteOld(o, "the copy of another node's data needs the space"))
	}
	if err != nil {
		a.logger.Warn("make room for the data of another node", "error", err)
	}
}

// noSpace tells whether a copy found too little space.
func noSpace(err error) bool {
	return errors.Is(err, mysqld.ErrNoSpace) || errors.Is(err, seglog.ErrFull) || errors.Is(err, unix.ENOSPC)
}

// showOld puts the directories into the status.
func (a *Agent) showOld(all []oldData) {
	shown := make([]status.OldData, 0, len(all))
	for _, o := range all {
		path := a.data.Join(datadir.OldDir, o.dir)
		if _, ok := a.oldBytes[o.dir]; !ok {
			bytes := int64(0)
			err := filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
				if err != nil || e.IsDir() {
					return err
				}
				info, err := e.Info()
				if err == nil {
					bytes += info.Size()
				}
				return err
			})
			if err != nil {
				continue // a person deletes it
			}
			if a.oldBytes == nil {
				a.oldBytes = map[string]int64{}
			}
			a.oldBytes[o.dir] = bytes
		}
		shown = append(shown, status.OldData{Dir: path, Bytes: a.oldBytes[o.dir], Until: o.at.Add(oldKeptFor)})
	}
	a.board.Update(func(s *status.Node) { s.Old = shown })
}

// runOld looks after the former data, until ctx ends.
func (a *Agent) runOld(ctx context.Context) error {
	a.tidyOld(time.Now(), a.data.disk)
	return every(ctx, oldEvery, func() error { a.tidyOld(time.Now(), a.data.disk); return nil })
}
