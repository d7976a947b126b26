package seglog

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/log/vfs"
)

// needsRoom tells whether a call fails on a full disk.
func needsRoom(op vfs.Op) bool {
	return op == vfs.OpWrite || op == vfs.OpCreate || op == vfs.OpRename
}

// TestFullEverywhere makes the disk full at each call that needs room, for that call or for some more. The log
// refuses, and goes on when the append is tried again.
func TestFullEverywhere(t *testing.T) {
	for seed := range 2 * crashRuns() {
		for n := 1; fullWorkload(t, seed, n); n++ {
		}
	}
}

// fullWorkload reports whether there was an nth call that needed room.
func fullWorkload(t *testing.T, seed uint64, n int) bool {
	disk := vfs.NewMem()
	calls, refused, opening := 0, 0, true
	fs := vfs.Wrap(disk, func(op vfs.Op, path string) error {
		if opening || !needsRoom(op) {
			return nil
		}
		calls++
		if calls >= n && calls <= n+n%4 {
			return &syscallError{op, path}
		}
		return nil
	})
	w, p := newWorkload(seed, 3)
	l, err := openSmall(smallOptions(fs))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	opening = false
	for range 8 {
		entries, hs, kept := w.next()
		for try := 0; ; try++ {
			if err = w.beside(l, p, entries); err == nil {
				break
			}
			if !errors.Is(err, ErrFull) || try > 5 {
				t.Fatalf("seed %d, full at call %d: beside: %v", seed, n, err)
			}
		}
		p.kept, p.added = kept, entries
		if hs != nil {
			p.next = *hs
		}
		for err = l.Append(entries, hs); err != nil; err = l.Append(entries, hs) {
			when := fmt.Sprintf("seed %d, full at call %d", seed, n)
			if refused++; !errors.Is(err, ErrFull) || !errors.Is(err, syscall.ENOSPC) || refused > 5 {
				t.Fatalf("%s: append: %v", when, err)
			}
			checkCrash(t, disk.CrashClone(uint64(n)), p, when)
			if got, err := allOf(l); err != nil || len(got) > len(w.entries) {
				t.Fatalf("%s: %d entries: %v", when, len(got), err)
			}
		}
		p.acked, p.hs = slices.Clone(w.entries), w.hs
		p.kept, p.added = len(p.acked), nil
	}
	if diff := cmp.Diff(w.entries[l.FirstIndex()-1:], all(t, l)); diff != "" {
		t.Fatalf("seed %d, full at call %d (-want +got):\n%s", seed, n, diff)
	}
	checkCrash(t, disk.CrashClone(0), p, "at the end")
	return calls >= n
}

type syscallError struct {
	op   vfs.Op
	path string
}

func (e *syscallError) Error() string { return fmt.Sprintf("%s %s: no space", e.op, e.path) }
func (e *syscallError) Unwrap() error { return syscall.ENOSPC }

// TestVoteOnFullDisk: storing a vote needs no room.
func TestVoteOnFullDisk(t *testing.T) {
	disk := vfs.NewMem()
	full := false
	l := mustOpen(t, smallOptions(vfs.Wrap(disk, func(op vfs.Op, path string) error {
		if full && needsRoom(op) && path != testDir+"/"+stateName {
			return syscall.ENOSPC
		}
		return nil
	})))
	mustAppend(t, l, nil, plain(1, 1, 700))
	full = true
	if err := l.Append([]Entry{plain(2, 1, 2000)}, nil); !errors.Is(err, ErrFull) {
		t.Fatalf("append: %v", err)
	}
	hs := HardState{Term: 7, Vote: 3, Commit: 1}
	mustAppend(t, l, &hs)
	again := mustOpen(t, smallOptions(disk.CrashClone(0)))
	if again.HardState() != hs {
		t.Fatalf("hard state %+v, want %+v", again.HardState(), hs)
	}
	wantEntries(t, again, []Entry{plain(1, 1, 700)})
}

