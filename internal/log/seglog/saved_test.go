package seglog

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/sys/clock"
)

// indexedLog returns a closed log whose older segments have saved indexes, one of them with a stage, its entries, and
// the names of the segments that have one.
func indexedLog(t *testing.T) (disk *vfs.Mem, entries []Entry, indexed []string) {
	t.Helper()
	disk, entries = vfs.NewMem(), history()
	l := mustOpen(t, indexedOptions(disk))
	mustAppend(t, l, &HardState{Term: 3, Vote: 1, Commit: 13}, entries...)
	e, raw := staged(14, 3, 2, 4, 3000)
	mustAppendStaged(t, l, &HardState{Term: 3, Vote: 1, Commit: 14}, e, raw)
	more := []Entry{rotate(15, 3, "9.7.5"), plain(16, 3, 10), rotate(17, 3, "9.7.5"), plain(18, 3, 10)}
	mustAppend(t, l, &HardState{Term: 3, Vote: 1, Commit: 16}, more[:2]...)
	mustAppend(t, l, &HardState{Term: 3, Vote: 1, Commit: 18}, more[2:]...)
	entries = append(append(entries, e), more...)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for name, b := range content(t, disk) {
		writeFile(t, disk, name, b) // as if the kernel had written it back
	}
	return disk, entries, savedFiles(t, disk)
}

// savedFiles returns the names of the segments that have a saved index.
func savedFiles(t *testing.T, fs vfs.FS) (segments []string) {
	t.Helper()
	names, err := fs.List(testDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if segment, ok := isSavedName(name); ok {
			segments = append(segments, segment)
		}
	}
	return segments
}

// unread returns the names of the segments that Open has not read.
func unread(l *Log) (names []string) {
	for _, s := range l.segments {
		if s.unread {
			names = append(names, s.name())
		}
	}
	return names
}

// TestSavedIndex: a log that was opened by its saved indexes is the same as one that was read.
func TestSavedIndex(t *testing.T) {
	disk, entries, indexed := indexedLog(t)
	quick := mustOpen(t, indexedOptions(disk.CrashClone(0)))
	whole := mustOpen(t, smallOptions(disk.CrashClone(0)))
	if got := unread(quick); len(got) < 5 || !slices.Equal(got, indexed) || len(unread(whole)) > 0 {
		t.Fatalf("not read were %v, indexes had %v; without indexes %v", got, indexed, unread(whole))
	}
	wantEntries(t, quick, entries)
	for i, s := range quick.segments {
		w := *whole.segments[i]
		w.saved, w.unread = s.saved, s.unread
		if diff := cmp.Diff(fmt.Sprintf("%+v %+v %+v", w.index, w.times, w.stage), fmt.Sprintf("%+v %+v %+v", s.index, s.times, s.stage)); diff != "" {
			t.Errorf("segment %s:\n%s", s.name(), diff)
		}
		if w.chain != s.chain || w.end != s.end || w.seed != s.seed {
			t.Errorf("segment %s: %+v, want %+v", s.name(), s, w)
		}
	}
	if got := quick.writer.gtids; !got.Equal(whole.writer.gtids) {
		t.Errorf("transactions %v, want %v", got, whole.writer.gtids)
	}
	if files, _ := quick.options.FS.List(testDir); len(files) == 0 || slices.Contains(files, savedTemporary) {
		t.Errorf("files: %v", files)
	}
	// A command that reads the whole log leaves the indexes for the next start.
	if got := savedFiles(t, whole.options.FS); len(got) != len(indexed) {
		t.Errorf("indexes after an Open without: %v, were %v", got, indexed)
	}
}

