package errant

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/log/vfs/vfstest"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// fixture is a store and binlog files with the transactions 1 to 6, three in
// each.
type fixture struct {
	Store
	files        []string
	transactions [][]byte
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	dir := t.TempDir()
	f := &fixture{Store: Store{fs: vfs.OS{}, path: filepath.Join(dir, Dir), savesMax: 2, bytesMax: 1 << 20}}
	next := uint64(1)
	for _, name := range []string{"q0000000001.000001", "q0000000002.000001"} {
		w := binlogtest.New(name)
		w.Next = next
		content := binlogtest.Join([]byte(binlog.Magic), binlogtest.Join(w.Start()[1:]...))
		for range 3 {
			f.transactions = append(f.transactions, binlogtest.Join(w.Rows(100)...))
			content = append(content, f.transactions[len(f.transactions)-1]...)
		}
		next = w.Next
		f.files = append(f.files, filepath.Join(dir, name))
		if err := os.WriteFile(f.files[len(f.files)-1], append(content, w.Rotate("next")...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func setOf(numbers ...uint64) *gtid.Set {
	set := &gtid.Set{}
	for _, n := range numbers {
		set.Add(binlogtest.GTID(n))
	}
	return set
}

// savedIn returns the numbers of the transactions in a file of a save, which it reads like any binlog file.
func savedIn(t *testing.T, path string) (numbers []uint64) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	events, ok := strings.CutPrefix(string(b), binlog.Magic)
	if !ok {
		t.Fatalf("%s does not begin as a binlog file", path)
	}
	if first, _, err := binlog.CutEvent([]byte(events)); err != nil || first.Type() != binlog.TypeFormatDescription {
		t.Fatalf("%s begins with %v, %v", path, first, err)
	}
	for x, err := range binlog.Transactions([]byte(events)) {
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, x.GTID.N)
	}
	return numbers
}

func TestSave(t *testing.T) {
	f := newFixture(t)
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	errant := setOf(2, 4, 6, 9)
	save, dir, err := f.Save(t.Context(), at, errant, f.files)
	if err != nil {
		t.Fatal(err)
	}
	want := Record{
		Format: recordFormat, At: at, Errant: errant.String(), Saved: setOf(2, 4, 6).String(),
		Files: []string{"q0000000001.000001", "q0000000002.000001"},
	}
	if d := cmp.Diff(want, save); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got, want := filepath.Base(dir), "20260301T120000Z-11000000_2"; got != want {
		t.Errorf("it is in %s, want %s", got, want)
	}
	for name, want := range map[string][]uint64{save.Files[0]: {2}, save.Files[1]: {4, 6}} {
		if d := cmp.Diff(want, savedIn(t, filepath.Join(dir, name))); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	readme, err := os.ReadFile(filepath.Join(dir, readmeFile))
	if err != nil || !strings.Contains(string(readme), save.Saved+"\n\n") || !strings.Contains(string(readme), "ERROR 1227") {
		t.Errorf("README %q, %v", readme, err)
	}
	// The agent starts again: the same is not saved twice, and needs no binlog.
	again, sameDir, err := f.Save(t.Context(), at.Add(time.Hour), errant, nil)
	if d := cmp.Diff(want, again); err != nil || d != "" || sameDir != dir {
		t.Errorf("%s, %v (-want +got):\n%s", sameDir, err, d)
	}
}

func TestSaveHasNoBinlog(t *testing.T) {
	f := newFixture(t)
	save, dir, err := f.Save(t.Context(), time.Unix(0, 0), setOf(9), f.files)
	if err != nil || save.Saved != "" || dir != "" {
		t.Errorf("saved %q in %q, %v", save.Saved, dir, err)
	}
	if left, err := os.ReadDir(f.path); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestSaveIsBounded: the oldest saves stay, and nothing is left of a save that is refused.
func TestSaveIsBounded(t *testing.T) {
	f := newFixture(t)
	f.bytesMax = int64(len(f.transactions[0]))
	if _, _, err := f.Save(t.Context(), time.Unix(0, 0), setOf(1, 2), f.files); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("two transactions where there is room for one: %v", err)
	}
	f.bytesMax = 1 << 20
	for n := range uint64(2) {
		if _, _, err := f.Save(t.Context(), time.Unix(int64(n), 0), setOf(n+1), f.files); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := f.Save(t.Context(), time.Unix(3, 0), setOf(3), f.files); err == nil || !strings.Contains(err.Error(), "holds 2 saves") {
		t.Errorf("the third save: %v", err)
	}
	left, err := os.ReadDir(f.path)
	if err != nil || len(left) != 2 || left[0].Name() != "19700101T000000Z-11000000_1" {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestSaveOfDamagedBinlogs: whole transactions are saved, and damage is reported, unless it is the end that a killed
// mysqld leaves.
func TestSaveOfDamagedBinlogs(t *testing.T) {
	f := newFixture(t)
	first, err := os.ReadFile(f.files[0])
	if err != nil {
		t.Fatal(err)
	}
	start := strings.Index(string(first), string(f.transactions[1]))
	first[start+4] = byte(binlog.TypeXID) // no transaction begins so
	second, err := os.ReadFile(f.files[1])
	if err != nil {
		t.Fatal(err)
	}
	end := strings.Index(string(second), string(f.transactions[5])) + len(f.transactions[5]) - 1
	for path, content := range map[string][]byte{f.files[0]: first, f.files[1]: second[:end]} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	save, dir, err := f.Save(t.Context(), time.Unix(0, 0), setOf(1, 2, 5, 6), f.files)
	if err != nil {
		t.Fatal(err)
	}
	if want := setOf(1, 5).String(); save.Saved != want {
		t.Errorf("saved %s, want %s", save.Saved, want)
	}
	if !strings.Contains(save.Damaged, f.files[0]) || strings.Contains(save.Damaged, f.files[1]) {
		t.Errorf("damaged: %s", save.Damaged)
	}
	if d := cmp.Diff([]uint64{5}, savedIn(t, filepath.Join(dir, save.Files[1]))); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestSaveOfForeignFiles: mysqld's account may put a link to another account's file, or a FIFO without a writer, in
// place of a binlog. That is neither read nor waited for.
func TestSaveOfForeignFiles(t *testing.T) {
	f := newFixture(t)
	fifo, link := f.files[0]+".fifo", f.files[0]+".link"
	if err := errors.Join(unix.Mkfifo(fifo, 0o600), os.Symlink(f.files[1], link)); err != nil {
		t.Fatal(err)
	}
	save, _, err := f.Save(t.Context(), time.Unix(0, 0), setOf(1, 5), []string{fifo, link, f.files[0]})
	if err != nil {
		t.Fatal(err)
	}
	if want := setOf(1).String(); save.Saved != want {
		t.Errorf("saved %s, want %s", save.Saved, want)
	}
	for _, path := range []string{fifo, link} {
		if !strings.Contains(save.Damaged, path) {
			t.Errorf("damaged: %s, without %s", save.Damaged, path)
		}
	}
}

// TestSaveCrashes: a save is complete or is not there, wherever it ends, and can be made again.
func TestSaveCrashes(t *testing.T) {
	f := newFixture(t)
	f.path = Dir
	errant := setOf(2, 5)
	save := func(fs vfs.FS) error {
		f.fs = fs
		c := copying{fs: fs, dir: filepath.Join(Dir, tempDir), errant: errant, saved: &gtid.Set{}, room: 1 << 20}
		if err := fs.RemoveAll(c.dir); err != nil {
			return err
		}
		if err := fs.MkdirAll(c.dir); err != nil {
			return err
		}
		_, _, err := f.save(t.Context(), c, time.Unix(0, 0), f.files)
		return err
	}
	// files returns what is in the save; nil = there is none.
	files := func(t *testing.T, disk vfs.FS) map[string]string {
		f.fs = disk
		_, dir := f.find(errant)
		if dir == "" {
			return nil
		}
		names, err := disk.List(dir)
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]string{}
		for _, name := range names {
			b, err := vfs.ReadFile(disk, filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			all[name] = string(b)
		}
		return all
	}
	m := vfs.NewMem()
	if err := save(m); err != nil {
		t.Fatal(err)
	}
	whole := files(t, m)
	if diff := cmp.Diff(whole, files(t, m.CrashClone(0))); len(whole) != 4 || diff != "" {
		t.Fatalf("%d files; after a loss of power (-want +got):\n%s", len(whole), diff)
	}
	made, not := 0, 0
	vfstest.Interruptions(t, vfs.NewMem, save, func(t *testing.T, disk *vfs.Mem) {
		if there := files(t, disk); there == nil {
			not++
			if err := save(disk); err != nil {
				t.Fatal(err)
			}
		} else {
			made++
		}
		if diff := cmp.Diff(whole, files(t, disk)); diff != "" {
			t.Errorf("the save (-want +got):\n%s", diff)
		}
	})
	if made == 0 || not == 0 {
		t.Errorf("it was made %d times, and not %d times: the test has tested nothing", made, not)
	}
}
