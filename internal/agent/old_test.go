package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/history"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

func writeTestFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestOldToGo: the bounds of what is kept.
func TestOldToGo(t *testing.T) {
	now := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	one, two := oldData{"a", now.Add(-oldKeptFor - time.Hour)}, oldData{"b", now}
	for _, c := range []struct {
		name        string
		all         []oldData
		member      bool
		free, total uint64
		why         string
	}{
		{"nothing", nil, true, 0, 100, ""},
		{"two", []oldData{two, two}, true, 10, 100, ""},
		{"three", []oldData{two, two, two}, true, 90, 100, "newer"},
		{"long ago", []oldData{one, two}, true, 90, 100, "7 days"},
		{"long ago, and it has not joined yet", []oldData{one, two}, false, 90, 100, ""},
		{"the disk is full", []oldData{two}, false, 9, 100, "of the disk"},
	} {
		if got := oldToGo(c.all, now, c.member, c.free, c.total); (got == "") != (c.why == "") || !strings.Contains(got, c.why) {
			t.Errorf("%s: %q, want %q", c.name, got, c.why)
		}
	}
}

// TestOldIsTidied: the oldest goes first, wherever a crash has ended that; what a
// person keeps there, or deletes, is theirs. A copy that needs the space gets all of it.
func TestOldIsTidied(t *testing.T) {
	dir, quiet := t.TempDir(), slog.New(slog.DiscardHandler)
	a := &Agent{logger: quiet, data: &dataDir{Locked: datadir.NewLocked(datadir.NewHome(datadir.New(vfs.OS{}, dir), datadir.Identity{}, false))}, records: history.New(vfs.OS{}, dir, "a", quiet)}
	openBoard(a)
	for _, name := range []string{"20261101T000000Z-rebuild.deleting", "20261102T000000Z-rebuild", "20261103T000000Z-recovered", "20261104T000000Z-rebuild", "mine"} {
		writeTestFile(t, a.data.Join(datadir.OldDir, name, "log", "state"), "1234")
	}
	names := func() (found []string) {
		entries, err := os.ReadDir(a.data.Join(datadir.OldDir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			found = append(found, e.Name())
		}
		return found
	}
	kept := []string{"20261103T000000Z-recovered", "20261104T000000Z-rebuild", "mine"}
	a.tidyOld(time.Date(2026, 11, 5, 0, 0, 0, 0, time.UTC), func() (uint64, uint64, error) { return 1, 1, nil })
	if diff := cmp.Diff(kept, names()); diff != "" {
		t.Errorf("tidied (-want +got):\n%s", diff)
	}
	want := []status.OldData{
		{Dir: a.data.Join(datadir.OldDir, kept[0]), Bytes: 4, Until: time.Date(2026, 11, 10, 0, 0, 0, 0, time.UTC)},
		{Dir: a.data.Join(datadir.OldDir, kept[1]), Bytes: 4, Until: time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)},
	}
	if diff := cmp.Diff(want, a.board.Own().Old); diff != "" {
		t.Errorf("the status (-want +got):\n%s", diff)
	}
	a.freeOld()
	if diff := cmp.Diff([]string{"mine"}, names()); diff != "" {
		t.Errorf("room was made (-want +got):\n%s", diff)
	}
	if err := errors.Join(a.records.Open(), a.records.WriteAudit()); err != nil {
		t.Fatal(err)
	}
	if lines, err := a.records.Audit.Newest(9); err != nil || len(lines) != 3 || !strings.Contains(lines[2].What, "needs the space") {
		t.Errorf("the audit log gets %+v, %v", lines, err)
	}
}

// TestNoSpace: which failures of a copy are for want of space.
func TestNoSpace(t *testing.T) {
	for err, want := range map[error]bool{
		mysqld.ErrNoSpace: true, seglog.ErrFull: true, unix.ENOSPC: true,
		seglog.ErrFailed: false, context.DeadlineExceeded: false,
	} {
		if got := noSpace(fmt.Errorf("copy the data of node b: %w", errors.Join(err, errors.New("close")))); got != want {
			t.Errorf("%v: %t", err, got)
		}
	}
}