// TestSavedIndexMadeAgain: indexes that are missing are saved by the next Open, those of purged segments removed.
func TestSavedIndexMadeAgain(t *testing.T) {
	disk, _, indexed := indexedLog(t)
	middle := disk.CrashClone(0)
	if err := middle.Remove(filepath.Join(testDir, savedName(indexed[2]))); err != nil {
		t.Fatal(err)
	}
	l := mustOpen(t, indexedOptions(middle))
	_ = l.Close()
	if got := savedFiles(t, middle); !slices.Contains(got, indexed[2]) {
		t.Errorf("indexes are there of %v", got)
	}
	for _, segment := range indexed {
		if err := disk.Remove(filepath.Join(testDir, savedName(segment))); err != nil {
			t.Fatal(err)
		}
	}
	orphan := savedName(segmentName(77))
	writeFile(t, disk, orphan, []byte("x"))
	l = mustOpen(t, indexedOptions(disk))
	if got := unread(l); len(got) > 0 {
		t.Errorf("not read were %v, and there were no indexes", got)
	}
	_ = l.Close()
	l = mustOpen(t, indexedOptions(disk))
	if got := unread(l); len(got) < len(indexed) {
		t.Errorf("later, not read were %v, before %v", got, indexed)
	}
	if _, err := l.Purge(12); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{orphan, savedName(segmentName(1))} {
		if _, err := disk.Stat(filepath.Join(testDir, name)); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
}

// TestSavedIndexDamaged: an index that is damaged, cut or empty costs time and nothing else.
func TestSavedIndexDamaged(t *testing.T) {
	disk, entries, indexed := indexedLog(t)
	for _, segment := range indexed {
		name := savedName(segment)
		whole := readFile(t, disk, name)
		check := func(content []byte, what string) {
			clone := disk.CrashClone(0)
			writeFile(t, clone, name, content)
			l, err := Open(indexedOptions(clone))
			if err != nil {
				t.Fatalf("%s %s: %v", name, what, err)
			}
			defer func() { _ = l.Close() }()
			got, err := allOf(l)
			if err != nil || !sameEntries(got, entries) || slices.Contains(unread(l), segment) {
				t.Fatalf("%s %s: %d entries, not read were %v: %v", name, what, len(got), unread(l), err)
			}
		}
		for at := range whole {
			spoilt := bytes.Clone(whole)
			spoilt[at] ^= 1 << (at % 8)
			check(spoilt, fmt.Sprint("damaged at ", at))
			check(whole[:at], fmt.Sprint("cut to ", at))
		}
	}
}

// TestSavedIndexOfOtherRecords: a segment was written again with other records behind the same header. Its old index
// fits header and length. Only the next segment shows that it is wrong, and then all is read.
func TestSavedIndexOfOtherRecords(t *testing.T) {
	build := func(server byte) *vfs.Mem {
		disk := vfs.NewMem()
		l := mustOpen(t, indexedOptions(disk))
		mustAppend(t, l, &HardState{Term: 1, Commit: 3}, transactions(1, 1, server, 1, 1, 10), epoch(2, 1, "9.7.4"), epoch(3, 1, "9.7.4"))
		mustAppend(t, l, &HardState{Term: 1, Commit: 4}, epoch(4, 1, "9.7.4"))
		_ = l.Close()
		return disk
	}
	disk, other := build(1), build(2)
	name := savedName(segmentName(1))
	writeFile(t, disk, name, readFile(t, other, name))
	l := mustOpen(t, indexedOptions(disk))
	if got := unread(l); len(got) > 0 {
		t.Errorf("not read were %v", got)
	}
	wantEntries(t, l, []Entry{transactions(1, 1, 1, 1, 1, 10), epoch(2, 1, "9.7.4"), epoch(3, 1, "9.7.4"), epoch(4, 1, "9.7.4")})
}

// TestSavedIndexUncommitted: entries behind the commit index that is on disk may be replaced, so they are read.
func TestSavedIndexUncommitted(t *testing.T) {
	disk, _, _ := indexedLog(t)
	l := mustOpen(t, indexedOptions(disk))
	_ = l.Close()
	for slot := range 2 { // the commit index alone is not synced: an older one comes back
		b := readFile(t, disk, stateName)
		copy(b[(1+slot)*stateSectorBytes:], encodeSlot(uint64(10+slot), HardState{Term: 3, Vote: 1, Commit: 5}))
		writeFile(t, disk, stateName, b)
	}
	for _, name := range unread(mustOpen(t, indexedOptions(disk))) {
		if first, _ := parseSegmentName(name); first > 5 {
			t.Errorf("%s was not read, committed is 5", name)
		}
	}
}

// TestCheckFindsDamage: Open does not see damage in a segment that it takes from its index. Check does, and after
// Doubt the next Open does.
func TestCheckFindsDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, _, indexed := indexedLog(t)
		found := 0
		for _, name := range indexed {
			whole := readFile(t, disk, name)
			for at := 0; at < len(whole); at += 37 {
				clone := disk.CrashClone(0)
				spoilt := bytes.Clone(whole)
				spoilt[at] ^= 0x10
				writeFile(t, clone, name, spoilt)
				l, err := Open(indexedOptions(clone))
				if err != nil {
					continue // damage in a header
				}
				var corrupt *CorruptError
				if err := l.Check(t.Context(), clock.Machine{}); !errors.As(err, &corrupt) || corrupt.File != name || corrupt.Offset > int64(at) {
					t.Fatalf("%s damaged at %d: check says %v", name, at, err)
				}
				l.Doubt(name)
				_ = l.Close()
				if _, err := Open(indexedOptions(clone)); !errors.Is(err, ErrCorrupt) {
					t.Fatalf("%s damaged at %d: the next open: %v", name, at, err)
				}
				found++
			}
		}
		if found < 100 {
			t.Errorf("only %d times something was damaged behind a header", found)
		}
	})
}

