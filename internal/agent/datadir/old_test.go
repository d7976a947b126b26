package datadir

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/log/vfs/vfstest"
)

// tree returns the files below a directory, by their names in it.
func tree(t *testing.T, fs vfs.FS, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := New(fs, dir).Join(name)
		info, err := fs.Stat(path)
		switch {
		case err != nil:
			t.Fatal(err)
		case info.Dir:
			for below, content := range tree(t, fs, path) {
				files[New(fs, name).Join(below)] = content
			}
		default:
			b, err := vfs.ReadFile(fs, path)
			files[name] = text(t, string(b), err)
		}
	}
	return files
}

// livedIn is the disk of a node that has lived and is to be rebuilt, with all that it gives up.
func livedIn(t *testing.T, id Identity) (mem *vfs.Mem, lived map[string]string) {
	t.Helper()
	mem = vfs.NewMem()
	for _, dir := range []string{"log", "mysql/data", "errant/x"} {
		if err := mem.MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	d := New(mem, ".")
	for _, name := range []string{"log/state", "mysql/data/ibdata1", ClusterState, Durable, Peers, Met, "secrets.toml", "errant/x/y", Fence} {
		if err := d.replace(name, "of before: "+name); err != nil {
			t.Fatal(err)
		}
	}
	begun := id
	begun.Log = false
	if err := errors.Join(d.WriteIdentity(begun), d.WriteIdentity(id), mem.SyncDir("log"), mem.SyncDir("mysql/data"), mem.SyncDir("errant/x")); err != nil {
		t.Fatal(err)
	}
	lived = tree(t, mem, ".")
	if err := NewHome(d, id, false).Rebuild(anInstance, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	return mem, lived
}

// TestSetAsideCrashes: all that is given up is in old/ afterwards, unchanged, at whatever operation the node is
// killed, or loses its power, and starts again. A start in between writes a met.json of its own.
func TestSetAsideCrashes(t *testing.T) {
	before := Identity{Format: FormatFirst, Node: "a", Log: true}
	setAside := func(fs vfs.FS) error {
		h, err := Visit(New(fs, "."), Identity{})
		if err != nil {
			return err
		}
		return h.SetAside()
	}
	var lived map[string]string
	disk := func() (mem *vfs.Mem) {
		mem, lived = livedIn(t, before)
		return mem
	}
	check := func(t *testing.T, disk *vfs.Mem) {
		if d := New(disk, "."); !d.Has(Met) {
			if err := d.WriteMet(Instances{2: "new"}); err != nil {
				t.Fatal(err)
			}
		}
		if err := setAside(disk); err != nil {
			t.Fatal(err)
		}
		h, err := Visit(New(disk, "."), Identity{})
		if err != nil || h.Own().GivenUp != nil || h.Life() != Joining {
			t.Fatalf("%v, %+v", err, h.Own())
		}
		after, moved, stays := tree(t, disk, "."), map[string]string{}, map[string]string{}
		for name, content := range lived {
			switch name {
			case "secrets.toml", "errant/x/y", Fence:
				stays[name] = content
			default:
				moved[name] = content
			}
		}
		if diff := cmp.Diff(moved, tree(t, disk, New(disk, OldDir).Join("19700101T000000Z-rebuild"))); diff != "" {
			t.Fatalf("in old/ (-want +got):\n%s", diff)
		}
		for name := range after {
			if _, ok := stays[name]; !ok && lived[name] != "" && name != Met && name != IdentityFile {
				t.Fatalf("%s is here still", name)
			}
		}
		for name, content := range stays {
			if after[name] != content {
				t.Fatalf("%s is %q", name, after[name])
			}
		}
	}
	if operations := vfstest.Interruptions(t, disk, setAside, check); operations < 12 {
		t.Errorf("%d operations alone have failed", operations)
	}
	whole := disk()
	if err := setAside(whole); err != nil {
		t.Fatal(err)
	}
	check(t, whole.CrashClone(0))
}

// TestSetAsideTwiceAtOneTime: the wall clock was set back, so the same time comes a second time. What is given up
// then is moved beside what was given up the first time.
func TestSetAsideTwiceAtOneTime(t *testing.T) {
	mem, _ := livedIn(t, Identity{Format: FormatFirst, Node: "a", Log: true})
	for _, want := range []string{"19700101T000000Z-rebuild", "19700101T000000Z-rebuild-2"} {
		h, err := Visit(New(mem, "."), Identity{})
		if err != nil {
			t.Fatal(err)
		}
		if h.Life() != Joining {
			if err := h.Rebuild(anInstance, time.Unix(0, 0)); err != nil {
				t.Fatal(err)
			}
		}
		if given := h.Own().GivenUp; given == nil || given.Dir != want {
			t.Fatalf("given up: %+v, want it in %s", given, want)
		}
		if err := h.SetAside(); err != nil {
			t.Fatal(err)
		}
		if moved := tree(t, mem, New(mem, OldDir).Join(want)); moved["log/state"] == "" {
			t.Errorf("%s has %v", want, moved)
		}
		if err := errors.Join(mem.MkdirAll("log"), h.replace("log/state", "of now"), h.Joined(cluster.StatePoint{})); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRebuildOnASilentDisk: if the disk does not say what is there, a node that is to be rebuilt gives up nothing,
// and keeps its life. Its data must neither be deleted as leftovers, nor be moved over what was given up before.
func TestRebuildOnASilentDisk(t *testing.T) {
	broken := errors.New("broken")
	begun := Identity{Format: FormatFirst, Node: "a"}
	for name, c := range map[string]struct {
		before Identity
		silent string
	}{
		"its log":    {begun, "log"},
		"its mysqld": {begun, "mysql"},
		"old data":   {Identity{Format: FormatFirst, Node: "a", Log: true}, New(nil, OldDir).Join("19700101T000000Z-rebuild")},
	} {
		mem, _ := livedIn(t, Identity{Format: FormatFirst, Node: "a", Log: true})
		silent := vfs.Wrap(mem, func(op vfs.Op, path string) error {
			if op == vfs.OpStat && path == c.silent {
				return broken
			}
			return nil
		})
		h := NewHome(New(silent, "."), c.before, false)
		if err := h.Rebuild(anInstance, time.Unix(0, 0)); !errors.Is(err, broken) || h.Life() == Joining {
			t.Errorf("%s: %v, and it is %s", name, err, h.Life())
		}
	}
}
