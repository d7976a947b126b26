package vfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// write creates a file with this content and does not sync it.
func write(t *testing.T, f FS, name, text string) File {
	t.Helper()
	file, err := f.Create(name)
	must(t, err)
	_, err = file.WriteAt([]byte(text), 0)
	must(t, err)
	return file
}

func read(t *testing.T, f FS, name string) string {
	t.Helper()
	file, err := f.Open(name)
	must(t, err)
	defer func() { must(t, file.Close()) }()
	size, err := file.Size()
	must(t, err)
	b := make([]byte, size+10)
	n, err := file.ReadAt(b, 0)
	if int64(n) != size || !errors.Is(err, io.EOF) {
		t.Fatalf("read %d of %d bytes: %v", n, size, err)
	}
	return string(b[:n])
}

// TestSameBehaviour runs one scenario on each file system.
func TestSameBehaviour(t *testing.T) {
	nothing := func(Op, string) error { return nil }
	for name, f := range map[string]FS{"os": OS{}, "mem": NewMem(), "wrapped": Wrap(NewMem(), nothing)} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "a", "b")
			must(t, f.MkdirAll(dir))
			must(t, f.MkdirAll(dir))
			one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")

			file := write(t, f, one, "hello")
			_, err := file.WriteAt([]byte("XY"), 7)
			must(t, err)
			must(t, file.SyncData())
			if got := read(t, f, one); got != "hello\x00\x00XY" {
				t.Errorf("content %q", got)
			}
			must(t, file.Truncate(3))
			must(t, file.Truncate(6))
			must(t, file.Sync())
			must(t, file.Close())
			if got := read(t, f, one); got != "hel\x00\x00\x00" {
				t.Errorf("content after truncation %q", got)
			}
			must(t, write(t, f, two, "second").Close())
			must(t, f.SyncDir(dir))
			names, err := f.List(dir)
			must(t, err)
			if diff := cmp.Diff([]string{"one", "two"}, names); diff != "" {
				t.Error(diff)
			}
			must(t, f.Rename(two, one))
			if got := read(t, f, one); got != "second" {
				t.Errorf("content after rename %q", got)
			}
			info, err := f.Stat(one)
			must(t, err)
			if diff := cmp.Diff(Info{Size: 6}, info); diff != "" {
				t.Error(diff)
			}
			info, err = f.Stat(dir)
			must(t, err)
			if !info.Dir {
				t.Error("directory is none")
			}
			rw, err := f.OpenReadWrite(one)
			must(t, err)
			_, err = rw.WriteAt([]byte("S"), 0)
			must(t, err)
			must(t, rw.Close())
			if got := read(t, f, one); got != "Second" {
				t.Errorf("content after write %q", got)
			}
			must(t, write(t, f, one, "").Close())
			if got := read(t, f, one); got != "" {
				t.Errorf("content after create %q", got)
			}
			must(t, f.Remove(one))
			checkMoves(t, f, dir)
			checkMissing(t, f, dir)
			checkLock(t, f, dir)
			must(t, write(t, f, two, "x").Close())
			must(t, f.RemoveAll(filepath.Dir(dir)))
			must(t, f.RemoveAll(filepath.Dir(dir)))
			if _, err := f.List(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("list of a removed directory: %v", err)
			}
		})
	}
}

// checkMoves renames between directories.
func checkMoves(t *testing.T, f FS, dir string) {
	t.Helper()
	from, to := filepath.Join(dir, "from", "deep"), filepath.Join(dir, "to")
	must(t, f.MkdirAll(from))
	must(t, f.MkdirAll(to))
	must(t, write(t, f, filepath.Join(from, "file"), "one").Close())
	must(t, f.Rename(filepath.Join(from, "file"), filepath.Join(to, "file")))
	must(t, write(t, f, filepath.Join(from, "file"), "two").Close())
	must(t, f.Rename(filepath.Dir(from), filepath.Join(to, "moved")))
	if got := read(t, f, filepath.Join(to, "file")) + read(t, f, filepath.Join(to, "moved", "deep", "file")); got != "onetwo" {
		t.Errorf("what was moved is %q", got)
	}
	if _, err := f.Stat(filepath.Dir(from)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that was moved is there still: %v", err)
	}
	must(t, f.RemoveAll(to))
}