// TestCheckFindsNothing: it reads what Open has not read, also while segments are purged, and ends with its context.
func TestCheckFindsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, _, _ := indexedLog(t)
		l := mustOpen(t, indexedOptions(disk))
		if err := l.Check(t.Context(), clock.Machine{}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.Check(ctx, clock.Machine{}); err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { done <- l.Check(t.Context(), clock.Machine{}) }()
		synctest.Wait()
		if removed, err := l.Purge(12); err != nil || len(removed) == 0 {
			t.Fatalf("removed %v: %v", removed, err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
	})
}

// TestCheckIsSlow: whatever a segment holds, it is read in small parts, and not faster than the check may be.
func TestCheckIsSlow(t *testing.T) {
	for _, what := range []string{"middle", "large", "staged"} {
		synctest.Test(t, func(t *testing.T) {
			reads := 0
			o := Options{FS: vfs.NewMem(), Dir: testDir, Identity: testIdentity(), Indexed: true}
			l := mustOpen(t, o)
			mustAppend(t, l, &HardState{Term: 1, Commit: 1}, epoch(1, 1, "9.7.4"))
			at := uint64(2)
			switch what {
			case "middle":
				for range 64 {
					mustAppend(t, l, &HardState{Term: 1, Commit: at}, plain(at, 1, 128<<10))
					at++
				}
			case "large":
				mustAppend(t, l, &HardState{Term: 1, Commit: at}, plain(at, 1, 8<<20))
				at++
			case "staged":
				e, raw := staged(at, 1, 1, at, 8<<20)
				mustAppendStaged(t, l, &HardState{Term: 1, Commit: at}, e, raw)
				at++
			}
			for range 3 {
				mustAppend(t, l, &HardState{Term: 1, Commit: at}, epoch(at, 1, "9.7.4"))
				at++
			}
			_ = l.Close()
			o.FS = vfs.Wrap(o.FS, func(op vfs.Op, _ string) error {
				if op == vfs.OpRead {
					reads++
				}
				return nil
			})
			l = mustOpen(t, o)
			bytes := int64(0)
			for _, s := range l.segments {
				if s.unread {
					bytes += s.end
				}
			}
			reads = 0
			begin := time.Now()
			if err := l.Check(t.Context(), clock.Machine{}); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begin); bytes < 8<<20 || took < time.Duration(bytes)*time.Second/checkBytesPerSecond || reads < int(bytes/checkBytes) {
				t.Errorf("%s: %d bytes in %v and %d reads", what, bytes, took, reads)
			}
			_ = l.Close()
		})
	}
}

// TestCheckOfAFlappingDisk: a disk that fails for a while makes the next start read one segment, not all.
func TestCheckOfAFlappingDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, _, indexed := indexedLog(t)
		bad := false
		fs := vfs.Wrap(disk, func(op vfs.Op, path string) error {
			if bad && op == vfs.OpRead {
				return syscall.EIO
			}
			return nil
		})
		l := mustOpen(t, indexedOptions(fs))
		bad = true
		go func() { time.Sleep(checkAgain); bad = false }()
		if err := l.Check(t.Context(), clock.Machine{}); err != nil {
			t.Fatal("a short failure", err)
		}
		bad = true
		if err := l.Check(t.Context(), clock.Machine{}); !errors.Is(err, ErrCorrupt) {
			t.Fatal("a long failure", err)
		}
		bad = false
		l.Doubt(indexed[len(indexed)-1])
		_ = l.Close()
		if got := unread(mustOpen(t, indexedOptions(fs))); len(got) != len(indexed)-1 {
			t.Errorf("later, not read were %v of %v", got, indexed)
		}
	})
}

// TestOvertakenReadDoubtsNothing: a reader that is overtaken by a truncation finds other bytes than it expected. No
// segment is damaged.
func TestOvertakenReadDoubtsNothing(t *testing.T) {
	disk := vfs.NewMem()
	var hook func(op vfs.Op, path string)
	o := indexedOptions(vfs.Wrap(disk, func(op vfs.Op, path string) error {
		if hook != nil {
			hook(op, path)
		}
		return nil
	}))
	o.CacheBytesMax, o.SegmentBytesMax = 1, 1<<20
	l := mustOpen(t, o)
	for at := uint64(1); at <= 6; at++ {
		mustAppend(t, l, &HardState{Term: 1, Commit: at}, epoch(at, 1, "9.7.4"))
	}
	var tail []Entry
	for at := uint64(7); at <= 26; at++ {
		tail = append(tail, plain(at, 1, 100))
	}
	mustAppend(t, l, nil, tail...)
	before := savedFiles(t, disk)
	hook = func(op vfs.Op, path string) {
		if op == vfs.OpRead && filepath.Base(path) == segmentName(6) {
			hook = nil
			mustAppend(t, l, &HardState{Term: 2, Commit: 6}, epoch(8, 2, "9.7.4"))
		}
	}
	if _, err := l.Entries(9, 16, 1<<20); !errors.Is(err, ErrUnavailable) || hook != nil {
		t.Fatalf("read: %v", err)
	}
	if got := savedFiles(t, disk); len(before) < 4 || len(got) < len(before) {
		t.Errorf("indexes of %v, before %v", got, before)
	}
}

