package founding

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/log/vfs/vfstest"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

const (
	oldUUID = "11111111-1111-1111-1111-111111111111"
	newUUID = "22222222-2222-2222-2222-222222222222"
)

// server is the disk of a host with a server's data, which is shut down.
func server(t *testing.T) *vfs.Mem {
	t.Helper()
	fs := vfs.NewMem()
	for _, dir := range []string{"node", "srv/db/shop"} {
		if err := fs.MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range serverFiles(oldUUID) {
		f, err := fs.Create(name)
		if err == nil {
			_, err = f.WriteAt([]byte(content), 0)
		}
		if err == nil {
			err = errors.Join(f.Sync(), f.Close(), fs.SyncDir(filepath.Dir(name)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return fs
}

func serverFiles(uuid string) map[string]string {
	return map[string]string{
		"srv/db/auto.cnf": "[auto]\nserver-uuid=" + uuid + "\n", "srv/db/ibdata1": "the system tablespace", "srv/db/shop/t.ibd": "rows",
	}
}

func logAt(fs vfs.FS) seglog.Options {
	return seglog.Options{FS: fs, Dir: "node/log", Identity: [16]byte{1}, SegmentBytesMax: 8 << 10}
}

func adoption(t *testing.T) Record {
	t.Helper()
	executed, err := gtid.ParseSet(oldUUID + ":1-5:7-90")
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(Adoption{
		From: "srv/db", By: "somebody", At: time.Unix(1000, 0), Executed: executed, UUIDBefore: oldUUID, ServerUUID: newUUID,
		Identity: datadir.Identity{Format: 1, Cluster: "shop", ClusterID: 5, Node: "a", NodeID: 1, Instance: strings.Repeat("ab", 16)},
		Members:  []cluster.Member{{ID: 1, Name: "a", Kind: cluster.KindFull}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// contents reads all files below a directory, by their names in it.
func contents(t *testing.T, fs vfs.FS, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		info, err := fs.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Dir {
			for below, content := range contents(t, fs, path) {
				all[filepath.Join(name, below)] = content
			}
			continue
		}
		b, err := vfs.ReadFile(fs, path)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(b)
	}
	return all
}

// wantAdopted checks that the data belong to a node, on which an agent can start.
func wantAdopted(t *testing.T, fs vfs.FS) {
	t.Helper()
	if there, err := find(fs, "srv/db"); err != nil || there {
		t.Fatalf("the data are where they were: %t, %v", there, err)
	}
	want := map[string]string{}
	for name, content := range serverFiles(newUUID) {
		want[strings.TrimPrefix(name, "srv/db/")] = content
	}
	if diff := cmp.Diff(want, contents(t, fs, "node/mysql/data")); diff != "" {
		t.Fatalf("the data differ (-want +got):\n%s", diff)
	}
	r, phase, err := Look(fs, "node")
	if err != nil || phase != Done {
		t.Fatalf("phase %d, %v", phase, err)
	}
	d := datadir.New(fs, "node")
	id, found, err := d.Identity()
	if err != nil || !found {
		t.Fatal(found, err)
	}
	if life, err := id.Life(); err != nil || life != datadir.Member || id.Instance != r.Identity.Instance {
		t.Fatalf("%+v is %s, %v", id, life, err)
	}
	p, err := d.State([]cluster.Member{{ID: 1, Name: "a", Kind: cluster.KindFull}}, true, firstEntry)
	if err != nil || p.Through != firstEntry-1 || len(p.State.Voters()) != 1 {
		t.Fatalf("state %+v, %v", p, err)
	}
	if m, found, err := d.MarkRecord(); err != nil || !found || m.ServerUUID != newUUID || m.Index != 1 || m.Witness != oldUUID+":5" {
		t.Fatalf("mark %+v, %t, %v", m, found, err)
	}
	log, err := seglog.Open(logAt(fs))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if got := log.Segments()[0].GTIDsBefore.String(); got != r.Executed || log.FirstIndex() != 2 || log.LastIndex() != 2 {
		t.Fatalf("the log has entries %d-%d, behind %s", log.FirstIndex(), log.LastIndex(), got)
	}
	if diff := cmp.Diff(seglog.HardState{Term: 1, Commit: 2}, log.HardState()); diff != "" {
		t.Fatalf("hard state (-want +got):\n%s", diff)
	}
}

// wantAsBefore checks that nothing has happened.
func wantAsBefore(t *testing.T, fs vfs.FS) {
	t.Helper()
	want := map[string]string{}
	for name, content := range serverFiles(oldUUID) {
		want[strings.TrimPrefix(name, "srv/db/")] = content
	}
	if diff := cmp.Diff(want, contents(t, fs, "srv/db")); diff != "" {
		t.Fatalf("the data differ (-want +got):\n%s", diff)
	}
	left := contents(t, fs, "node")
	delete(left, File+".tmp") // an empty directory may have a file that never got its name
	if len(left) > 0 {
		t.Fatalf("left in the node's directory: %v", left)
	}
}

// TestAdoptionIsTakenUp: an adoption that was interrupted at any point is finished, or has not begun.
func TestAdoptionIsTakenUp(t *testing.T) {
	r, made, not := adoption(t), 0, 0
	vfstest.Interruptions(t, func() *vfs.Mem { return server(t) }, func(fs vfs.FS) error { return r.Make(fs, "node", logAt(fs)) },
		func(t *testing.T, disk *vfs.Mem) {
			finish := func(fs vfs.FS) error { return Finish(fs, "node", logAt(fs)) }
			_, phase, err := Look(disk, "node")
			if err != nil {
				t.Fatal(err)
			}
			_ = finish(vfstest.Failing(disk, made%13+1)) // the second try may be interrupted as well
			if err := finish(disk); err != nil {
				t.Fatal(err)
			}
			if phase == None {
				not++
				if err := datadir.New(disk, "node").CheckEmpty(); err != nil {
					t.Fatal(err)
				}
				wantAsBefore(t, disk)
				return
			}
			made++
			wantAdopted(t, disk)
		})
	if made == 0 || not == 0 {
		t.Errorf("it was made %d times, and not %d times: the test has tested nothing", made, not)
	}
}

// TestAdoptionIsUndone: an adoption can be undone after an interruption at any point, and so can an undoing that was
// interrupted.
func TestAdoptionIsUndone(t *testing.T) {
	r, undone := adoption(t), 0
	undo := func(fs vfs.FS) error { return Undo(fs, "node", refuse) }
	check := func(t *testing.T, disk *vfs.Mem) {
		_ = undo(vfstest.Failing(disk, undone%11+1))
		if err := undo(disk); err != nil {
			t.Fatal(err)
		}
		undone++
		wantAsBefore(t, disk)
	}
	vfstest.Interruptions(t, func() *vfs.Mem { return server(t) }, func(fs vfs.FS) error { return r.Make(fs, "node", logAt(fs)) }, check)
	adopted := func() *vfs.Mem {
		fs := server(t)
		if err := r.Make(fs, "node", logAt(fs)); err != nil {
			t.Fatal(err)
		}
		return fs
	}
	vfstest.Interruptions(t, adopted, undo, check)
	// Its direction stays: what takes up an undoing does not adopt.
	vfstest.Interruptions(t, adopted, undo, func(t *testing.T, disk *vfs.Mem) {
		_, phase, err := Look(disk, "node")
		if err != nil {
			t.Fatal(err)
		}
		if err := Finish(disk, "node", logAt(disk)); err != nil {
			t.Fatal(err)
		}
		if phase == Done {
			wantAdopted(t, disk)
			return
		}
		wantAsBefore(t, disk)
	})
}

// refuse says that a start of mysqld has changed the data.
func refuse(Record) error { return ErrStarted }

// TestUndoneBehindAFailedStart: an adoption can be undone after a first start of mysqld that has changed nothing,
// even if the undoing is interrupted.
func TestUndoneBehindAFailedStart(t *testing.T) {
	r := adoption(t)
	adopted := func() *vfs.Mem {
		fs := server(t)
		err := r.Make(fs, "node", logAt(fs))
		if err == nil {
			var f vfs.File
			if f, err = fs.Create("node/mysql/incarnation"); err == nil {
				err = errors.Join(f.Close(), fs.SyncDir("node/mysql"))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		return fs
	}
	undo := func(fs vfs.FS) error { return Undo(fs, "node", func(Record) error { return nil }) }
	vfstest.Interruptions(t, adopted, undo, func(t *testing.T, disk *vfs.Mem) {
		if err := undo(disk); err != nil {
			t.Fatal(err)
		}
		wantAsBefore(t, disk)
	})
}

// TestNotUndone: the first start of mysqld changes the data.
func TestNotUndone(t *testing.T) {
	fs, r := server(t), adoption(t)
	if err := r.Make(fs, "node", logAt(fs)); err != nil {
		t.Fatal(err)
	}
	if f, err := fs.Create("node/mysql/incarnation"); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	if err := Undo(fs, "node", refuse); !errors.Is(err, ErrStarted) {
		t.Fatalf("undo: %v, want %v", err, ErrStarted)
	}
	wantAdopted(t, fs)
}

// TestNotUndoneAfterRebuild: a rebuild moves the data away, with mysqld's count of its starts.
// Nothing is removed then, at whatever point of the rebuild.
func TestNotUndoneAfterRebuild(t *testing.T) {
	for name, c := range map[string]struct {
		change func(fs *vfs.Mem, r Record) error
		want   string
	}{
		"ordered": {func(fs *vfs.Mem, r Record) error {
			r.Identity.Instance = strings.Repeat("cd", 16)
			return datadir.Replace(fs, "node", datadir.IdentityFile, r.Identity)
		}, ErrRebuilt.Error()},
		"moved": {func(fs *vfs.Mem, _ Record) error {
			return errors.Join(fs.MkdirAll("node/old/x"), fs.Rename("node/mysql", "node/old/x/mysql"))
		}, ErrRebuilt.Error()},
		"no identity": {func(fs *vfs.Mem, _ Record) error { return fs.Remove("node/identity.json") }, "has no identity.json"},
		"no data":     {func(fs *vfs.Mem, _ Record) error { return fs.Rename("node/mysql/data", "elsewhere") }, "mount the disk"},
		"made since":  {func(fs *vfs.Mem, _ Record) error { return fs.MkdirAll("srv/db") }, "move srv/db away"},
	} {
		t.Run(name, func(t *testing.T) {
			fs, r := server(t), adoption(t)
			if err := errors.Join(r.Make(fs, "node", logAt(fs)), c.change(fs, r)); err != nil {
				t.Fatal(err)
			}
			before := contents(t, fs, "node")
			err := Undo(fs, "node", refuse)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("undo: %v, want %q", err, c.want)
			}
			if diff := cmp.Diff(before, contents(t, fs, "node")); diff != "" {
				t.Errorf("undo has changed (-before +after):\n%s", diff)
			}
		})
	}
}

// TestAdoptionRefuses: data that are not as they were are left alone.
func TestAdoptionRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(fs *vfs.Mem) error
		want   string
	}{
		"both":    {func(fs *vfs.Mem) error { return fs.MkdirAll("node/mysql/data") }, "the data are in node/mysql/data. Something has made srv/db since"},
		"neither": {func(fs *vfs.Mem) error { return fs.RemoveAll("srv/db") }, "neither srv/db nor"},
		"another server": {func(fs *vfs.Mem) error {
			f, err := fs.Create("srv/db/auto.cnf")
			if err == nil {
				_, err = f.WriteAt([]byte("[auto]\nserver-uuid="+strings.Repeat("3", 36)+"\n"), 0)
			}
			return err
		}, "it was changed meanwhile"},
	} {
		t.Run(name, func(t *testing.T) {
			fs := server(t)
			if err := c.change(fs); err != nil {
				t.Fatal(err)
			}
			err := adoption(t).Make(fs, "node", logAt(fs))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("adopt: %v, want %q", err, c.want)
			}
		})
	}
	empty := Adoption{Executed: &gtid.Set{}}
	if _, err := New(empty); err == nil {
		t.Error("a server without GTIDs is adopted")
	}
}
