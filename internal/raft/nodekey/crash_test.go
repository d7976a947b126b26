package nodekey

import (
	"errors"
	iofs "io/fs"
	"testing"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/log/vfs/vfstest"
)

// TestSaveCrashes: after a crash a key is there as a whole or not at all. Once Save has returned it is there.
func TestSaveCrashes(t *testing.T) {
	k, err := New()
	if err != nil {
		t.Fatal(err)
	}
	whole, none := 0, 0
	check := func(t *testing.T, disk *vfs.Mem) {
		text, err := vfs.ReadFile(disk, "node.key")
		if errors.Is(err, iofs.ErrNotExist) {
			none++
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		whole++
		if again, err := parse("node.key", text); err != nil || again.Name() != k.Name() {
			t.Errorf("%v, %v", again, err)
		}
	}
	save := func(fs vfs.FS) error { return k.save(fs, "node.key", nil) }
	vfstest.Interruptions(t, vfs.NewMem, save, check)
	if whole == 0 || none == 0 {
		t.Errorf("it was there %d times, and not %d times: the test has tested nothing", whole, none)
	}
	m, before := vfs.NewMem(), none
	if err := save(m); err != nil {
		t.Fatal(err)
	}
	if check(t, m.CrashClone(0)); none != before {
		t.Error("it has returned, and a loss of power leaves no key")
	}
}
