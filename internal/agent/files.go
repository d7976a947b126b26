package agent

import (
	"os"
	"path/filepath"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/log/vfs"
)

// writeJSON replaces a small file of the data directory atomically and durably.
func writeJSON(path string, v any) error {
	return datadir.Replace(vfs.OS{}, filepath.Dir(path), filepath.Base(path), v)
}

// syncDir makes what was created, renamed or removed in a directory durable.
func syncDir(path string) error { return vfs.OS{}.SyncDir(path) }

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
