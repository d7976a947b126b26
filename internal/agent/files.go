package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"os"
	"path/filepath"

	"github.com/quorate/quorate/internal/vfs"
)

// writeJSON replaces a small file of the data directory atomically and durably.
func writeJSON(path string, v any) error {
	return replaceJSON(vfs.OS{}, filepath.Dir(path), filepath.Base(path), v)
}

// syncDir makes what was created, renamed or removed in a directory durable.
func syncDir(path string) error { return vfs.OS{}.SyncDir(path) }

// replaceJSON replaces a small file atomically and durably.
func replaceJSON(fs vfs.FS, dir, name string, v any) (err error) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	path := filepath.Join(dir, name)
	f, err := fs.Create(path + ".tmp")
	if err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	_, err = f.WriteAt(append(b, '\n'), 0)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = fs.Rename(path+".tmp", path)
	}
	if err == nil {
		err = fs.SyncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// readAll reads a small file.
func readAll(fs vfs.FS, path string) (b []byte, err error) {
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
	if _, err = f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b, nil
}

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
