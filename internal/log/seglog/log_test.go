package seglog

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/sys/invariant"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEmptyLog(t *testing.T) {
	fs := vfs.NewMem()
	for range 2 { // as it is, and after it was opened again
		l := mustOpen(t, smallOptions(fs))
		if l.FirstIndex() != 1 || l.LastIndex() != 0 || l.HardState() != (HardState{}) {
			t.Fatalf("first %d, last %d, hard state %+v", l.FirstIndex(), l.LastIndex(), l.HardState())
		}
		if term, err := l.Term(0); term != 0 || err != nil {
			t.Fatalf("term of 0: %d, %v", term, err)
		}
		if _, err := l.Term(1); !errors.Is(err, ErrUnavailable) {
			t.Fatalf("term of 1: %v", err)
		}
		if got, err := l.Entries(1, 1, 100); len(got) != 0 || err != nil {
			t.Fatalf("entries 1-1: %v, %v", got, err)
		}
		if _, err := l.Entries(0, 1, 100); !errors.Is(err, ErrCompacted) {
			t.Fatalf("entries from 0: %v", err)
		}
		if _, err := l.Entries(1, 2, 100); !errors.Is(err, ErrUnavailable) {
			t.Fatalf("entries to 2: %v", err)
		}
		if err := checkSegments(l, nil, 0); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// history returns a log with everything: all kinds of entries, from empty ones to those longer than a segment,
// epochs, a rotation, and segments that were ended for their size.
func history() []Entry {
	return []Entry{
		plain(1, 1, 0),
		epoch(2, 1, "9.7.4"),
		transactions(3, 1, 1, 1, 1, 10),
		transactions(4, 1, 1, 2, 3, 100),
		plain(5, 1, 40),
		transactions(6, 1, 1, 5, 1, 900),
		transactions(7, 1, 1, 6, 1, 900),
		plain(8, 3, 0),
		epoch(9, 3, "9.7.5"),
		transactions(10, 3, 2, 1, 2, 4000),
		plain(11, 3, 1),
		rotate(12, 3, "9.7.5"),
		transactions(13, 3, 2, 3, 1, 10),
	}
}

func TestAppendAndReopen(t *testing.T) {
	for _, group := range []int{1, 3, 100} {
		fs := vfs.NewMem()
		l := mustOpen(t, smallOptions(fs))
		want := history()
		for rest := want; len(rest) > 0; {
			n := min(group, len(rest))
			mustAppend(t, l, nil, rest[:n]...)
			rest = rest[n:]
		}
		hs := HardState{Term: 3, Vote: 2, Commit: 12}
		mustAppend(t, l, &hs)
		for range 3 {
			wantEntries(t, l, want)
			if l.HardState() != hs {
				t.Fatalf("hard state %+v", l.HardState())
			}
			if err := checkSegments(l, want, hs.Commit); err != nil {
				t.Fatal(err)
			}
			for i, e := range want {
				if term, err := l.Term(uint64(i + 1)); term != e.Term || err != nil {
					t.Fatalf("term of %d: %d, %v", i+1, term, err)
				}
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			l = mustOpen(t, smallOptions(fs))
		}
		if len(l.Segments()) < 6 {
			t.Fatalf("only %d segments", len(l.Segments()))
		}
	}
}

func TestEntriesBytesMax(t *testing.T) {
	fs := vfs.NewMem()
	l := mustOpen(t, smallOptions(fs))
	var want []Entry
	for i := uint64(1); i <= 20; i++ {
		want = append(want, plain(i, 1, 100))
	}
	mustAppend(t, l, nil, want...)
	for lo := uint64(1); lo <= 20; lo++ {
		for hi := lo; hi <= 21; hi++ {
			for _, bytesMax := range []uint64{0, 99, 100, 199, 200, 550, 1 << 40} {
				got, err := l.Entries(lo, hi, bytesMax)
				n := min(hi-lo, max(1, bytesMax/100))
				if diff := cmp.Diff(want[lo-1:][:n], got); err != nil || (n > 0 && diff != "") || uint64(len(got)) != n {
					t.Fatalf("entries %d-%d in %d bytes: %v (-want +got):\n%s", lo, hi, bytesMax, err, diff)
				}
			}
		}
	}
	s := l.Stats()
	if s.CacheEntries == 0 || s.DiskEntries == 0 || s.CacheBytes > 1200 || s.CacheBytes < 900 {
		t.Fatalf("the cache had no part, or is not bounded: %+v", s)
	}
}

func TestTruncateEverywhere(t *testing.T) {
	old := history()
	for at := uint64(1); at <= uint64(len(old)); at++ {
		for _, first := range []Entry{plain(at, 9, 30), epoch(at, 9, "9.7.9"), transactions(at, 9, 7, 1, 2, 50)} {
			fs := vfs.NewMem()
			l := mustOpen(t, smallOptions(fs))
			mustAppend(t, l, nil, old...)
			files := len(l.Segments())
			added := []Entry{first, transactions(at+1, 9, 7, 20, 2, 600), plain(at+2, 9, 700)}
			mustAppend(t, l, nil, added...)
			want := append(append([]Entry(nil), old[:at-1]...), added...)
			for range 2 {
				wantEntries(t, l, want)
				if err := checkSegments(l, want, 0); err != nil {
					t.Fatalf("truncated at %d: %v", at, err)
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				l = mustOpen(t, smallOptions(fs))
			}
			_ = l.Close()
			if at == 1 && len(l.Segments()) >= files {
				t.Fatalf("%d segments, were %d", len(l.Segments()), files)
			}
		}
	}
}

// TestTruncationLeavesFinishedSegment: a finished segment is never written to again, even if the entries after
// it are cut off.
func TestTruncationLeavesFinishedSegment(t *testing.T) {
	fs := vfs.NewMem()
	l := mustOpen(t, smallOptions(fs))
	mustAppend(t, l, &HardState{Term: 1, Commit: 2}, plain(1, 1, 10), plain(2, 1, 10), epoch(3, 1, "9.7.4"), plain(4, 1, 10))
	before := readFile(t, fs, segmentName(1))
	if s := l.Segments()[0]; !s.Sealed || s.Bytes != int64(len(before)) {
		t.Fatalf("segment %+v has a file of %d bytes", s, len(before))
	}
	mustAppend(t, l, nil, plain(3, 2, 20))
	if !bytes.Equal(before, readFile(t, fs, segmentName(1))) {
		t.Fatal("the sealed segment has changed")
	}
}

func TestTooLargeEntryIsRefused(t *testing.T) {
	l := mustOpen(t, smallOptions(vfs.NewMem()))
	// This memory is never touched: only its length counts.
	data, err := unix.Mmap(-1, 0, EntryBytesMax+1, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(data) }()
	huge := Entry{Index: 2, Term: 1, Data: data}
	if err := l.Append([]Entry{plain(1, 1, 10), huge}, nil); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("append: %v", err)
	}
	mustAppend(t, l, nil, plain(1, 1, 10))
	wantEntries(t, l, []Entry{plain(1, 1, 10)})
}

func TestBrokenCallersPanic(t *testing.T) {
	hs := HardState{Term: 2, Vote: 1, Commit: 2}
	tests := map[string]struct {
		entries []Entry
		hs      *HardState
	}{
		"gap":                     {entries: []Entry{plain(5, 2, 1)}},
		"gap inside":              {entries: []Entry{plain(4, 2, 1), plain(6, 2, 1)}},
		"term goes back":          {entries: []Entry{plain(4, 1, 1)}},
		"committed is replaced":   {entries: []Entry{plain(2, 3, 1)}},
		"hard state's term back":  {hs: &HardState{Term: 1, Commit: 2}},
		"commit goes back":        {hs: &HardState{Term: 2, Vote: 1, Commit: 1}},
		"commit behind the log":   {hs: &HardState{Term: 2, Vote: 1, Commit: 4}},
		"second vote in the term": {hs: &HardState{Term: 2, Vote: 3, Commit: 2}},
		"vote taken back":         {hs: &HardState{Term: 2, Commit: 2}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			l := mustOpen(t, smallOptions(vfs.NewMem()))
			mustAppend(t, l, &hs, plain(1, 1, 1), plain(2, 2, 1), plain(3, 2, 1))
			defer func() {
				if _, ok := recover().(invariant.Violation); !ok {
					t.Error("no invariant was broken")
				}
			}()
			_ = l.Append(tc.entries, tc.hs)
		})
	}
}

func TestDirectoryIsLocked(t *testing.T) {
	fs := vfs.NewMem()
	l := mustOpen(t, smallOptions(fs))
	if _, err := Open(smallOptions(fs)); !errors.Is(err, vfs.ErrLocked) {
		t.Fatalf("second open: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Append([]Entry{plain(1, 1, 1)}, nil); !errors.Is(err, ErrClosed) {
		t.Fatalf("append after close: %v", err)
	}
	mustOpen(t, smallOptions(fs))
}

// foreign is a directory that Open must refuse and leave alone.
type foreign struct {
	prepare func(*testing.T, *vfs.Mem)
	other   bool
	want    error
}

func foreignDirectories() map[string]foreign {
	edit := func(name string, at int, value byte) func(*testing.T, *vfs.Mem) {
		return func(t *testing.T, fs *vfs.Mem) {
			b := readFile(t, fs, name)
			b[at] = value
			writeFile(t, fs, name, b)
		}
	}
	newerSegment := func(t *testing.T, fs *vfs.Mem) {
		names, err := fs.List(testDir)
		if err != nil {
			t.Fatal(err)
		}
		name := names[len(names)-2] // the last name is that of the state
		b := readFile(t, fs, name)
		at := bytes.Index(b, []byte(segmentMagic))
		b[at+4] = stagedVersion + 1
		event := b[at-19:][:19+segmentHeaderBytes+4]
		copy(event, appendEvent(nil, 28, 0x80, event[19:len(event)-4], int64(at-19)))
		writeFile(t, fs, name, b)
	}
	return map[string]foreign{
		"other node":    {other: true, want: ErrIdentity},
		"newer state":   {prepare: edit(stateName, 4, Version+1), want: ErrFormat},
		"other file":    {prepare: edit(stateName, 0, 'X'), want: ErrFormat},
		"newer segment": {prepare: newerSegment, want: ErrFormat},
		"segment of another node": {prepare: func(t *testing.T, fs *vfs.Mem) {
			other := smallOptions(vfs.NewMem())
			other.Identity[0]++
			mustOpen(t, other)
			name := segmentName(1)
			writeFile(t, fs, name, readFile(t, other.FS, name))
		}, want: ErrIdentity},
		"no state": {prepare: func(t *testing.T, fs *vfs.Mem) {
			if err := fs.Remove(testDir + "/" + stateName); err != nil {
				t.Fatal(err)
			}
		}, want: ErrCorrupt},
		"no segments": {prepare: func(t *testing.T, fs *vfs.Mem) {
			for name := range content(t, fs) {
				if name != stateName {
					if err := fs.Remove(testDir + "/" + name); err != nil {
						t.Fatal(err)
					}
				}
			}
		}, want: ErrCorrupt},
		"something else": {prepare: func(t *testing.T, fs *vfs.Mem) {
			if err := fs.RemoveAll(testDir); err != nil {
				t.Fatal(err)
			}
			if err := fs.MkdirAll(testDir); err != nil {
				t.Fatal(err)
			}
			writeFile(t, fs, "ibdata1", []byte("InnoDB"))
		}, want: ErrFormat},
	}
}

// TestForeignDirectoryStaysUntouched: nothing may change in a directory that is not this node's log.
func TestForeignDirectoryStaysUntouched(t *testing.T) {
	build := func(t *testing.T) *vfs.Mem {
		fs := vfs.NewMem()
		l := mustOpen(t, smallOptions(fs))
		mustAppend(t, l, &HardState{Term: 1, Vote: 1}, history()...)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return fs
	}
	for name, tc := range foreignDirectories() {
		t.Run(name, func(t *testing.T) {
			fs := build(t)
			if tc.prepare != nil {
				tc.prepare(t, fs)
			}
			before := content(t, fs)
			o := smallOptions(vfs.Wrap(fs, func(op vfs.Op, path string) error {
				// Facts that only the segments show are found under the lock.
				if op == vfs.OpMkdirAll && strings.Contains(name, "segment") {
					return nil
				}
				if op.Changes() {
					t.Errorf("%s of %s", op, path)
				}
				return nil
			}))
			if tc.other {
				o.Identity[15]++
			}
			if _, err := Open(o); !errors.Is(err, tc.want) {
				t.Fatalf("open: %v, want %v", err, tc.want)
			}
			if diff := cmp.Diff(before, content(t, fs)); diff != "" {
				t.Fatalf("directory changed:\n%s", diff)
			}
		})
	}
}

// TestSizeOfALongLog: a node's status, which is made with each probe, costs no more for a long log.
func TestSizeOfALongLog(t *testing.T) {
	l := mustOpen(t, smallOptions(vfs.NewMem()))
	for i := range uint64(300) {
		mustAppend(t, l, &HardState{Term: 1, Commit: i + 1}, plain(i+1, 1, 1000))
	}
	total := int64(0)
	infos := l.Segments()
	for _, s := range infos {
		total += s.Bytes
	}
	if n, bytes := l.Size(); n != len(infos) || n < 300 || bytes != total {
		t.Fatalf("%d segments of %d bytes, want %d of %d", n, bytes, len(infos), total)
	}
	if n := testing.AllocsPerRun(100, func() { l.Size() }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
