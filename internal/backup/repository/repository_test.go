package repository

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/sys/clock"
	"github.com/quorate/quorate/internal/sys/subprocess"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBroken = errors.New("broken")

func putText(t testing.TB, s Store, name, text string) {
	t.Helper()
	if err := s.Put(t.Context(), name, func(w io.Writer) error { _, err := io.WriteString(w, text); return err }); err != nil {
		t.Fatal(err)
	}
}

func getText(ctx context.Context, s Store, name string) (string, error) {
	r, err := s.Get(ctx, name)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(r)
	return string(b), errors.Join(err, r.Close())
}

// inDirectory returns commands that store in a directory.
func inDirectory(dir string) Commands {
	f := "'" + dir + "'/\"$QUORATE_OBJECT\""
	part := "'" + dir + "'/.\"$QUORATE_PART\""
	return Commands{Put: "cat >" + part + " && mv " + part + " " + f, Get: "cat " + f, List: "ls '" + dir + "'", Delete: "rm " + f}
}

// TestStore: both kinds of repositories behave the same.
func TestStore(t *testing.T) {
	dir := t.TempDir()
	directory, err := NewDirectory(vfs.OS{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]Store{"directory": directory, "commands": NewCommands(inDirectory(t.TempDir()))} {
		t.Run(name, func(t *testing.T) {
			long := strings.Repeat("0123456789", 200_000)
			putText(t, s, "b", "old")
			putText(t, s, "a.json", "{}")
			putText(t, s, "b", long)
			half := func(w io.Writer) error {
				_, err := io.WriteString(w, long)
				return errors.Join(err, errBroken)
			}
			if err := s.Put(t.Context(), "half", half); !errors.Is(err, errBroken) {
				t.Errorf("half an object: %v", err)
			}
			if got, err := getText(t.Context(), s, "b"); err != nil || got != long {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			objects, err := s.List(t.Context())
			var names []string
			for _, o := range objects {
				if o.Name != "half.part" { // a command's own affair
					names = append(names, o.Name)
				}
			}
			if d := cmp.Diff([]string{"a.json", "b"}, names); d != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, d)
			}
			if err := s.Delete(t.Context(), "b"); err != nil {
				t.Error(err)
			}
			if _, err := getText(t.Context(), s, "b"); err == nil {
				t.Error("it is still there")
			}
			for _, bad := range []string{"", ".x", "../x", "a/b", "a b", strings.Repeat("x", 201)} {
				_, err := s.Get(t.Context(), bad)
				if err == nil || s.Put(t.Context(), bad, half) == nil || s.Delete(t.Context(), bad) == nil {
					t.Errorf("%q is taken for a name", bad)
				}
			}
			ended, cancel := context.WithCancelCause(t.Context())
			cancel(errBroken)
			if err := s.Put(ended, "late", half); !errors.Is(err, errBroken) {
				t.Errorf("when all is over: %v", err)
			}
		})
	}
}

// TestPutIsWhole: after a crash anywhere, the earlier object or the new one is there, whole.
func TestPutIsWhole(t *testing.T) {
	for n := int64(1); ; n++ {
		base := vfs.NewMem()
		if err := errors.Join(base.MkdirAll("b"), base.SyncDir("/")); err != nil {
			t.Fatal(err)
		}
		first, err := NewDirectory(base, "b")
		if err != nil {
			t.Fatal(err)
		}
		putText(t, first, "x", "old")
		s := directory{vfs.Wrap(base, vfs.FailNth(n, errBroken, func(op vfs.Op, _ string) bool { return op.Changes() })), "b", -1, -1}
		err = s.Put(t.Context(), "x", func(w io.Writer) error { _, err := io.WriteString(w, "new"); return err })
		if err != nil && !errors.Is(err, errBroken) {
			t.Fatal(err)
		}
		for seed := range uint64(12) {
			got, e := getText(t.Context(), directory{base.CrashClone(seed), "b", -1, -1}, "x")
			if e != nil || got != "new" && (err == nil || got != "old") {
				t.Fatalf("broken at %d, disk %d: %q, %v", n, seed, got, e)
			}
		}
		if err == nil {
			if n < 5 {
				t.Fatalf("there are %d steps alone", n-1)
			}
			return
		}
	}
}

