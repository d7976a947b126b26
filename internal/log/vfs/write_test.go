package vfs_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/log/vfs/vfstest"
)

// content returns the content of a file; "-" = there is no file.
func content(t *testing.T, disk vfs.FS, path string) string {
	t.Helper()
	b, err := vfs.ReadFile(disk, path)
	if errors.Is(err, fs.ErrNotExist) {
		return "-"
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestWritesAreWhole: wherever a write is interrupted, the file has the old content or all of the new. After
// the write has returned, it has the new content.
func TestWritesAreWhole(t *testing.T) {
	disk := func() *vfs.Mem {
		m := vfs.NewMem()
		if err := errors.Join(vfs.Replace(m, "file", []byte("before")), vfs.Replace(m, "other", []byte("after"))); err != nil {
			t.Fatal(err)
		}
		return m
	}
	after := []byte("after")
	for name, c := range map[string]struct {
		path, before string
		do           func(f vfs.FS) error
	}{
		"replace": {"file", "before", func(f vfs.FS) error { return vfs.Replace(f, "file", after) }},
		"new":     {"new", "-", func(f vfs.FS) error { return vfs.WriteNew(f, "new", after) }},
		"move":    {"file", "before", func(f vfs.FS) error { return vfs.Move(f, "other", "file") }},
	} {
		t.Run(name, func(t *testing.T) {
			seen := map[string]int{}
			vfstest.Interruptions(t, disk, c.do, func(t *testing.T, disk *vfs.Mem) {
				got := content(t, disk, c.path)
				seen[got]++
				if got != c.before && got != "after" {
					t.Errorf("it is %q", got)
				}
			})
			if seen[c.before] == 0 || seen["after"] == 0 {
				t.Errorf("seen: %v", seen)
			}
			m := disk()
			if err := c.do(m); err != nil {
				t.Fatal(err)
			}
			if got := content(t, m.CrashClone(0), c.path); got != "after" {
				t.Errorf("it has returned, and a loss of power leaves %q", got)
			}
		})
	}
}

// TestWriteNewReplacesNothing: an existing file stays, and nothing is left of the new one.
func TestWriteNewReplacesNothing(t *testing.T) {
	for name, f := range map[string]vfs.FS{"os": vfs.OS{}, "mem": vfs.NewMem()} {
		dir := t.TempDir()
		if err := f.MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "file")
		if err := vfs.WriteNew(f, path, []byte("one")); err != nil {
			t.Fatal(err)
		}
		if err := vfs.WriteNew(f, path, []byte("two")); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s: the file is there: %v", name, err)
		}
		names, err := f.List(dir)
		if diff := cmp.Diff([]string{"file"}, names); diff != "" || err != nil || content(t, f, path) != "one" {
			t.Errorf("%s: it has %q, %v (-want +got):\n%s", name, content(t, f, path), err, diff)
		}
	}
}

// TestAs: a file has its mode and owner from the beginning, also through a wrapper. The target of a link stays
// as it is.
func TestAs(t *testing.T) {
	dir := t.TempDir()
	path, target := filepath.Join(dir, "file"), filepath.Join(dir, "target")
	if err := errors.Join(os.WriteFile(target, []byte("kept"), 0o644), os.Symlink(target, path)); err != nil {
		t.Fatal(err)
	}
	owner := &vfs.Owner{UID: os.Geteuid(), GID: os.Getegid()}
	if os.Geteuid() == 0 {
		owner = &vfs.Owner{UID: 12345, GID: 12346}
	}
	f := vfs.As(vfs.Wrap(vfs.OS{}, func(vfs.Op, string) error { return nil }), 0o600, owner)
	made, err := f.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer made.Close()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	st := info.Sys().(*syscall.Stat_t)
	if info.Mode() != 0o600 || int(st.Uid) != owner.UID || int(st.Gid) != owner.GID || content(t, vfs.OS{}, target) != "kept" {
		t.Errorf("mode %v, owner %d:%d; the target has %q", info.Mode(), st.Uid, st.Gid, content(t, vfs.OS{}, target))
	}
}
