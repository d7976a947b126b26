package old

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/vfs"
)

// TestToGo: the bounds of what is kept.
func TestToGo(t *testing.T) {
	now := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	one, two := given{"a", now.Add(-keptFor - time.Hour)}, given{"b", now}
	for _, c := range []struct {
		name        string
		all         []given
		member      bool
		free, total uint64
		why         string
	}{
		{"nothing", nil, true, 0, 100, ""},
		{"two", []given{two, two}, true, 10, 100, ""},
		{"three", []given{two, two, two}, true, 90, 100, "newer"},
		{"long ago", []given{one, two}, true, 90, 100, "7 days"},
		{"long ago, and it has not joined yet", []given{one, two}, false, 90, 100, ""},
		{"the disk is full", []given{two}, false, 9, 100, "of the disk"},
	} {
		if got := toGo(c.all, now, c.member, c.free, c.total); (got == "") != (c.why == "") || !strings.Contains(got, c.why) {
			t.Errorf("%s: %q, want %q", c.name, got, c.why)
		}
	}
}

// TestTidy: the oldest is deleted first, also after a crash in between; what a person keeps there, or deletes, is
// left to that person. A copy that needs the space gets all of it.
func TestTidy(t *testing.T) {
	var shown []status.OldData
	var noted []string
	k := New(Config{
		Dir: t.TempDir(), Member: func() bool { return false }, Copying: func() bool { return true }, Logger: slog.New(slog.DiscardHandler),
		Show: func(all []status.OldData) { shown = all }, Note: func(what string) { noted = append(noted, what) },
	})
	for _, name := range []string{"20261101T000000Z-rebuild.deleting", "20261102T000000Z-rebuild", "20261103T000000Z-recovered", "20261104T000000Z-rebuild", "mine"} {
		log := filepath.Join(k.path(name), "log")
		if err := errors.Join(os.MkdirAll(log, 0o755), os.WriteFile(filepath.Join(log, "state"), []byte("1234"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	names := func() (found []string) {
		entries, err := os.ReadDir(k.path(""))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			found = append(found, e.Name())
		}
		return found
	}
	kept := []string{"20261103T000000Z-recovered", "20261104T000000Z-rebuild", "mine"}
	k.tidy(time.Date(2026, 11, 5, 0, 0, 0, 0, time.UTC), func() (uint64, uint64, error) { return 1, 1, nil })
	if diff := cmp.Diff(kept, names()); diff != "" {
		t.Errorf("tidied (-want +got):\n%s", diff)
	}
	want := []status.OldData{
		{Dir: k.path(kept[0]), Bytes: 4, Until: time.Date(2026, 11, 10, 0, 0, 0, 0, time.UTC)},
		{Dir: k.path(kept[1]), Bytes: 4, Until: time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)},
	}
	if diff := cmp.Diff(want, shown); diff != "" {
		t.Errorf("the status (-want +got):\n%s", diff)
	}
	full := func() (uint64, uint64, error) { return 9, 100, nil }
	k.tidy(time.Date(2026, 11, 5, 0, 0, 0, 0, time.UTC), full)
	if diff := cmp.Diff(kept, names()); diff != "" {
		t.Errorf("a backup's copy takes the space (-want +got):\n%s", diff)
	}
	k.Free()
	if diff := cmp.Diff([]string{"mine"}, names()); diff != "" {
		t.Errorf("room was made (-want +got):\n%s", diff)
	}
	if len(noted) != 3 || !strings.Contains(noted[2], "needs the space") {
		t.Errorf("the audit log gets %q", noted)
	}
}

// TestDeletedUnderItsOtherName: a directory loses its first file only once its new name is on disk, even if an agent
// was killed between the renaming and the sync.
func TestDeletedUnderItsOtherName(t *testing.T) {
	const dir = "20261102T000000Z-rebuild"
	for _, renamed := range []bool{false, true} {
		mem := vfs.NewMem()
		removed := 0
		k := New(Config{Dir: ".", Note: func(string) {}, Logger: slog.New(slog.DiscardHandler)})
		k.fs = vfs.Wrap(mem, func(op vfs.Op, path string) error {
			if op != vfs.OpRemoveAll {
				return nil
			}
			removed++
			if names, err := mem.CrashClone(0).List(datadir.OldDir); err != nil || !cmp.Equal(names, []string{dir + deleting}) {
				t.Errorf("renamed before: %t: while %s is deleted, the disk has %q, %v", renamed, path, names, err)
			}
			return nil
		})
		if err := mem.MkdirAll(k.path(dir)); err != nil {
			t.Fatal(err)
		}
		if renamed {
			if err := mem.Rename(k.path(dir), k.path(dir)+deleting); err != nil {
				t.Fatal(err)
			}
		}
		k.Free()
		if removed != 1 {
			t.Errorf("%d directories were deleted", removed)
		}
	}
}