// TestTwoWriters: two writers of the same object at the same time leave a whole object of one
// of them. Commands did not: both had the same name for the unfinished object.
func TestTwoWriters(t *testing.T) {
	fs := vfs.NewMem()
	if err := fs.MkdirAll("b"); err != nil {
		t.Fatal(err)
	}
	first, second := strings.Repeat("1", 1000), strings.Repeat("2", 500)
	for kind, s := range map[string]Store{"directory": directory{fs, "b", -1, -1}, "commands": NewCommands(inDirectory(t.TempDir()))} {
		err := s.Put(t.Context(), "x", func(w io.Writer) error {
			_, err := io.WriteString(w, first[:600])
			putText(t, s, "x", second)
			_, err2 := io.WriteString(w, first[600:])
			return errors.Join(err, err2)
		})
		if got, e := getText(t.Context(), s, "x"); err != nil || e != nil || got != first && got != second {
			t.Errorf("%s: %v, %v, it has %d bytes", kind, err, e, len(got))
		}
	}
}

// TestPartsAge: a part whose writer cannot be checked counts as left once it is old.
func TestPartsAge(t *testing.T) {
	fs := vfs.NewMem()
	if err := fs.MkdirAll("b"); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	young := fmt.Sprintf(".x.%d-ABC.part", now.Add(-time.Hour).Unix())
	for _, name := range []string{fmt.Sprintf(".x.%d-ABC.part", now.Add(-49*time.Hour).Unix()), young, ".other"} {
		f, err := fs.Create("b/" + name)
		if err != nil || f.Close() != nil {
			t.Fatal(err)
		}
	}
	if _, err := (directory{fs, "b", -1, -1}).parts(now, true); err != nil {
		t.Fatal(err)
	}
	if left, err := fs.List("b"); err != nil || len(left) != 2 || !slices.Contains(left, young) {
		t.Errorf("%v, %v", left, err)
	}
}

// renames lets another process look at the parts before each rename.
type renames struct {
	vfs.FS
	before func()
}

func (r renames) Rename(from, to string) error {
	r.before()
	return r.FS.Rename(from, to)
}

// TestPartUntilItsName: an object that is whole but does not have its name yet is not taken for one that is left.
func TestPartUntilItsName(t *testing.T) {
	dir := t.TempDir()
	d := directory{vfs.OS{}, dir, -1, -1}
	looked := false
	d.fs = renames{vfs.OS{}, func() {
		looked = true
		if parts, err := (directory{vfs.OS{}, dir, -1, -1}).parts(time.Now(), true); err != nil || len(parts) != 1 || parts[0].State != PartWritten {
			t.Errorf("%+v, %v", parts, err)
		}
	}}
	err := d.Put(t.Context(), "x", func(w io.Writer) error {
		_, err := io.WriteString(w, "whole")
		return err
	})
	if got, readErr := os.ReadFile(filepath.Join(dir, "x")); err != nil || readErr != nil || string(got) != "whole" || !looked {
		t.Errorf("%q, %v, %v", got, err, readErr)
	}
}

