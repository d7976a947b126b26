package datadir

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/quorate/quorate/internal/log/vfs"
)

// TestInPlace: an agent whose data directory was removed, moved or replaced notices that.
func TestInPlace(t *testing.T) {
	for name, c := range map[string]struct {
		act  func(dir string) error
		want error
	}{
		"as it was": {func(string) error { return nil }, nil},
		"emptied":   {func(dir string) error { return os.Remove(filepath.Join(dir, LockFile)) }, ErrReplaced},
		"removed":   {os.RemoveAll, ErrReplaced},
		"moved":     {func(dir string) error { return os.Rename(dir, dir+".old") }, ErrReplaced},
		"replaced": {func(dir string) error {
			return errors.Join(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, LockFile), nil, 0o600))
		}, ErrReplaced},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			l := NewLocked(NewHome(New(vfs.OS{}, dir), Identity{}, false))
			if err := l.TakeLock(); err != nil {
				t.Fatal(err)
			}
			if err := c.act(dir); err != nil {
				t.Fatal(err)
			}
			if err := l.InPlace(); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
