package seglog

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/quorate/quorate/internal/log/vfs"
)

// healOptions are the options for opening a damaged log to heal it.
func healOptions(fs vfs.FS) Options {
	o := smallOptions(fs)
	o.Heal = true
	return o
}

// finish gives a log that is being healed the entries that it lacks, taken from all committed entries, and
// compares the result.
func finish(t *testing.T, l *Log, entries []Entry) {
	t.Helper()
	h := l.Healing()
	if l.healing == nil {
		t.Fatal("the log is not being healed")
	}
	for _, e := range entries[l.LastIndex():] {
		mustAppend(t, l, nil, e)
	}
	hs := h.Promised
	hs.Commit = uint64(len(entries))
	if err := l.FinishHealing(hs); err != nil {
		t.Fatal(err)
	}
	if l.healing != nil {
		t.Fatal("the log is still being healed")
	}
	if got := all(t, l); !sameEntries(got, entries) {
		t.Fatalf("the healed log has %d entries, want %d, or others", len(got), len(entries))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestHealAnyDamage: whatever part of the durable data is damaged, the healed log is the same as before. Until
// then it opens only to be healed.
func TestHealAnyDamage(t *testing.T) {
	d := buildDamaged(t)
	names, err := d.fs.List(testDir)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	healed := 0
	for round := range 150 {
		name := names[rng.IntN(len(names))]
		if name == stateName {
			continue
		}
		disk := d.fs.CrashClone(0)
		content := readFile(t, disk, name)
		switch rng.IntN(4) {
		case 0:
			if err := disk.Remove(filepath.Join(testDir, name)); err != nil {
				t.Fatal(err)
			}
			if err := disk.SyncDir(testDir); err != nil {
				t.Fatal(err)
			}
		case 1:
			writeFile(t, disk, name, content[:rng.IntN(len(content))])
		default:
			content[rng.IntN(len(content))] ^= 1 << rng.IntN(8)
			writeFile(t, disk, name, content)
		}
		if l, err := Open(smallOptions(disk)); err == nil {
			_ = l.Close() // a torn tail
			continue
		} else if !errors.Is(err, ErrCorrupt) {
			continue // it looks like another identity or version
		}
		l, err := Open(healOptions(disk))
		if err != nil {
			t.Fatalf("round %d, %s: %v", round, name, err)
		}
		last := l.LastIndex()
		if files, err := disk.List(testDir); err != nil || last > 0 && !slices.ContainsFunc(files, aside) && len(files) <= len(names) {
			t.Fatalf("round %d, %s: nothing was set aside: %v, %v", round, name, files, err)
		}
		if got := all(t, l); !sameEntries(got, d.entries[:last]) {
			t.Fatalf("round %d, %s: %d entries are left, and are not the first", round, name, len(got))
		}
		_ = l.Close()
		if _, err := Open(smallOptions(disk)); !errors.Is(err, ErrHealing) {
			t.Fatalf("round %d, %s: a log that is being healed opens: %v", round, name, err)
		}
		l, err = Open(healOptions(disk))
		if err != nil || l.LastIndex() != last {
			t.Fatalf("round %d, %s: again: %v", round, name, err)
		}
		finish(t, l, d.entries)
		if files, err := disk.List(testDir); err != nil || slices.ContainsFunc(files, aside) {
			t.Fatalf("round %d, %s: left behind: %v, %v", round, name, files, err)
		}
		if got := all(t, mustOpen(t, smallOptions(disk))); !sameEntries(got, d.entries) {
			t.Fatalf("round %d, %s: %d entries are there later", round, name, len(got))
		}
		healed++
	}
	if healed < 25 {
		t.Errorf("only %d rounds damaged the log", healed)
	}
}

func aside(name string) bool { return strings.HasSuffix(name, asideSuffix) }

// TestUnreadableSectorIsDamage: a sector that the disk cannot read is healed like one with wrong bytes.
func TestUnreadableSectorIsDamage(t *testing.T) {
	d := buildDamaged(t)
	fs := vfs.Wrap(d.fs, func(op vfs.Op, name string) error {
		if op == vfs.OpRead && strings.HasSuffix(name, segmentName(5)) {
			return syscall.EIO
		}
		return nil
	})
	if _, err := Open(smallOptions(fs)); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("open: %v", err)
	}
	l := mustOpen(t, healOptions(fs))
	if l.LastIndex() != 4 {
		t.Fatalf("the log ends at %d, entry 5 cannot be read", l.LastIndex())
	}
}

// TestReadThatFailsOnce: if the disk fails for a moment, the error says so, wherever that happens. It does not
// count as a torn tail: everything that was acknowledged stays.
func TestReadThatFailsOnce(t *testing.T) {
	disk := vfs.NewMem()
	options := smallOptions(disk)
	l := mustOpen(t, options)
	for i := uint64(1); i <= 8; i++ {
		mustAppend(t, l, &HardState{Term: 1, Commit: i - 1}, Entry{Index: i, Term: 1, Type: raftNormal + 1, Data: make([]byte, 3000)})
	}
	// The last entry needs more than one read.
	mustAppend(t, l, nil, Entry{Index: 9, Term: 1, Type: raftNormal + 1, Data: make([]byte, 2*windowBytes)})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for n := int64(1); ; n++ {
		failed := false
		once := vfs.FailNth(n, syscall.EIO, func(op vfs.Op, name string) bool { return op == vfs.OpRead })
		options.FS = vfs.Wrap(disk.CrashClone(1), func(op vfs.Op, name string) error {
			err := once(op, name)
			failed = failed || err != nil
			return err
		})
		l, err := Open(options)
		if err == nil {
			if l.LastIndex() != 9 {
				t.Fatalf("read %d failed: the log ends at %d", n, l.LastIndex())
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		} else if !errors.Is(err, syscall.EIO) {
			t.Fatalf("read %d failed: %v", n, err)
		}
		if !failed {
			if n < 10 {
				t.Fatalf("only %d reads", n)
			}
			return
		}
	}
}

// TestHealCrashes: a crash at any moment of the healing leaves a log that is
// damaged as before, being healed, or healed.
func TestHealCrashes(t *testing.T) {
	d := buildDamaged(t)
	content := readFile(t, d.fs, segmentName(5))
	content[len(content)/2] ^= 1
	writeFile(t, d.fs, segmentName(5), content)
	for n := 0; ; n++ {
		disk := d.fs.CrashClone(0)
		calls := 0
		failing := vfs.Wrap(disk, func(op vfs.Op, _ string) error {
			if op.Changes() {
				calls++
			}
			if calls > n {
				return errors.New("crash")
			}
			return nil
		})
		done := healOnce(failing, d.entries)
		for seed := range uint64(3) {
			after := disk.CrashClone(seed)
			l, err := Open(smallOptions(after))
			if err == nil {
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				if !done && calls <= n {
					t.Fatalf("call %d, seed %d: healed too early", n, seed)
				}
				continue
			}
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrHealing) {
				t.Fatalf("call %d, seed %d: %v", n, seed, err)
			}
			l, err = Open(healOptions(after))
			if err != nil {
				t.Fatalf("call %d, seed %d: %v", n, seed, err)
			}
			finish(t, l, d.entries)
		}
		if done {
			return
		}
	}
}

// healOnce heals as far as the file system lets it, and reports whether the healing was completed.
func healOnce(fs vfs.FS, entries []Entry) bool {
	l, err := Open(healOptions(fs))
	if err != nil {
		return false
	}
	defer func() { _ = l.Close() }()
	h := l.Healing()
	if l.healing == nil {
		panic("no damage")
	}
	for _, e := range entries[l.LastIndex():] {
		if err := l.Append([]Entry{e}, nil); err != nil {
			return false
		}
	}
	return l.FinishHealing(HardState{Term: h.Promised.Term, Vote: h.Promised.Vote, Commit: uint64(len(entries))}) == nil
}

// TestHealKeepsItsPromises: the healing ends only when it has reached the promised commit index.
func TestHealKeepsItsPromises(t *testing.T) {
	d := buildDamaged(t)
	first := segmentName(1)
	content := readFile(t, d.fs, first)
	content[len(content)-20] ^= 1
	writeFile(t, d.fs, first, content)
	l := mustOpen(t, healOptions(d.fs))
	h := l.Healing()
	if h.Promised != d.hs[len(d.hs)-1] || h.Damage.File != first || h.Damage.Index == 0 {
		t.Fatalf("healing is %+v", h)
	}
	defer func() {
		if recover() == nil {
			t.Error("the healing ended before the promised commit index")
		}
	}()
	_ = l.FinishHealing(HardState{Term: h.Promised.Term, Vote: h.Promised.Vote, Commit: h.Promised.Commit - 1})
}

// badSector is a file system with a page of a file that cannot be read, as long as the file has that page and
// that name.
type badSector struct {
	vfs.FS
	name string
	at   int64
	gone bool
}

type badSectorFile struct {
	vfs.File
	fs *badSector
}

func (b *badSector) file(name string, f vfs.File, err error) (vfs.File, error) {
	if err == nil && filepath.Base(name) == b.name {
		f = badSectorFile{f, b}
	}
	return f, err
}

func (b *badSector) Open(name string) (vfs.File, error) {
	f, err := b.FS.Open(name)
	return b.file(name, f, err)
}

func (b *badSector) OpenReadWrite(name string) (vfs.File, error) {
	f, err := b.FS.OpenReadWrite(name)
	return b.file(name, f, err)
}

func (b *badSector) Rename(oldname, newname string) error {
	b.gone = b.gone || filepath.Base(oldname) == b.name
	return b.FS.Rename(oldname, newname)
}

func (f badSectorFile) Truncate(size int64) error {
	f.fs.gone = f.fs.gone || size <= f.fs.at
	return f.File.Truncate(size)
}

// ReadAt reads up to the page with the bad sector, as Linux does.
func (f badSectorFile) ReadAt(p []byte, offset int64) (int, error) {
	page := f.fs.at &^ 4095
	if f.fs.gone || offset >= page+4096 || offset+int64(len(p)) <= page {
		return f.File.ReadAt(p, offset)
	}
	if offset >= page {
		return 0, syscall.EIO
	}
	n, err := f.File.ReadAt(p[:page-offset], offset)
	if err == nil {
		err = syscall.EIO
	}
	return n, err
}

// TestUnreadableSectorOfTheActiveSegment: a bad sector is corruption everywhere, also in the zeros behind the
// records, and also if no read window begins with it. If it counted as a torn tail, the tail would be cut, and
// the node would vote without entries that it has acknowledged.
func TestUnreadableSectorOfTheActiveSegment(t *testing.T) {
	const entryBytes = 40 << 10
	disk := vfs.NewMem()
	options := Options{FS: disk, Dir: testDir, Identity: testIdentity(), CacheBytesMax: 1}
	l := mustOpen(t, options)
	var entries []Entry
	var ends []int64 // of the records; ends[0] is the end of the header
	ends = append(ends, l.tail().end)
	for i := uint64(1); i <= 60; i++ {
		e := Entry{Index: i, Term: 1, Type: raftNormal + 1, Data: make([]byte, entryBytes)}
		entries = append(entries, e)
		mustAppend(t, l, &HardState{Term: 1, Commit: i}, e)
		ends = append(ends, l.tail().end)
	}
	end, prepared := l.tail().end, l.writer.prepared
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if end < 2*windowBytes || prepared < end+windowBytes {
		t.Fatalf("records up to %d, zeros up to %d: too little to test", end, prepared)
	}
	for _, c := range []struct {
		name string
		at   int64
	}{
		{"header", 4}, {"first record", ends[0] + 4096}, {"in the first window", windowBytes - 1}, {"in the second window", windowBytes + 7*4096},
		{"in the third window", 2*windowBytes + 9*4096}, {"the last record", end - 1}, {"the first zeros", end + 4096}, {"zeros", end + windowBytes/2},
		{"zeros of a later window", end + windowBytes + 4096}, {"the last zeros", prepared - 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := options
			o.FS = &badSector{FS: disk.CrashClone(1), name: segmentName(1), at: c.at}
			whole := 0 // the number of records before the page
			for whole < len(entries) && ends[whole+1] <= c.at&^4095 {
				whole++
			}
			_, err := Open(o)
			damage, ok := errors.AsType[*CorruptError](err)
			if !ok {
				t.Fatalf("open: %v", err)
			}
			if want := ends[whole]; c.at >= ends[0] && (damage.Offset != want || damage.Index != uint64(whole+1)) {
				t.Errorf("damaged at offset %d, index %d, not %d, %d", damage.Offset, damage.Index, want, whole+1)
			}
			o.Heal = true
			l := mustOpen(t, o)
			if got := l.LastIndex(); got != uint64(whole) {
				t.Fatalf("%d entries are kept, %d are whole", got, whole)
			}
			if s := l.Stats(); s.TornBytes != 0 {
				t.Errorf("%d bytes were called a torn tail", s.TornBytes)
			}
			finish(t, l, entries)
		})
	}
}
