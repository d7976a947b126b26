package agent

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/quorate/quorate/internal/agent/datadir"
)

// TestMakeDir: a data directory comes with its missing parents; one that is there
// stays as it is; what is no directory is refused.
func TestMakeDir(t *testing.T) {
	base := t.TempDir()
	path := filepath.Join(base, "a", "b", "c")
	for range 2 {
		if err := datadir.MakeDir(path); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, "file"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := datadir.MakeDir(filepath.Join(path, "file")); err == nil {
		t.Error("a file is taken for a directory")
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o026 != 0 {
		t.Errorf("others may list it, or write in it: %v, %v", info.Mode(), err)
	}
	t.Chdir(base)
	if err := datadir.MakeDir("relative"); err != nil {
		t.Error(err)
	}
}

// TestDataDirIsNotWritableForOthers: what the agent reads there it believes.
func TestDataDirIsNotWritableForOthers(t *testing.T) {
	for mode, want := range map[os.FileMode]bool{0o755: true, 0o700: true, 0o775: false, 0o757: false} {
		cfg := testConfig(t, t.TempDir())
		if err := errors.Join(os.MkdirAll(cfg.DataDir, 0o700), os.Chmod(cfg.DataDir, mode)); err != nil {
			t.Fatal(err)
		}
		d, err := prepareDataDir(cfg)
		if err != nil {
			t.Fatal(err)
		}
		err = d.open()
		if (err == nil) != want {
			t.Errorf("%v: %v", mode, err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}
