package agent

import (
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
	t.Chdir(base)
	if err := datadir.MakeDir("relative"); err != nil {
		t.Error(err)
	}
}