// TestPartOfKilled: what a Put that was killed has left is seen at once, and the next Put removes it; a part that is
// being written stays, however old it is, and so does one that another host may write. Before, it stayed for two
// days, as large as a full backup.
func TestPartOfKilled(t *testing.T) {
	const putsHere = "QUORATE_TEST_PUTS_HERE"
	half := func(then func() error) func(io.Writer) error {
		return func(w io.Writer) error {
			_, err := io.WriteString(w, "half")
			return errors.Join(err, then())
		}
	}
	if dir := os.Getenv(putsHere); dir != "" {
		s, err := NewDirectory(vfs.OS{}, dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Fatal(s.Put(t.Context(), "killed", half(func() error { return syscall.Kill(os.Getpid(), syscall.SIGKILL) })))
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPartOfKilled$")
	cmd.Env = append(os.Environ(), putsHere+"="+dir)
	if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("%v: %s", err, out)
	}
	other := fmt.Sprintf(".other.%d-ABC-01.part", time.Now().Unix())
	if err := os.WriteFile(filepath.Join(dir, other), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := directory{vfs.OS{}, dir, -1, -1}
	states := func(now time.Time, remove bool) map[string]PartState {
		all, err := s.parts(now, remove)
		if err != nil {
			t.Error(err)
		}
		found := map[string]PartState{}
		for _, p := range all {
			found[p.Object] = p.State
		}
		return found
	}
	if d := cmp.Diff(map[string]PartState{"killed": PartLeft, "other": PartUnknown}, states(time.Now(), false)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	err := s.Put(t.Context(), "x", half(func() error {
		putText(t, s, "y", "")
		if d := cmp.Diff(map[string]PartState{"x": PartWritten, "other": PartUnknown}, states(time.Now(), false)); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		if d := cmp.Diff(map[string]PartState{"x": PartWritten, "other": PartLeft}, states(time.Now().Add(49*time.Hour), true)); d != "" {
			t.Errorf("long after (-want +got):\n%s", d)
		}
		return nil
	}))
	if left := states(time.Now(), false); err != nil || len(left) > 0 {
		t.Errorf("%v, left: %v", err, left)
	}
	if got, err := getText(t.Context(), s, "x"); err != nil || got != "half" {
		t.Errorf("%q, %v", got, err)
	}
}

// early is a file system in which another process removes the first file as soon as it is made.
type early struct {
	vfs.FS
	done bool
}

// Create implements vfs.FS.
func (e *early) Create(name string) (vfs.File, error) {
	f, err := e.FS.Create(name)
	if !e.done && err == nil {
		e.done, err = true, e.FS.Remove(name)
	}
	return f, err
}

// TestPartGoneBeforeItsLock: a part that was removed as left before it was locked is made again.
func TestPartGoneBeforeItsLock(t *testing.T) {
	s := directory{&early{FS: vfs.OS{}}, t.TempDir(), -1, -1}
	putText(t, s, "x", "whole")
	if got, err := getText(t.Context(), s, "x"); err != nil || got != "whole" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestNoDirectory(t *testing.T) {
	if _, err := NewDirectory(vfs.OS{}, filepath.Join(t.TempDir(), "gone")); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "mount its disk") {
		t.Error(err)
	}
}

// TestCommandsFail: the error has the command's output, and half of an object is never taken for a
// whole one.
func TestCommandsFail(t *testing.T) {
	s := NewCommands(Commands{Put: "echo no bucket >&2; exit 3", Get: "printf half; echo broken off >&2; exit 1", List: "echo a; exit 4"})
	err := s.Put(t.Context(), "x", func(w io.Writer) error {
		for range 1000 {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "backup.put_command") || !strings.Contains(err.Error(), "no bucket") {
		t.Errorf("put: %v", err)
	}
	if got, err := getText(t.Context(), s, "x"); got != "half" || err == nil || !strings.Contains(err.Error(), "broken off") {
		t.Errorf("get: %q, %v", got, err)
	}
	if _, err := s.List(t.Context()); err == nil {
		t.Error("half a list")
	}
	if err := s.Delete(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "backup.delete_command is not set") {
		t.Errorf("delete: %v", err)
	}
	// A reader that is closed before its end ends its command, with everything that the command
	// has started.
	r, err := NewCommands(Commands{Get: "yes | cat"}).Get(t.Context(), "x")
	if err == nil {
		_, err = io.ReadFull(r, make([]byte, 10))
	}
	if err = errors.Join(err, r.Close()); err != nil {
		t.Error(err)
	}
}

// TestPutOtherPipe: if a pipe of fill itself breaks, that is not taken for the pipe to the
// command.
func TestPutOtherPipe(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := NewCommands(inDirectory(t.TempDir())).Put(ctx, "x", func(io.Writer) error { return fmt.Errorf("read it: %w", syscall.EPIPE) })
	if !errors.Is(err, syscall.EPIPE) || ctx.Err() != nil {
		t.Errorf("%v, %v", err, ctx.Err())
	}
}

// TestPutNotRead: a command that leaves a part of the object unread has not stored it, whatever fill
// returns.
func TestPutNotRead(t *testing.T) {
	err := NewCommands(Commands{Put: "head -c 10 >/dev/null"}).Put(t.Context(), "x", func(w io.Writer) error {
		for range 100 {
			_, _ = w.Write(make([]byte, 1<<16))
		}
		return nil
	})
	if !errors.Is(err, syscall.EPIPE) {
		t.Error(err)
	}
}

// TestCommandLeavesSomethingRunning: a process that a command has started and left running, with the output open,
// does not make the command fail.
func TestCommandLeavesSomethingRunning(t *testing.T) {
	t.Parallel()
	pid := filepath.Join(t.TempDir(), "pid")
	err := NewCommands(Commands{Put: "cat >/dev/null; sleep 1000 & echo $! >" + pid}).Put(t.Context(), "x", func(io.Writer) error { return nil })
	text, wrong := os.ReadFile(pid)
	if wrong != nil {
		t.Fatal(err, wrong)
	}
	left, wrong := strconv.Atoi(strings.TrimSpace(string(text)))
	if err := errors.Join(err, wrong, syscall.Kill(left, syscall.SIGKILL)); err != nil {
		t.Error(err)
	}
}

// TestIdle: a command that makes progress in time may take as long as it likes, and the time of the other side does
// not count.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var killed error
		i := commands{Commands{Idle: time.Minute}}.idleEnds(func(err error) { killed = err }, io.NopCloser(nil))
		for range 10 {
			i.waits(func() { time.Sleep(59 * time.Second) })
			time.Sleep(time.Hour)
		}
		if synctest.Wait(); killed != nil {
			t.Error(killed)
		}
		i.waits(func() { time.Sleep(61 * time.Second) })
		if killed == nil || !strings.Contains(killed.Error(), "for 1m") {
			t.Errorf("after a minute: %v", killed)
		}
		killed = nil
		commands{}.idleEnds(func(err error) { killed = err }, io.NopCloser(nil)).waits(func() { time.Sleep(time.Hour) })
		if killed != nil {
			t.Errorf("without a limit: %v", killed)
		}
	})
}

// TestIdleCommandIsKilled: a command that hangs is ended, with everything that it has started, and the error says
// why. Before, a command whose store did not answer held the archive up until somebody ended it.
func TestIdleCommandIsKilled(t *testing.T) {
	dir := t.TempDir()
	hangs := "sleep 1000 & echo $! >" + dir + "/$$.pid; wait"
	s := NewCommands(Commands{Put: hangs, Get: "echo half; " + hangs, List: "echo a; " + hangs, Delete: hangs, Idle: 2 * time.Second})
	full := func(w io.Writer) error { _, err := w.Write(make([]byte, 1<<20)); return err }
	short := func(w io.Writer) error { _, err := w.Write(make([]byte, 10)); return err }
	var all sync.WaitGroup
	for name, run := range map[string]func() error{
		"put":             func() error { return s.Put(t.Context(), "x", full) },
		"put, at its end": func() error { return s.Put(t.Context(), "x", short) },
		"get":             func() error { _, err := getText(t.Context(), s, "x"); return err },
		"list":            func() error { _, err := s.List(t.Context()); return err },
		"delete":          func() error { return s.Delete(t.Context(), "x") },
	} {
		all.Go(func() {
			if err := run(); err == nil || !strings.Contains(err.Error(), "not ended for 2s, and was killed") || !strings.Contains(err.Error(), "backup."+name[:3]) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	all.Wait()
	files, err := filepath.Glob(dir + "/*.pid")
	if err != nil || len(files) != 5 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(20 * time.Second); subprocess.Runs(pid); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: what it has started goes on", file)
			}
		}
	}
}

// putsForEver names the directory of a command of which only the first bytes ever come.
const putsForEver = "QUORATE_TEST_PUTS_FOR_EVER"

// TestPutIsKilled: a process that is killed in the middle of an object leaves no command that takes the part for
// the whole.
func TestPutIsKilled(t *testing.T) {
	if dir := os.Getenv(putsForEver); dir != "" {
		put := fmt.Sprintf("echo $$ >%[1]s/pid.part && mv %[1]s/pid.part %[1]s/pid; cat >%[1]s/part; sleep 0.2; mv %[1]s/part %[1]s/whole", dir)
		err := NewCommands(Commands{Put: put}).Put(t.Context(), "x", func(w io.Writer) error {
			_, err := io.WriteString(w, "half")
			return errors.Join(err, clock.Sleep(t.Context(), clock.Machine{}, time.Minute))
		})
		t.Fatal(err)
	}
	dir := t.TempDir()
	archive := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPutIsKilled$")
	archive.Env = append(os.Environ(), putsForEver+"="+dir)
	if err := archive.Start(); err != nil {
		t.Fatal(err)
	}
	until := func(what string, is func() bool) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal(what)
			}
		}
	}
	var shell int
	until("the command does not begin", func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "pid"))
		if err == nil {
			shell, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err == nil
	})
	if err := archive.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = archive.Wait() // it was killed
	until("the command goes on", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", shell))
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
	if _, err := os.Stat(filepath.Join(dir, "whole")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("half an object counts: %v", err)
	}
}