// TestDoubtedHasNoIndex: no index is saved of a segment that was found damaged before.
func TestDoubtedHasNoIndex(t *testing.T) {
	disk := vfs.NewMem()
	o := indexedOptions(disk)
	o.CacheBytesMax = 1
	l := mustOpen(t, o)
	mustAppend(t, l, &HardState{Term: 1, Commit: 1}, epoch(1, 1, "9.7.4"))
	mustAppend(t, l, &HardState{Term: 1, Commit: 2}, epoch(2, 1, "9.7.4"), plain(3, 1, 300))
	mustAppend(t, l, &HardState{Term: 1, Commit: 3}, epoch(4, 1, "9.7.4"))
	b := readFile(t, disk, segmentName(2))
	b[len(b)-20] ^= 1
	writeFile(t, disk, segmentName(2), b)
	if _, err := l.Entries(3, 4, 1<<20); !errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
	mustAppend(t, l, &HardState{Term: 1, Commit: 4}, epoch(5, 1, "9.7.4"), epoch(6, 1, "9.7.4"))
	if got := savedFiles(t, disk); slices.Contains(got, segmentName(2)) {
		t.Errorf("indexes of %v", got)
	}
	_ = l.Close()
	if _, err := Open(o); !errors.Is(err, ErrCorrupt) {
		t.Errorf("the next open: %v", err)
	}
}

// TestEndedOpenGoesOn: a start that is ended while it reads the log keeps what it has read: the next one reads the rest.
// It does so, too, if an index did not fit.
func TestEndedOpenGoesOn(t *testing.T) {
	for what, spoil := range map[string]func(t *testing.T, disk *vfs.Mem, indexed []string){
		"no indexes": func(t *testing.T, disk *vfs.Mem, indexed []string) {
			for _, segment := range indexed {
				if err := disk.Remove(filepath.Join(testDir, savedName(segment))); err != nil {
					t.Fatal(err)
				}
			}
			writeFile(t, disk, savedTemporary, []byte("x"))
		},
		"an index of another segment": func(t *testing.T, disk *vfs.Mem, indexed []string) {
			b := readFile(t, disk, savedName(indexed[len(indexed)-1]))
			u := binary.LittleEndian
			u.PutUint32(b[92:], u.Uint32(b[92:])+1) // the chain at its end
			u.PutUint32(b[len(b)-4:], crc32.Checksum(b[:len(b)-4], castagnoli()))
			writeFile(t, disk, savedName(indexed[len(indexed)-1]), b)
		},
	} {
		t.Run(what, func(t *testing.T) {
			disk, entries, indexed := indexedLog(t)
			spoil(t, disk, indexed)
			o, ended := indexedOptions(disk), errors.New("killed by the probe")
			calls, passes := 0, 0
			o.Progress = func(done, _ int64) error {
				if calls++; done == 0 {
					calls, passes = 1, passes+1
				}
				if calls > len(indexed)/2 && (passes == 2 || what == "no indexes") {
					return ended
				}
				return nil
			}
			if _, err := Open(o); !errors.Is(err, ended) {
				t.Fatal(err)
			}
			saved := savedFiles(t, disk)
			if len(saved) < len(indexed)/2-1 || len(saved) == len(indexed) {
				t.Fatalf("indexes of %v after a start that was ended half-way, before of %v", saved, indexed)
			}
			l := mustOpen(t, indexedOptions(disk))
			if got := unread(l); !slices.Equal(got, saved) {
				t.Errorf("the next start did not read %v, indexes had %v", got, saved)
			}
			wantEntries(t, l, entries)
			if got := savedFiles(t, disk); !slices.Equal(got, indexed) {
				t.Errorf("then indexes have %v, want %v", got, indexed)
			}
		})
	}
}

// TestStaleIndexStays: an index that does not count, and cannot be removed, keeps no log from opening.
func TestStaleIndexStays(t *testing.T) {
	disk, entries, indexed := indexedLog(t)
	writeFile(t, disk, savedName(indexed[0]), readFile(t, disk, savedName(indexed[1])))
	writeFile(t, disk, savedName(segmentName(77)), []byte("x"))
	l := mustOpen(t, indexedOptions(vfs.Wrap(disk, func(op vfs.Op, path string) error {
		if op == vfs.OpRemove {
			return syscall.EIO
		}
		return nil
	})))
	wantEntries(t, l, entries)
}
