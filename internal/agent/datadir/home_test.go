package datadir

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/log/vfs/vfstest"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/replay"
)

const anInstance = "02000000000000000000000000000000"

// home is a node's home in a directory with a log, unless empty.
func home(t *testing.T, fs vfs.FS, id Identity, empty bool) *Home {
	t.Helper()
	if !empty {
		if err := fs.MkdirAll("log"); err != nil {
			t.Fatal(err)
		}
	}
	return NewHome(New(fs, "."), id, false)
}

// TestWhatIsGivenUp: what is left of an earlier try to join is not kept.
func TestWhatIsGivenUp(t *testing.T) {
	now := time.Date(2026, 11, 22, 15, 30, 0, 0, time.UTC)
	for _, c := range []struct {
		name  string
		id    Identity
		empty bool
		want  string
	}{
		{"a rebuild", Identity{Log: true}, false, "20261122T153000Z-rebuild"},
		{"after a recovery without it", Identity{Log: true, Superseded: &cluster.Recovery{Version: 1_000_000, Node: "b"}}, false, "20261122T153000Z-recovered"},
		{"told again before it was moved", Identity{Joining: true, GivenUp: &GivenUp{Dir: "first"}}, false, "first"},
		{"a copy that is not complete", Identity{Joining: true}, false, ""},
		{"an empty directory", Identity{}, true, ""},
	} {
		h := home(t, vfs.NewMem(), c.id, c.empty)
		if err := h.Rebuild(anInstance, now); err != nil {
			t.Fatal(err)
		}
		got := ""
		if g := h.Own().GivenUp; g != nil {
			got = g.Dir
		}
		if id := h.Own(); got != c.want || h.Life() != Joining || id.Instance != anInstance || id.Superseded != nil {
			t.Errorf("%s: %q, want %q; it is %+v", c.name, got, c.want, id)
		}
	}
}

// TestLostFilesAreNamed: whoever has lost one file is not told that all are lost, or that the directory is not quorate's.
func TestLostFilesAreNamed(t *testing.T) {
	mem := vfs.NewMem()
	h := home(t, mem, Identity{Log: true}, false)
	for _, step := range []struct {
		file, want string
		check      func() error
	}{
		{"", "the log is gone from log", h.CheckLog},
		{"log/lost+found", "the log is gone from log", h.CheckLog}, // a new disk is mounted there
		{"log/segment", "log/state is gone, and the log's other files are there: put it back", h.CheckLog},
		{"ibdata1", "it is not quorate's; choose an empty one", h.CheckEmpty},
		{Peers, "its identity.json is lost: put it back", h.CheckEmpty},
	} {
		if step.file != "" {
			write(t, mem, step.file, "")
		}
		if step.file == "ibdata1" {
			if err := mem.Rename("log", "ibdata2"); err != nil {
				t.Fatal(err)
			}
		}
		if err := step.check(); err == nil || !strings.Contains(err.Error(), step.want) {
			t.Errorf("with %q: %v, want %q", step.file, err, step.want)
		}
	}
}

// TestLifeIsOnDiskFirst: if the disk fails, at any operation, a node stays in its life. The new life is written when
// it is asked for again. Then a start finds the same life.
func TestLifeIsOnDiskFirst(t *testing.T) {
	broken := errors.New("broken")
	all := identities()
	for name, c := range map[string]struct {
		from Life
		step func(*Home) error
	}{
		"has a log":   {Begun, (*Home).HasLog},
		"has a state": {Member, (*Home).HasState},
		"has changes": {Member, (*Home).HasChanges},
		"has joined": {Joining, func(h *Home) error {
			return h.Joined(cluster.StatePoint{State: cluster.State{Recovered: &cluster.Recovery{Node: "b"}}})
		}},
		"is removed":    {Member, (*Home).Remove},
		"is superseded": {Member, func(h *Home) error { return h.Supersede(cluster.Recovery{Version: 7}) }},
		"is rebuilt":    {Superseded, func(h *Home) error { return h.Rebuild(anInstance, time.Unix(0, 0)) }},
		"has moved":     {Joining, (*Home).SetAside},
	} {
		before := all[c.from]
		switch {
		case c.from == Member:
			before.State, before.Recovered = false, false
		case name == "has joined":
			before.GivenUp = nil // it was moved away before
		}
		failed := 0
		for n := int64(1); ; n++ {
			mem := vfs.NewMem()
			if err := New(mem, ".").replace(IdentityFile, before); err != nil {
				t.Fatal(err)
			}
			h := home(t, vfs.Wrap(mem, vfs.FailNth(n, broken, func(op vfs.Op, name string) bool { return op.Changes() && name != "log" })), before, false)
			err := c.step(h)
			if err != nil {
				failed++
				if d := cmp.Diff(before, h.Own()); d != "" || !errors.Is(err, broken) {
					t.Fatalf("%s: it failed with %v, and is (-want +got):\n%s", name, err, d)
				}
				if err := c.step(h); err != nil {
					t.Fatal(err)
				}
			}
			again, readErr := Visit(New(mem.CrashClone(0), "."), Identity{})
			if readErr != nil {
				t.Fatal(readErr)
			}
			if d := cmp.Diff(h.Own(), again.Own()); d != "" || cmp.Equal(before, h.Own()) {
				t.Fatalf("%s: it is %+v, and on disk (-memory +disk):\n%s", name, h.Own(), d)
			}
			if err == nil {
				break
			}
		}
		if failed < 4 {
			t.Errorf("%s: %d operations alone have failed", name, failed)
		}
	}
}

// TestJoinCrashes: a node becomes a member only together with the mark of the data that it has copied. If it ends
// before that, at any point, it joins again from the beginning, and nothing of the copy counts.
func TestJoinCrashes(t *testing.T) {
	before := Identity{Instance: anInstance, Joining: true, Recovered: true}
	disk := func() *vfs.Mem {
		mem := vfs.NewMem()
		if err := New(mem, ".").replace(IdentityFile, before); err != nil {
			t.Fatal(err)
		}
		return mem
	}
	mark := replay.Mark{Index: 7, Witness: gtid.GTID{UUID: gtid.UUID{1}, N: 7}}
	visit := func(fs vfs.FS) *Home {
		h, err := Visit(New(fs, "."), Identity{})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	join := func(fs vfs.FS) error {
		h := visit(fs)
		if err := h.Clear(); err != nil {
			return err
		}
		if err := errors.Join(fs.MkdirAll("mysql/data"), fs.MkdirAll(SeedDir), fs.MkdirAll("log")); err != nil {
			return err
		}
		if err := h.Copied("uuid", mark); err != nil {
			return err
		}
		return h.Joined(cluster.StatePoint{State: cluster.State{Version: 3}, Index: 9, Through: 9})
	}
	seen := map[Life]int{}
	check := func(t *testing.T, disk *vfs.Mem) {
		h := visit(disk)
		seen[h.Life()]++
		if h.Life() == Joining {
			if err := join(disk); err != nil || !h.Blank() {
				t.Fatalf("blank: %t, %v", h.Blank(), err)
			}
			h = visit(disk)
		}
		var m Mark
		if err := m.Load(h.Dir); err != nil || m.Of("uuid") != mark || h.Life() != Member || h.Has(SeedDir) || !h.Has(ClusterState) {
			t.Errorf("a %s with mark %v, %v; %s is there: %t", h.Life(), m.Of("uuid"), err, SeedDir, h.Has(SeedDir))
		}
	}
	vfstest.Interruptions(t, disk, join, check)
	if seen[Joining] == 0 || seen[Member] == 0 {
		t.Errorf("seen: %v", seen)
	}
}