// TestListNoLines: a command that prints no lines is ended, and gives an error.
func TestListNoLines(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := NewCommands(Commands{List: "yes | tr '\\n' x"}).List(ctx)
	if !errors.Is(err, bufio.ErrTooLong) || ctx.Err() != nil {
		t.Errorf("%v, %v", err, ctx.Err())
	}
}

// TestListMoreThanNames: a command that prints more than names is told of, and its repository does not count as empty. A
// directory beside the objects is no such line.
func TestListMoreThanNames(t *testing.T) {
	for list, wrong := range map[string]bool{
		"echo total 8; echo '-rw-r--r-- 1 a a 9 Nov 27 02:00 full-20261127T020000Z-b.json'": true,
		"echo /backup/shop/full-20261127T020000Z-b.json":                                    true,
		"echo part/; echo total 0":                                                          false,
		"true":                                                                              false,
		"echo sub/full-20261127T020000Z-b.json; echo full-20261128T020000Z-b.json": false,
	} {
		_, err := NewCommands(Commands{List: list}).List(t.Context())
		if wrong != (err != nil) || wrong && !strings.Contains(err.Error(), "full-20261127T020000Z-b.json") {
			t.Errorf("%s: %v", list, err)
		}
	}
}

// TestInterruptedGet: an object whose reading was called off does not count as damaged.
func TestInterruptedGet(t *testing.T) {
	s, err := NewDirectory(vfs.OS{}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	putText(t, s, "x", "text")
	ctx, cancel := context.WithCancelCause(t.Context())
	object, err := s.Get(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	cancel(errBroken)
	if _, err := Unseal(object, nil); !errors.Is(err, ErrGet) || errors.Is(err, ErrSealed) || !errors.Is(err, errBroken) {
		t.Error(err)
	}
	if err := object.Close(); err != nil {
		t.Error(err)
	}
}

// TestSealCutAnywhere: a cut at any byte is noticed, also at the end of age's header.
func TestSealCutAnywhere(t *testing.T) {
	own, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	text := []byte("some rows")
	for name, b := range map[string][]byte{"plain": sealed(t, text), "encrypted": sealed(t, text, own.Recipient().String())} {
		for at := range b {
			if got, err := unseal(b[:at], own); !errors.Is(err, ErrSealed) {
				t.Errorf("%s: cut at %d of %d: %d bytes, %v", name, at, len(b), len(got), err)
			}
		}
	}
}

// sealed is a text, sealed for these recipients.
func sealed(t testing.TB, text []byte, recipients ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := Seal(&out, recipients)
	if err == nil {
		_, err = w.Write(text)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func unseal(b []byte, identities ...age.Identity) ([]byte, error) {
	r, err := Unseal(bytes.NewReader(b), identities)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(r)
	return text, errors.Join(err, r.Close())
}

// TestRecipientsAreNotPrinted: what is no public key may be a private one.
func TestRecipientsAreNotPrinted(t *testing.T) {
	own, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{own.String(), "age1xyz"} {
		_, err := ParseRecipients([]string{own.Recipient().String(), key})
		if err == nil || !strings.HasPrefix(err.Error(), "key 2 is no public key of age") || strings.Contains(err.Error(), key) {
			t.Errorf("%v", err)
		}
	}
}

func TestSeal(t *testing.T) {
	own, err := age.GenerateX25519Identity()
	other, err2 := age.GenerateX25519Identity()
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	text := make([]byte, 150_000) // several blocks of both
	for i := range text {
		text[i] = byte(rand.Uint32()) & 0x3f
	}
	plain, hidden := sealed(t, text), sealed(t, text, own.Recipient().String())
	for name, b := range map[string][]byte{"plain": plain, "encrypted": hidden} {
		if got, err := unseal(b, own); err != nil || !bytes.Equal(got, text) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		for at := 0; at < len(b); at += 1 + at/10 {
			if _, err := unseal(b[:at], own); !errors.Is(err, ErrSealed) {
				t.Fatalf("%s: cut at %d of %d: %v", name, at, len(b), err)
			}
			bad := bytes.Clone(b)
			bad[at] ^= 4
			if got, err := unseal(bad, own); err == nil && !bytes.Equal(got, text) {
				t.Fatalf("%s: changed at %d of %d, and read", name, at, len(b))
			}
		}
	}
	if _, err := unseal(hidden); !errors.Is(err, ErrEncrypted) || errors.Is(err, ErrSealed) || !strings.Contains(err.Error(), "--identity") {
		t.Errorf("without a key: %v", err)
	}
	if _, err := unseal(hidden, other); !errors.Is(err, ErrEncrypted) || errors.Is(err, ErrSealed) || !strings.Contains(err.Error(), "another key") {
		t.Errorf("with another key: %v", err)
	}
	if _, err := Seal(io.Discard, []string{"age1nonsense"}); err == nil {
		t.Error("nonsense is taken for a key")
	}
}

func TestIdentities(t *testing.T) {
	own, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte("# created\n"+own.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := Identities(path); err != nil || len(all) != 1 {
		t.Errorf("%d keys, %v", len(all), err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Identities(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("others may read it: %v", err)
	}
}

func FuzzUnseal(f *testing.F) {
	f.Add(sealed(f, []byte("text")))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Unseal(bytes.NewReader(b), nil)
		if err == nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(r, 1<<24))
			_ = r.Close()
		}
	})
}
