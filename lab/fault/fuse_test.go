package fault

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	ServeFUSE()
	goleak.VerifyTestMain(m)
}

// realDisks returns the disks of two nodes. They are removed after the test.
func realDisks(t *testing.T) *Disks {
	t.Helper()
	d, err := NewDisks(t.Context(), OpenFUSE, t.TempDir(), []string{"a", "b"})
	if errors.Is(err, ErrNoDisk) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		for _, node := range []string{"a", "b"} {
			if mounted(t, d.At(node)) {
				t.Errorf("%s is still mounted", d.At(node))
			}
		}
	})
	return d
}

func mounted(t *testing.T, path string) bool {
	t.Helper()
	var at, above unix.Stat_t
	if err := errors.Join(unix.Stat(path, &at), unix.Stat(filepath.Dir(path), &above)); err != nil {
		t.Fatal(err)
	}
	return at.Dev != above.Dev
}

// disk returns the disk of a node, as OpenFUSE made it.
func (d *Disks) disk(t *testing.T, node string) fuse {
	t.Helper()
	disk, err := d.Disk(node)
	if err != nil {
		t.Fatal(err)
	}
	return disk.(fuse)
}

// create makes a file on a node's disk, which is open until the test ends.
func (d *Disks) create(t *testing.T, node, content string) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(d.At(node), "file"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if _, err := f.WriteString(content); err != nil {
		t.Fatal(err)
	}
	return f
}

// has fails the test unless a node's file has this content on the disk itself, below the mount.
func (d *Disks) has(t *testing.T, node, want string) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(d.source(node), "file"))
	if err != nil || string(got) != want {
		t.Errorf("the file of %s is %q (%v), want %q", node, got, err, want)
	}
}

// hold holds a node's writes, begins a write, and returns once that write is held.
func (d *Disks) hold(t *testing.T, node string, f *os.File) <-chan error {
	t.Helper()
	disk := d.disk(t, node)
	if err := disk.Hold(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := f.WriteAt([]byte("held"), 0)
		done <- err
	}()
	for deadline := time.Now().Add(10 * time.Second); ; <-time.After(5 * time.Millisecond) {
		s, err := disk.Status()
		if err == nil && s.Held == 1 {
			return done
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("no write is held: %+v, %v", s, err)
		}
	}
}

// TestHeldWrites: a held write is not on the disk. It goes on when the disk is healed, and fails
// when the disk refuses writes. The other node's disk is not affected.
func TestHeldWrites(t *testing.T) {
	d := realDisks(t)
	a := d.create(t, "a", "before")
	done := d.hold(t, "a", a)
	d.create(t, "b", "well")
	d.has(t, "a", "before")
	d.has(t, "b", "well")
	if err := errors.Join(d.disk(t, "a").Heal(), <-done); err != nil {
		t.Fatal(err)
	}
	d.has(t, "a", "heldre")
	done = d.hold(t, "a", a)
	if err := d.Refuse(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, syscall.EIO) {
		t.Errorf("the write that was held: %v, want %v", err, syscall.EIO)
	}
}

// TestPowerLossLosesWhatWasNotSynced is the control of the experiment: writes that were synced, by
// the writer or by SyncAll, survive a loss of power, and other writes do not.
func TestPowerLossLosesWhatWasNotSynced(t *testing.T) {
	d := realDisks(t)
	a, b := d.create(t, "a", "settled"), d.create(t, "b", "synced")
	if err := errors.Join(d.SyncAll("a"), b.Sync()); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*os.File{a, b} {
		if _, err := f.WriteString(", lost"); err != nil {
			t.Fatal(err)
		}
	}
	d.has(t, "a", "settled, lost") // while there is power the kernel still has it
	for _, node := range []string{"a", "b"} {
		if err := d.disk(t, node).CutPower(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.WriteString("x"); !errors.Is(err, syscall.EIO) {
		t.Errorf("a write without power: %v, want %v", err, syscall.EIO)
	}
	_ = errors.Join(a.Close(), b.Close()) // as when the writers' processes end
	for node, want := range map[string]string{"a": "settled", "b": "synced"} {
		if err := d.Mount(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		d.has(t, node, want)
	}
	d.create(t, "a", "goes on")
}