// TestSyncWithoutRoomIsTerminal: a sync that returns ENOSPC has lost data, like any other sync that fails.
func TestSyncWithoutRoomIsTerminal(t *testing.T) {
	for _, op := range []vfs.Op{vfs.OpSyncData, vfs.OpSync, vfs.OpSyncDir} {
		armed := false
		l := mustOpen(t, smallOptions(vfs.Wrap(vfs.NewMem(), func(o vfs.Op, _ string) error {
			if armed && o == op {
				return syscall.ENOSPC
			}
			return nil
		})))
		mustAppend(t, l, nil, plain(1, 1, 100))
		armed = true
		err := l.Append([]Entry{plain(2, 1, 1400), plain(3, 1, 1400)}, nil)
		if !errors.Is(err, ErrFailed) || errors.Is(err, ErrFull) {
			t.Errorf("%s: append: %v", op, err)
		}
	}
}

// TestFullPreparation: if there is no room for the zeros, they are left out.
func TestFullPreparation(t *testing.T) {
	disk := vfs.NewMem()
	writes := 0
	o := smallOptions(vfs.Wrap(disk, func(op vfs.Op, path string) error {
		if op != vfs.OpWrite || path == testDir+"/"+stateName {
			return nil
		}
		if writes++; writes == 4 { // the state, the segment's header, the group, its zeros
			return syscall.ENOSPC
		}
		return nil
	}))
	l := mustOpen(t, o)
	mustAppend(t, l, nil, plain(1, 1, 10))
	if s := l.Stats(); writes != 4 || s.ZeroBytes != 0 {
		t.Fatalf("%d writes, %d zeros", writes, s.ZeroBytes)
	}
	mustAppend(t, l, nil, plain(2, 1, 10))
	wantEntries(t, mustOpen(t, smallOptions(disk.CrashClone(0))), []Entry{plain(1, 1, 10), plain(2, 1, 10)})
}

// TestFullInsideGroup: the part of a group that was written before the disk was full is not behind the end of
// the segment when that is sealed next.
func TestFullInsideGroup(t *testing.T) {
	disk := vfs.NewMem()
	writes, failing := 0, false
	o := Options{Dir: testDir, Identity: testIdentity(), FS: vfs.Wrap(disk, func(op vfs.Op, _ string) error {
		if failing && op == vfs.OpWrite {
			if writes++; writes == 2 {
				return syscall.ENOSPC
			}
		}
		return nil
	})}
	l := mustOpen(t, o)
	want := []Entry{plain(1, 1, 10)}
	mustAppend(t, l, nil, want...)
	failing = true
	if err := l.Append([]Entry{plain(2, 1, 300), plain(3, 1, 2*groupBufferBytes)}, nil); !errors.Is(err, ErrFull) {
		t.Fatalf("append: %v", err)
	}
	want = append(want, epoch(2, 2, "9.7.4"))
	mustAppend(t, l, nil, want[1])
	wantEntries(t, mustOpen(t, smallOptions(disk.CrashClone(0))), want)
}

// TestConflictOnFullDisk: a conflict removes all of a segment, and there is no room for the segment that takes
// its place. The removed entries stay removed, and the old FORMAT_DESCRIPTION is not used for the next entries.
func TestConflictOnFullDisk(t *testing.T) {
	disk := vfs.NewMem()
	failing := false
	l := mustOpen(t, smallOptions(vfs.Wrap(disk, func(op vfs.Op, _ string) error {
		if failing && op == vfs.OpCreate {
			return syscall.ENOSPC
		}
		return nil
	})))
	mustAppend(t, l, nil, epoch(1, 1, "9.7.4"), plain(2, 1, 10), epoch(3, 2, "9.7.5"), plain(4, 2, 10))
	failing = true
	if err := l.Append([]Entry{plain(3, 3, 20)}, nil); !errors.Is(err, ErrFull) {
		t.Fatalf("append: %v", err)
	}
	hs := HardState{Term: 3, Commit: 2}
	mustAppend(t, l, &hs)
	failing = false
	after := mustOpen(t, smallOptions(disk.CrashClone(0)))
	for _, l := range []*Log{l, after} {
		wantEntries(t, l, []Entry{epoch(1, 1, "9.7.4"), plain(2, 1, 10)})
		mustAppend(t, l, nil, plain(3, 3, 20))
		wantEntries(t, l, []Entry{epoch(1, 1, "9.7.4"), plain(2, 1, 10), plain(3, 3, 20)})
		infos := l.Segments()
		if diff := cmp.Diff(infos[0].FormatDescription, infos[len(infos)-1].FormatDescription); diff != "" {
			t.Errorf("FORMAT_DESCRIPTION of what follows:\n%s", diff)
		}
	}
}
