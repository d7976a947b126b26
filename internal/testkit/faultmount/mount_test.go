package faultmount

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// ownerVariable makes the test's program one that mounts and does nothing else.
const ownerVariable = "FAULTMOUNT_TEST_OWNER"

func TestMain(m *testing.M) {
	ServeChild()
	if dir := os.Getenv(ownerVariable); dir != "" {
		os.Exit(own(dir))
	}
	goleak.VerifyTestMain(m)
}

// own mounts dir/source at dir/at, says so, and waits for its end.
func own(dir string) int {
	if err := os.Unsetenv(ownerVariable); err != nil {
		return 1
	}
	if _, err := Start(context.Background(), filepath.Join(dir, "source"), filepath.Join(dir, "at")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("mounted")
	select {}
}

// fixture is a mount and its two directories.
type fixture struct {
	*Mount
	source, at string
}

func directories(t *testing.T) (dir string, f *fixture) {
	t.Helper()
	if err := Available(); err != nil {
		t.Skip(err)
	}
	dir = t.TempDir()
	f = &fixture{source: filepath.Join(dir, "source"), at: filepath.Join(dir, "at")}
	if err := errors.Join(os.Mkdir(f.source, 0o755), os.Mkdir(f.at, 0o755)); err != nil {
		t.Fatal(err)
	}
	return dir, f
}

func mount(t *testing.T) *fixture {
	t.Helper()
	_, f := directories(t)
	f.remount(t)
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *fixture) remount(t *testing.T) {
	t.Helper()
	m, err := Start(t.Context(), f.source, f.at)
	if err != nil {
		t.Fatal(err)
	}
	f.Mount = m
}

// faults sets the faults.
func (f *fixture) faults(t *testing.T, faults ...Fault) {
	t.Helper()
	if err := f.SetFaults(faults...); err != nil {
		t.Fatal(err)
	}
}

// path is a file's in the mount.
func (f *fixture) path(name string) string { return filepath.Join(f.at, name) }

// create makes a file with some content, synced.
func (f *fixture) create(t *testing.T, name, content string) *os.File {
	t.Helper()
	file, err := os.Create(f.path(name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	write(t, file, content, 0)
	if err := file.Sync(); err != nil {
		t.Fatal(err)
	}
	return file
}

func write(t *testing.T, file *os.File, content string, at int64) {
	t.Helper()
	if _, err := file.WriteAt([]byte(content), at); err != nil {
		t.Fatal(err)
	}
}

// must fails the test if a file below dir has other content.
func must(t *testing.T, dir, name, want string) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil || string(got) != want {
		t.Errorf("%s in %s is %q (%v), want %q", name, dir, got, err, want)
	}
}

// await polls until cond holds.
func await(t *testing.T, what string, cond func() (bool, error)) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		ok, err := cond()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not so (%v)", what, err)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// mounted tells whether something is mounted at a directory.
func (f *fixture) mounted() (bool, error) {
	var st unix.Statfs_t
	const fuseMagic = 0x65735546
	err := unix.Statfs(f.at, &st)
	return errors.Is(err, syscall.ENOTCONN) || err == nil && st.Type == fuseMagic, err
}

func TestPassThrough(t *testing.T) {
	f := mount(t)
	file := f.create(t, "a", "hello")
	write(t, file, "HE", 0)
	if err := file.Truncate(4); err != nil {
		t.Fatal(err)
	}
	must(t, f.source, "a", "HEll")
	if err := errors.Join(os.Mkdir(f.path("d"), 0o700), os.Rename(f.path("a"), f.path("d/b")), os.Symlink("b", f.path("d/l"))); err != nil {
		t.Fatal(err)
	}
	must(t, f.source, "d/b", "HEll")
	must(t, f.at, "d/l", "HEll")
	log, err := os.OpenFile(f.path("d/b"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if _, err := log.WriteString("!"); err != nil {
		t.Fatal(err)
	}
	must(t, f.source, "d/b", "HEll!")
	if err := os.Remove(f.path("d/b")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := file.ReadAt(got, 0); err != nil || string(got) != "HEll!" {
		t.Errorf("a file that was removed while open is %q: %v", got, err)
	}
	if err := file.Truncate(1); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(filepath.Join(f.source, "d")); err != nil || len(entries) != 1 {
		t.Errorf("the directory has %v: %v", entries, err)
	}
}

// TestDirectAndMapped is what databases do beside read and write.
func TestDirectAndMapped(t *testing.T) {
	f := mount(t)
	fd, err := unix.Open(f.path("a"), unix.O_RDWR|unix.O_CREAT|unix.O_DIRECT, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	const page = 4096
	block := make([]byte, 2*page)
	block = block[page-uintptr(unsafe.Pointer(&block[0]))%page:][:page]
	copy(block, "direct")
	if _, err := unix.Pwrite(fd, block, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fallocate(fd, 0, 0, 4*page); err != nil {
		t.Fatal(err)
	}
	m, err := unix.Mmap(fd, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	copy(m, "mapped")
	if err := errors.Join(unix.Msync(m, unix.MS_SYNC), unix.Munmap(m)); err != nil {
		t.Fatal(err)
	}
	copy(block, "mapped")
	must(t, f.source, "a", string(append(block, make([]byte, 3*page)...)))
}

// TestReadsAreNotCached: the kernel's cache shows zeros at the end of a file that grows while
// its attributes are asked for, once in some 100 000 records, and mysqld's dump threads read
// their binlog so. What no cache answers comes from the source.
func TestReadsAreNotCached(t *testing.T) {
	f := mount(t)
	file := f.create(t, "a", "hello")
	source, at := filepath.Join(f.source, "a"), time.Unix(1, 0) // else the kernel sees that it has changed
	got := make([]byte, 5)
	for _, want := range []string{"hello", "HELLO"} {
		if err := errors.Join(os.WriteFile(source, []byte(want), 0o600), os.Chtimes(source, at, at)); err != nil {
			t.Fatal(err)
		}
		if _, err := file.ReadAt(got, 0); err != nil || string(got) != want {
			t.Errorf("it reads %q, %v, want %q", got, err, want)
		}
	}
}

func TestFaults(t *testing.T) {
	f := mount(t)
	file := f.create(t, "a", "hello")
	if err := os.Mkdir(f.path("d"), 0o755); err != nil {
		t.Fatal(err)
	}
	overwrite := func() error { _, err := file.WriteAt([]byte("x"), 0); return err }
	grow := func() error { _, err := file.WriteAt([]byte("x"), 100); return err }
	open := func() error {
		w, err := os.OpenFile(f.path("a"), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return w.Close()
	}
	for _, c := range []struct {
		name  string
		fault Fault
		do    func() error
		want  error
	}{
		{"Sync", Fault{Ops: Sync, Errno: syscall.EIO}, file.Sync, syscall.EIO},
		{"Write", Fault{Ops: Write, Errno: syscall.EIO}, overwrite, syscall.EIO},
		{"WriteNotSync", Fault{Ops: Write, Errno: syscall.EIO}, file.Sync, nil},
		{"Full", Fault{Ops: Grow, Errno: syscall.ENOSPC}, grow, syscall.ENOSPC},
		{"FullOverwrite", Fault{Ops: Grow, Errno: syscall.ENOSPC}, overwrite, nil},
		{"FullFallocate", Fault{Ops: Grow, Errno: syscall.ENOSPC},
			func() error { return unix.Fallocate(int(file.Fd()), 0, 0, 1<<20) }, syscall.ENOSPC},
		{"FullMkdir", Fault{Ops: Grow, Errno: syscall.ENOSPC}, func() error { return os.Mkdir(f.path("new"), 0o755) }, syscall.ENOSPC},
		{"ReadOnlyOpen", Fault{Ops: Writes, Errno: syscall.EROFS}, open, syscall.EROFS},
		{"ReadOnlyRemove", Fault{Ops: Writes, Errno: syscall.EROFS}, func() error { return os.Remove(f.path("a")) }, syscall.EROFS},
		{"ReadOnlyRename", Fault{Ops: Writes, Errno: syscall.EROFS}, func() error { return os.Rename(f.path("a"), f.path("b")) }, syscall.EROFS},
		{"ReadOnlyTruncate", Fault{Ops: Writes, Errno: syscall.EROFS}, func() error { return os.Truncate(f.path("a"), 1) }, syscall.EROFS},
		{"SyncOfDirectory", Fault{Ops: Sync, Errno: syscall.EIO}, func() error { return syncDirectory(f.path("d")) }, syscall.EIO},
		{"OtherFile", Fault{Ops: Every, Path: "b*", Errno: syscall.EIO}, overwrite, nil},
		{"Pattern", Fault{Ops: Every, Path: "a*", Errno: syscall.EIO}, overwrite, syscall.EIO},
		{"BelowDirectory", Fault{Ops: Every, Path: "d", Errno: syscall.EIO}, func() error { return os.Mkdir(f.path("d/e"), 0o755) }, syscall.EIO},
		{"Delay", Fault{Ops: Sync, Delay: time.Millisecond, Errno: syscall.EIO}, file.Sync, syscall.EIO},
	} {
		t.Run(c.name, func(t *testing.T) {
			f.faults(t, c.fault)
			if err := c.do(); !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("got %v, want %v", err, c.want)
			}
			f.faults(t)
			if err := overwrite(); err != nil {
				t.Errorf("the disk is well again: %v", err)
			}
		})
	}
	if s, err := f.Status(); err != nil || s.Held != 0 || s.Failed < 10 {
		t.Errorf("status %+v, %v", s, err)
	}
	if err := f.SetFaults(Fault{Ops: Every, Path: "["}); err == nil {
		t.Error("a pattern that is none is taken")
	}
}

func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// startHeld lets a write begin that is held.
func (f *fixture) startHeld(t *testing.T, file *os.File) (done chan error) {
	t.Helper()
	f.faults(t, Fault{Ops: Write, Path: "a", Hold: true})
	done = make(chan error, 1)
	go func() {
		_, err := file.WriteAt([]byte("held"), 0)
		done <- err
	}()
	await(t, "a write is held", func() (bool, error) {
		s, err := f.Status()
		return s.Held == 1, err
	})
	return done
}

func TestHold(t *testing.T) {
	f := mount(t)
	a, b := f.create(t, "a", "aaaa"), f.create(t, "b", "bbbb")
	done := f.startHeld(t, a)
	write(t, b, "B", 0) // others go on
	must(t, f.source, "a", "aaaa")
	f.faults(t)
	if err := <-done; err != nil {
		t.Error(err)
	}
	must(t, f.source, "a", "held")
}

func TestCutPower(t *testing.T) {
	f := mount(t)
	a, b := f.create(t, "a", "synced, and long"), f.create(t, "b", "b")
	write(t, a, "SYNCED", 0)
	if err := a.Sync(); err != nil {
		t.Fatal(err)
	}
	write(t, a, "lost", 2)
	write(t, a, "lost", 1000)
	if err := errors.Join(b.Truncate(0), os.WriteFile(f.path("c"), []byte("lost"), 0o600)); err != nil {
		t.Fatal(err)
	}
	done := f.startHeld(t, a)
	if err := f.CutPower(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, syscall.EIO) {
		t.Errorf("the write that was held: %v", err)
	}
	if _, err := b.WriteAt([]byte("x"), 0); !errors.Is(err, syscall.EIO) {
		t.Errorf("a write without power: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f.remount(t)
	must(t, f.at, "a", "SYNCED, and long")
	must(t, f.at, "b", "b")
	must(t, f.at, "c", "") // its name is durable, what is in it is not
}

// TestSynchronousWritesStay: what was written with O_DSYNC or O_SYNC is durable without an fsync. Before, it was undone.
func TestSynchronousWritesStay(t *testing.T) {
	f := mount(t)
	f.create(t, "old", "old")
	for _, open := range []struct {
		name  string
		flags int
	}{{"old", unix.O_RDWR | unix.O_DSYNC}, {"new", unix.O_RDWR | unix.O_CREAT | unix.O_SYNC}, {"lost", unix.O_RDWR | unix.O_CREAT}} {
		file, err := os.OpenFile(f.path(open.name), open.flags, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		write(t, file, "stays", 0)
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(f.CutPower(), f.Close()); err != nil {
		t.Fatal(err)
	}
	f.remount(t)
	must(t, f.at, "old", "stays")
	must(t, f.at, "new", "stays")
	must(t, f.at, "lost", "")
}

// TestCloseEndsTheHeld: no process hangs on a mount that is gone.
func TestCloseEndsTheHeld(t *testing.T) {
	_, f := directories(t)
	f.remount(t)
	done := f.startHeld(t, f.create(t, "a", "aaaa"))
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err == nil {
		t.Error("the write that was held succeeded")
	}
	if yes, err := f.mounted(); yes {
		t.Errorf("it is still mounted: %v", err)
	}
	must(t, f.source, "a", "aaaa")
}

// TestOwnerDies: the mount of a program that was killed goes by itself.
func TestOwnerDies(t *testing.T) {
	dir, f := directories(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	owner := exec.Command(self)
	owner.Env = append(os.Environ(), ownerVariable+"="+dir)
	owner.Stderr = os.Stderr
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(out).Scan()
	yes, err := f.mounted()
	if killed := owner.Process.Kill(); !said || !yes || killed != nil {
		t.Errorf("mounted: %t (%v), killed: %v", yes, err, killed)
	}
	_ = owner.Wait() // it was killed
	await(t, "the mount is gone", func() (bool, error) {
		yes, err := f.mounted()
		return !yes, err
	})
}