// TestCrashMoves: a rename between directories has happened fully or not at all, until one of the two
// directories is synced.
func TestCrashMoves(t *testing.T) {
	for _, synced := range []string{"", "/a", "/b"} {
		m := NewMem()
		must(t, m.MkdirAll("/a/dir"))
		must(t, m.MkdirAll("/b"))
		for _, name := range []string{"/a/file", "/a/dir/file"} {
			f := write(t, m, name, "x")
			must(t, f.Sync())
			must(t, m.SyncDir(filepath.Dir(name)))
		}
		must(t, m.Rename("/a/file", "/b/file"))
		must(t, m.Rename("/a/dir", "/b/dir"))
		want := [][]string{{"x"}, {"missing"}}
		if synced == "" {
			want = [][]string{{"x", "missing"}, {"x", "missing"}}
		} else {
			must(t, m.SyncDir(synced))
		}
		for _, name := range []string{"file", "dir/file"} {
			wantOutcomes(t, m, "/b/"+name, want[0]...)
			wantOutcomes(t, m, "/a/"+name, want[1]...)
			for seed := range uint64(64) {
				disk := m.CrashClone(seed)
				_, before := disk.Stat("/a/" + name)
				_, after := disk.Stat("/b/" + name)
				if (before == nil) == (after == nil) {
					t.Fatalf("%s on disk %d: %v, %v", name, seed, before, after)
				}
			}
		}
	}
}

func checkMissing(t *testing.T, f FS, dir string) {
	t.Helper()
	name := filepath.Join(dir, "missing")
	_, openErr := f.Open(name)
	_, writeErr := f.OpenReadWrite(name)
	_, statErr := f.Stat(name)
	_, createErr := f.Create(filepath.Join(name, "below"))
	_, listErr := f.List(name)
	for call, err := range map[string]error{
		"open": openErr, "open for writing": writeErr, "stat": statErr, "create": createErr, "list": listErr,
		"remove": f.Remove(name), "rename": f.Rename(name, name+"2"), "sync": f.SyncDir(name),
	} {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", call, err)
		}
	}
}

func checkLock(t *testing.T, f FS, dir string) {
	t.Helper()
	lock, err := f.Lock(dir)
	must(t, err)
	if _, err := f.Lock(dir); !errors.Is(err, ErrLocked) {
		t.Errorf("second lock: %v", err)
	}
	must(t, lock.Close())
	lock, err = f.Lock(dir)
	must(t, err)
	must(t, lock.Close())
}

// outcomes returns the contents that a file may have after a power loss, over many seeds; "missing" if the file
// is not there.
func outcomes(m *Mem, name string) map[string]int {
	found := map[string]int{}
	for seed := range uint64(400) {
		f, err := m.CrashClone(seed).Open(name)
		if err != nil {
			found["missing"]++
			continue
		}
		size, _ := f.Size()
		b := make([]byte, size)
		_, _ = f.ReadAt(b, 0)
		found[string(b)]++
	}
	return found
}

func wantOutcomes(t *testing.T, m *Mem, name string, want ...string) {
	t.Helper()
	found := outcomes(m, name)
	for _, w := range want {
		if found[w] == 0 {
			t.Errorf("%s never was %q", name, short(w))
		}
		delete(found, w)
	}
	for f := range found {
		t.Errorf("%s was %q", name, short(f))
	}
}

func short(s string) string {
	if len(s) > SectorBytes {
		return s[:3] + "…" + s[len(s)-3:]
	}
	return s
}

func TestCrashContent(t *testing.T) {
	m := NewMem()
	f := write(t, m, "/f", "old")
	must(t, m.SyncDir("/"))
	wantOutcomes(t, m, "/f", "", "old")
	must(t, f.SyncData())
	wantOutcomes(t, m, "/f", "old")
	_, err := f.WriteAt([]byte("new"), 0)
	must(t, err)
	_, err = f.WriteAt([]byte("er"), 3)
	must(t, err)
	wantOutcomes(t, m, "/f", "old", "new", "newer", "older")
	must(t, f.Sync())
	wantOutcomes(t, m, "/f", "newer")
}

