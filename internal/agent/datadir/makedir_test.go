package datadir

import (
	"os"
	"path/filepath"
	"testing"
)

// TestMakeDir: a data directory is made with its missing parents. A directory that is there stays as it is. Anything
// else at the path is refused.
func TestMakeDir(t *testing.T) {
	base := t.TempDir()
	path := filepath.Join(base, "a", "b", "c")
	for range 2 {
		if err := MakeDir(path); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, "file"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := MakeDir(filepath.Join(path, "file")); err == nil {
		t.Error("a file is taken for a directory")
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o026 != 0 {
		t.Errorf("others may list it, or write in it: %v, %v", info.Mode(), err)
	}
	t.Chdir(base)
	if err := MakeDir("relative"); err != nil {
		t.Error(err)
	}
}
