package agent

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"

	"github.com/quorate/quorate/internal/datadir"
	"github.com/quorate/quorate/internal/vfs"
)

// writeJSON replaces a small file of the data directory atomically and durably.
func writeJSON(path string, v any) error {
	return datadir.Replace(vfs.OS{}, filepath.Dir(path), filepath.Base(path), v)
}

// syncDir makes what was created, renamed or removed in a directory durable.
func syncDir(path string) error { return vfs.OS{}.SyncDir(path) }

// makeDir makes a directory that others may read, and its missing parents. Its name
// is on disk, too, when it returns: a name that a loss of power takes away takes what
// is below it along.
func makeDir(path string) error {
	_, missing := os.Stat(path)
	above := []string{filepath.Dir(path)}
	for dir := above[0]; missing != nil && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		above = append(above, filepath.Dir(dir))
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	for _, dir := range above {
		// One that was there before may have been made by a process that died before
		// the sync; but not by this user, if it may not read where it is.
		if err := (vfs.OS{}).SyncDir(dir); err != nil && (missing != nil || !errors.Is(err, iofs.ErrPermission)) {
			return fmt.Errorf("sync %s: %w", dir, err)
		}
	}
	return nil
}