// TestCrashSectors: each sector survives or is lost on its own, in any order.
func TestCrashSectors(t *testing.T) {
	m := NewMem()
	blank := string(make([]byte, SectorBytes))
	a, b := string(bytes.Repeat([]byte("a"), SectorBytes)), string(bytes.Repeat([]byte("b"), SectorBytes))
	f := write(t, m, "/f", blank+blank)
	must(t, f.Sync())
	must(t, m.SyncDir("/"))
	_, err := f.WriteAt([]byte(a+b), 0)
	must(t, err)
	wantOutcomes(t, m, "/f", blank+blank, a+blank, blank+b, a+b)
	// A sector is written as a whole, even if only a part of it changes.
	must(t, f.Sync())
	_, err = f.WriteAt([]byte("xy"), SectorBytes-1)
	must(t, err)
	wantOutcomes(t, m, "/f", a+b, a[1:]+"x"+b, a+"y"+b[1:], a[1:]+"xy"+b[1:])
}

func TestCrashTruncation(t *testing.T) {
	m := NewMem()
	f := write(t, m, "/f", "0123456789")
	must(t, f.Sync())
	must(t, m.SyncDir("/"))
	must(t, f.Truncate(4))
	wantOutcomes(t, m, "/f", "0123456789", "0123")
	_, err := f.WriteAt([]byte("AB"), 4)
	must(t, err)
	wantOutcomes(t, m, "/f", "0123456789", "0123", "0123AB", "0123AB6789")
	// fdatasync does not make a shorter length durable.
	must(t, f.SyncData())
	wantOutcomes(t, m, "/f", "0123456789", "0123", "0123AB", "0123AB6789")
	must(t, f.Sync())
	wantOutcomes(t, m, "/f", "0123AB")
}

func TestForgetUnsynced(t *testing.T) {
	m := NewMem()
	f := write(t, m, "/f", "old")
	must(t, f.Sync())
	must(t, m.SyncDir("/"))
	_, err := f.WriteAt([]byte("NEW"), 0)
	must(t, err)
	must(t, m.ForgetUnsynced("/f"))
	must(t, f.Sync())
	if got := read(t, m, "/f"); got != "NEW" {
		t.Errorf("content %q", got)
	}
	wantOutcomes(t, m, "/f", "old")
	_, err = f.WriteAt([]byte("N"), 0)
	must(t, err)
	must(t, f.Sync())
	wantOutcomes(t, m, "/f", "Nld")
}

func TestCrashNames(t *testing.T) {
	m := NewMem()
	f := write(t, m, "/f", "one")
	must(t, f.Sync())
	wantOutcomes(t, m, "/f", "missing", "one")
	must(t, m.SyncDir("/"))
	wantOutcomes(t, m, "/f", "one")

	g := write(t, m, "/g", "two")
	must(t, g.Sync())
	must(t, m.Rename("/g", "/f"))
	wantOutcomes(t, m, "/f", "one", "two")
	must(t, m.SyncDir("/"))
	wantOutcomes(t, m, "/f", "two")
	wantOutcomes(t, m, "/g", "missing")

	must(t, m.Remove("/f"))
	wantOutcomes(t, m, "/f", "two", "missing")
	must(t, m.SyncDir("/"))
	wantOutcomes(t, m, "/f", "missing")
}

func TestCrashCloneIsSeparate(t *testing.T) {
	m := NewMem()
	f := write(t, m, "/f", "same")
	must(t, f.Sync())
	must(t, m.SyncDir("/"))
	clone := m.CrashClone(1)
	_, err := f.WriteAt([]byte("SAME"), 0)
	must(t, err)
	if got := read(t, clone, "/f"); got != "same" {
		t.Errorf("clone has %q", got)
	}
	if got := read(t, m.CrashClone(0), "/f"); got != "same" {
		t.Errorf("seed 0 kept %q", got)
	}
	if got := read(t, m.CrashClone(1), "/f"); got != "SAME" {
		t.Errorf("seed 1 kept %q", got)
	}
}

