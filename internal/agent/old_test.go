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
	"github.com/quorate/quorate/internal/raft/transport"
)

// livedDir is the directory of a node that has lived: all that a rebuild gives up.
func livedDir(t *testing.T, path string) (d *dataDir, files map[string]string) {
	t.Helper()
	d = openTestDir(t, testConfig(t, path))
	if err := d.known.Check(transport.Identity{Node: 2, NodeName: "b", Instance: [16]byte{1}}); err != nil {
		t.Fatal(err)
	}
	if err := d.HasLog(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"log/state", "mysql/data/ibdata1", datadir.ClusterState, datadir.Durable, secretsFile, "errant/x/y", datadir.Fence} {
		writeTestFile(t, d.Join(name), "of before: "+name)
	}
	files = treeOf(t, path)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return d, files
}

func writeTestFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// treeOf returns the files below a directory.
func treeOf(t *testing.T, path string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(path, func(name string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(name)
		files[strings.TrimPrefix(name, path+"/")] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestRebuildMovesAside: whatever is given up is in old/ afterwards, as it was, at
// whatever step the node was killed and started again.
func TestRebuildMovesAside(t *testing.T) {
	const instance = "02000000000000000000000000000000"
	for killed := 0; ; killed++ {
		path := filepath.Join(t.TempDir(), "data")
		d, before := livedDir(t, path)
		if err := d.Rebuild(instance, time.Now()); err != nil {
			t.Fatal(err)
		}
		dir := d.Own().GivenUp.Dir
		steps := d.setAsideSteps()
		if killed > len(steps) {
			break
		}
		for _, step := range steps[:killed] {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
		d = openTestDir(t, testConfig(t, path))
		if err := d.setAside(); err != nil || d.Own().GivenUp != nil || !d.Own().Joining {
			t.Fatalf("killed after step %d: %v, %+v", killed, err, d.Own())
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		after, moved := treeOf(t, path), map[string]string{}
		for _, name := range []string{"log/state", "mysql/data/ibdata1", datadir.ClusterState, datadir.Durable, datadir.Peers, datadir.Met, datadir.IdentityFile} {
			moved[name] = before[name]
			if _, stays := after[name]; stays && name != datadir.IdentityFile && name != datadir.Met {
				t.Errorf("killed after step %d: %s is here still", killed, name)
			}
		}
		if diff := cmp.Diff(moved, treeOf(t, filepath.Join(path, oldDir, dir))); diff != "" {
			t.Errorf("killed after step %d (-want +got):\n%s", killed, diff)
		}
		for _, name := range []string{secretsFile, "errant/x/y", datadir.Fence} {
			if after[name] != before[name] {
				t.Errorf("killed after step %d: %s is %q", killed, name, after[name])
			}
		}
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
		writeTestFile(t, a.data.Join(oldDir, name, "log", "state"), "1234")
	}
	names := func() (found []string) {
		entries, err := os.ReadDir(a.data.Join(oldDir))
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
		{Dir: a.data.Join(oldDir, kept[0]), Bytes: 4, Until: time.Date(2026, 11, 10, 0, 0, 0, 0, time.UTC)},
		{Dir: a.data.Join(oldDir, kept[1]), Bytes: 4, Until: time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)},
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
