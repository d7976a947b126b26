package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