func TestFailNth(t *testing.T) {
	errDisk := errors.New("disk")
	isWrite := func(op Op, path string) bool { return op == OpWrite && path == "/f" }
	f := Wrap(NewMem(), FailNth(2, errDisk, isWrite))
	other, err := f.Create("/other")
	must(t, err)
	file, err := f.Create("/f")
	must(t, err)
	var failed []int
	for i := range 4 {
		_, err := other.WriteAt([]byte("x"), 0)
		must(t, err)
		if _, err := file.WriteAt([]byte{byte('0' + i)}, int64(i)); errors.Is(err, errDisk) {
			failed = append(failed, i)
		}
	}
	if diff := cmp.Diff([]int{1}, failed); diff != "" {
		t.Error(diff)
	}
	if got := read(t, f, "/f"); got != "0\x0023" {
		t.Errorf("content %q", got)
	}
}

// TestHookSeesEachCall: tests can make only those calls fail that a hook sees.
func TestHookSeesEachCall(t *testing.T) {
	var seen []Op
	errAll := errors.New("all")
	var fail error
	f := Wrap(NewMem(), func(op Op, _ string) error {
		seen = append(seen, op)
		return fail
	})
	file, err := f.Create("/f")
	must(t, err)
	calls := func() []error {
		_, open := f.Open("/f")
		_, openRW := f.OpenReadWrite("/f")
		_, list := f.List("/")
		_, stat := f.Stat("/f")
		lock, lockErr := f.Lock("/")
		if lockErr == nil {
			must(t, lock.Close())
		}
		_, write := file.WriteAt([]byte("x"), 0)
		_, readErr := file.ReadAt(make([]byte, 1), 0)
		_, create := f.Create("/g")
		return []error{
			open, openRW, list, stat, lockErr, write, readErr, create,
			file.Truncate(1), file.Sync(), file.SyncData(), f.Rename("/g", "/h"), f.Link("/h", "/i"), f.Remove("/h"), f.Remove("/i"),
			f.MkdirAll("/d"), f.SyncDir("/"), f.RemoveAll("/d"),
		}
	}
	for _, err := range calls() {
		must(t, err)
	}
	want := []Op{
		OpCreate, OpOpen, OpOpenReadWrite, OpList, OpStat, OpLock, OpWrite, OpRead, OpCreate,
		OpTruncate, OpSync, OpSyncData, OpRename, OpLink, OpRemove, OpRemove, OpMkdirAll, OpSyncDir, OpRemoveAll,
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Error(diff)
	}
	fail = errAll
	for i, err := range calls() {
		if !errors.Is(err, errAll) {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

func TestLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := Wrap(NewMem(), Latency(func(op Op, _ string) time.Duration {
			if op == OpSyncData {
				return 3 * time.Second
			}
			return 0
		}))
		file, err := f.Create("/f")
		must(t, err)
		begin := time.Now()
		must(t, file.SyncData())
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("sync took %v", took)
		}
	})
}

func TestOSMkdirAllOverFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	must(t, write(t, OS{}, name, "x").Close())
	if err := (OS{}).MkdirAll(name); !errors.Is(err, fs.ErrExist) {
		t.Errorf("mkdir over a file: %v", err)
	}
}

// TestOSOpensFilesAlone: no link is followed, and opening a FIFO does not wait for a writer.
func TestOSOpensFilesAlone(t *testing.T) {
	dir := t.TempDir()
	file, link, fifo := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	if err := errors.Join(os.WriteFile(file, []byte("kept"), 0o600), os.Symlink(file, link), unix.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatal(err)
	}
	for what, open := range map[string]func(string) (File, error){"open": OS{}.Open, "open to write": OS{}.OpenReadWrite, "create": OS{}.Create} {
		if f, err := open(link); err == nil {
			t.Errorf("%s: a link was followed", what)
			_ = f.Close()
		}
	}
	f, err := OS{}.Open(fifo)
	if err != nil {
		t.Fatal(err)
	}
	if size, err := f.Size(); size != 0 || err != nil {
		t.Errorf("a FIFO has %d bytes, %v", size, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "kept" {
		t.Errorf("the file has %q, %v", text, err)
	}
}
