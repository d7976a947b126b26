package seglog

import (
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/log/vfs"
)

// TestPurge: only whole segments are removed, up to the index, and one committed entry stays.
func TestPurge(t *testing.T) {
	want := history() // segments from 1, 2, 5, 6, 7, 8, 9, 10, 11 and 12 on
	for upTo := range uint64(len(want) + 3) {
		for _, commit := range []uint64{0, 1, 2, 5, 8, 12, 13} {
			fs := vfs.NewMem()
			l := mustOpen(t, smallOptions(fs))
			mustAppend(t, l, &HardState{Term: 3, Commit: commit}, want...)
			infos := l.Segments()
			first := uint64(1)
			for i, s := range infos[:len(infos)-1] {
				if s.LastIndex <= upTo && infos[i+1].FirstIndex <= commit {
					first = s.LastIndex + 1
				}
			}
			removed, err := l.Purge(upTo)
			if err != nil || l.FirstIndex() != first || len(removed) != len(infos)-len(l.Segments()) {
				t.Fatalf("purge to %d with %d committed: first %d, want %d, %d segments removed: %v", upTo, commit, l.FirstIndex(), first, len(removed), err)
			}
			if len(removed) > 0 && removed[len(removed)-1].LastIndex != first-1 {
				t.Fatalf("removed up to %d, the log begins at %d", removed[len(removed)-1].LastIndex, first)
			}
			_, err = l.Entries(first-1, first, 100)
			if !errors.Is(err, ErrCompacted) {
				t.Fatalf("entry %d: %v", first-1, err)
			}
			// The same is true after a power loss, which may lose the commit index.
			for _, l := range []*Log{l, mustOpen(t, smallOptions(fs.CrashClone(0)))} {
				wantEntries(t, l, want[first-1:])
				if err := checkSegments(l, want, l.HardState().Commit); err != nil {
					t.Fatalf("purge to %d with %d committed: %v", upTo, commit, err)
				}
				_ = l.Close()
			}
		}
	}
}

// TestPurgedLogGoesOn: conflicts, epochs and more purges after a purge.
func TestPurgedLogGoesOn(t *testing.T) {
	fs := vfs.NewMem()
	l := mustOpen(t, smallOptions(fs))
	want := history()
	mustAppend(t, l, &HardState{Term: 3, Commit: 9}, want...)
	if _, err := l.Purge(8); err != nil || l.FirstIndex() != 9 {
		t.Fatalf("first %d: %v", l.FirstIndex(), err)
	}
	for range 2 {
		mustAppend(t, l, nil, plain(10, 4, 30), transactions(11, 4, 5, 1, 2, 10))
		want = append(want[:9:9], plain(10, 4, 30), transactions(11, 4, 5, 1, 2, 10))
		if err := checkSegments(l, want, l.HardState().Commit); err != nil {
			t.Fatal(err)
		}
		wantEntries(t, l, want[8:])
		_ = l.Close()
		l = mustOpen(t, smallOptions(fs))
	}
	info := l.Segments()[0]
	if diff := cmp.Diff([]byte(l.segments[0].formatDescription), info.FormatDescription); diff != "" || info.FirstIndex != 9 {
		t.Fatalf("segment from %d: %s", info.FirstIndex, diff)
	}
}

// TestHoleIsCorruption: a purge takes the oldest segments. A segment that is missing in the middle was lost.
func TestHoleIsCorruption(t *testing.T) {
	fs := vfs.NewMem()
	l := mustOpen(t, smallOptions(fs))
	mustAppend(t, l, &HardState{Term: 3, Commit: 13}, history()...)
	infos := l.Segments()
	_ = l.Close()
	for i := range infos {
		disk := fs.CrashClone(1)
		if err := disk.Remove(testDir + "/" + infos[i].Name); err != nil {
			t.Fatal(err)
		}
		_, err := Open(smallOptions(disk))
		if (i == 0) != (err == nil) || i > 0 && !errors.Is(err, ErrCorrupt) {
			t.Errorf("without segment %d: %v", i, err)
		}
	}
}

// TestFailedRemoval: a segment that could not be removed stays in the log, and no later segment is removed
// before it.
func TestFailedRemoval(t *testing.T) {
	fs := vfs.NewMem()
	errDisk := errors.New("input/output error")
	failing := vfs.OpRemove
	l := mustOpen(t, smallOptions(vfs.Wrap(fs, func(op vfs.Op, _ string) error {
		if op == failing {
			return errDisk
		}
		return nil
	})))
	failing = ""
	want := history()
	mustAppend(t, l, &HardState{Term: 3, Commit: 13}, want...)
	failing = vfs.OpRemove
	if removed, err := l.Purge(10); !errors.Is(err, errDisk) || errors.Is(err, ErrFailed) || len(removed) > 0 || l.FirstIndex() != 1 {
		t.Fatalf("purge: %v, %v, first %d", removed, err, l.FirstIndex())
	}
	wantEntries(t, l, want)
	failing = vfs.OpSyncDir
	if _, err := l.Purge(10); !errors.Is(err, ErrFailed) {
		t.Fatalf("purge: %v", err)
	}
	failing = ""
	if _, err := l.Purge(10); !errors.Is(err, ErrFailed) {
		t.Fatalf("purge after a failure: %v", err)
	}
	if err := l.Append([]Entry{plain(14, 3, 1)}, nil); !errors.Is(err, ErrFailed) {
		t.Fatalf("append after a failure: %v", err)
	}
}

// TestPurgeBesideAppend purges and reads all the time while entries are appended and cut off.
func TestPurgeBesideAppend(t *testing.T) {
	l := mustOpen(t, Options{FS: vfs.NewMem(), Dir: testDir, Identity: testIdentity(), SegmentBytesMax: 2000, CacheBytesMax: 2000})
	done := make(chan struct{})
	var wg sync.WaitGroup
	loop := func(f func() error) {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := f(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	loop(func() error { _, err := l.Purge(l.HardState().Commit); return err })
	for range 2 {
		loop(func() error {
			first, last := l.FirstIndex(), l.LastIndex()
			got, err := l.Entries(first, last+1, 1<<20)
			if errors.Is(err, ErrCompacted) || errors.Is(err, ErrUnavailable) {
				return nil
			}
			for i, e := range got {
				if e.Index != first+uint64(i) || !sameEntries(got[i:i+1], []Entry{plain(e.Index, e.Term, 300)}) {
					t.Errorf("entry %d of term %d in place %d", e.Index, e.Term, first+uint64(i))
				}
			}
			return err
		})
	}
	last := uint64(0)
	for term := uint64(1); term <= 60 || term < 10_000 && l.Stats().PurgedSegments == 0; term++ {
		first := last + 1
		if term%2 == 0 {
			first -= min(last-l.HardState().Commit, term%7)
		}
		var entries []Entry
		for last = first - 1; last < first+10; last++ {
			entries = append(entries, plain(last+1, term, 300))
		}
		mustAppend(t, l, &HardState{Term: term, Commit: last - 8}, entries...)
	}
	close(done)
	wg.Wait()
	if l.Stats().PurgedSegments == 0 {
		t.Fatal("nothing was purged")
	}
}
