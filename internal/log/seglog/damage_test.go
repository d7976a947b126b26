package seglog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/quorate/quorate/internal/log/vfs"
)

// damagedLog is a log with known groups, on a disk that tests damage.
type damagedLog struct {
	fs      *vfs.Mem
	entries []Entry
	hs      []HardState
	// last is the newest segment. groupAt is where its last group begins.
	last    string
	groupAt int64
}

func buildDamaged(t *testing.T) *damagedLog {
	d := &damagedLog{fs: vfs.NewMem(), entries: history(), hs: []HardState{{}}}
	l := mustOpen(t, smallOptions(d.fs))
	groups := [][]Entry{d.entries[:4], d.entries[4:8], d.entries[8:12], d.entries[12:]}
	for i, g := range groups {
		hs := HardState{Term: uint64(i) + 1, Vote: 1, Commit: uint64(i)}
		d.hs = append(d.hs, hs)
		mustAppend(t, l, &hs, g...)
	}
	// Two more groups in the last segment.
	for i := uint64(14); i <= 17; i += 2 {
		g := []Entry{transactions(i, 4, 3, i, 1, 10), plain(i+1, 4, 20)}
		d.entries = append(d.entries, g...)
		d.groupAt = l.Segments()[len(l.Segments())-1].Bytes
		mustAppend(t, l, nil, g...)
	}
	infos := l.Segments()
	d.last = segmentName(infos[len(infos)-1].FirstIndex)
	if infos[len(infos)-1].FirstIndex != 12 {
		t.Fatalf("the last groups are not in one segment: %+v", infos)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return d
}

// outcome opens a copy of the disk with other content for the file name, and checks that no entry is wrong.
func (d *damagedLog) outcome(t *testing.T, name string, content []byte) (l *Log, err error) {
	t.Helper()
	disk := d.fs.CrashClone(0)
	writeFile(t, disk, name, content)
	l, err = Open(smallOptions(disk))
	if err != nil {
		for _, known := range []error{ErrCorrupt, ErrFormat, ErrIdentity} {
			if errors.Is(err, known) {
				return nil, err
			}
		}
		t.Fatalf("damaged %s: %v", name, err)
	}
	got, readErr := allOf(l)
	if readErr != nil || len(got) > len(d.entries) || !sameEntries(got, d.entries[:len(got)]) {
		t.Fatalf("damaged %s: log has %d entries that were never written so: %v", name, len(got), readErr)
	}
	known := false
	for _, hs := range d.hs {
		known = known || hs == l.HardState()
	}
	if !known {
		t.Fatalf("damaged %s: hard state %+v was never stored", name, l.HardState())
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l, nil
}

// TestFlippedBits flips a bit in each byte of each file. Only damage in the last group may count as a torn
// write.
func TestFlippedBits(t *testing.T) {
	d := buildDamaged(t)
	rng := rand.New(rand.NewPCG(1, 2))
	cuts := 0
	for name, whole := range content(t, d.fs) {
		end := len(whole)
		if name == d.last {
			end = int(d.groupAt) + 700 // the last group, and some of the zeros
		}
		for at := range min(end, len(whole)) {
			flips := []byte{1 << rng.IntN(8)}
			if at < 300 { // the headers
				flips = []byte{1, 2, 4, 8, 16, 32, 64, 128}
			}
			for _, flip := range flips {
				if d.checkFlip(t, name, whole, at, flip) {
					cuts++
				}
			}
		}
	}
	if cuts == 0 {
		t.Fatal("no torn tail was cut")
	}
}

// checkFlip reports whether the damage was cut as a torn tail.
func (d *damagedLog) checkFlip(t *testing.T, name string, whole []byte, at int, flip byte) bool {
	t.Helper()
	spoilt := append([]byte(nil), whole...)
	spoilt[at] ^= flip
	l, err := d.outcome(t, name, spoilt)
	if name == stateName {
		return false
	}
	if name == d.last && int64(at) >= d.groupAt {
		if err != nil {
			t.Fatalf("damage in the last group, at %d of %d: %v", at, d.groupAt, err)
		}
		return l.Stats().TornBytes > 0
	}
	if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrFormat) && !errors.Is(err, ErrIdentity) {
		t.Fatalf("damage in %s at %d by %#x was not found", name, at, flip)
	}
	var corrupt *CorruptError
	if errors.As(err, &corrupt) && corrupt.Offset > int64(at) {
		t.Fatalf("damage in %s at %d was found at %d", name, at, corrupt.Offset)
	}
	return false
}

// TestShortenedFiles cuts each file at every length.
func TestShortenedFiles(t *testing.T) {
	d := buildDamaged(t)
	for name, whole := range content(t, d.fs) {
		for size := range whole {
			l, err := d.outcome(t, name, whole[:size])
			if err == nil && (name != d.last || l.LastIndex() < 11) {
				t.Fatalf("%s cut to %d bytes of %d was not found: last index %d", name, size, len(whole), l.LastIndex())
			}
		}
	}
}

// TestForeignSegment: a segment of the same node looks as if it fitted, but was written behind other entries.
func TestForeignSegment(t *testing.T) {
	var disks []*vfs.Mem
	for size := 10; size <= 11; size++ {
		fs := vfs.NewMem()
		l := mustOpen(t, smallOptions(fs))
		mustAppend(t, l, nil, plain(1, 1, size), epoch(2, 1, "9.7.4"), plain(3, 1, 20))
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		disks = append(disks, fs)
	}
	writeFile(t, disks[0], segmentName(2), readFile(t, disks[1], segmentName(2)))
	if _, err := Open(smallOptions(disks[0])); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("open: %v", err)
	}
}

// TestLostCommitted: a log that ends before the commit index of the hard state has lost entries, whatever its
// tail looks like.
func TestLostCommitted(t *testing.T) {
	fs := vfs.NewMem()
	l := mustOpen(t, smallOptions(fs))
	mustAppend(t, l, nil, plain(1, 1, 100), plain(2, 1, 100))
	mustAppend(t, l, &HardState{Term: 1, Commit: 3}, plain(3, 1, 100))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	b := readFile(t, fs, segmentName(1))
	at := recordsOf(t, l, 0)[2].offset + 120
	b[at] ^= 1
	writeFile(t, fs, segmentName(1), b)
	_, err := Open(smallOptions(fs))
	var corrupt *CorruptError
	if !errors.As(err, &corrupt) || corrupt.Index != 3 {
		t.Fatalf("open: %v", err)
	}
}

// TestReaderFindsDamage: data that goes bad while the log is open is found when it is read, and the error names
// the place.
func TestReaderFindsDamage(t *testing.T) {
	fs := vfs.NewMem()
	o := smallOptions(fs)
	o.CacheBytesMax = 1
	l := mustOpen(t, o)
	want := history()
	mustAppend(t, l, nil, want...)
	name := segmentName(10)
	b := readFile(t, fs, name)
	at := recordsOf(t, l, l.find(10))[0].offset + 2000
	b[at] ^= 0x10
	writeFile(t, fs, name, b)
	_, err := l.Entries(9, 13, 1<<20)
	var corrupt *CorruptError
	if !errors.As(err, &corrupt) || corrupt.Index != 10 || corrupt.File != name {
		t.Fatalf("entries: %v", err)
	}
	if got, err := l.Entries(9, 10, 1<<20); err != nil || !sameEntries(got, want[8:9]) {
		t.Fatalf("the entry before: %v", err)
	}
}

// TestFakeRecordInData: a user may store data that looks like a record of this log. It must not count as an
// entry, nor as evidence that the file was durable there.
func TestFakeRecordInData(t *testing.T) {
	fs := vfs.NewMem()
	l := mustOpen(t, smallOptions(fs))
	mustAppend(t, l, nil, plain(1, 1, 50))
	mustAppend(t, l, nil, plain(2, 1, 50), plain(3, 1, 50))
	stolen := readFile(t, fs, segmentName(1))[recordsOf(t, l, 0)[1].offset:][:recordBytes(50)]
	end := l.segments[0].end
	mustAppend(t, l, nil, Entry{Index: 4, Term: 1, Type: 1, Data: append(make([]byte, 33), stolen...)})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	b := readFile(t, fs, segmentName(1))
	b[end+3] ^= 1
	writeFile(t, fs, segmentName(1), b)
	l = mustOpen(t, smallOptions(fs))
	wantEntries(t, l, []Entry{plain(1, 1, 50), plain(2, 1, 50), plain(3, 1, 50)})
}

// TestMisorderedGroup: of a group that was never acknowledged, the later sectors may be on the disk and the
// first one not.
func TestMisorderedGroup(t *testing.T) {
	for lost := range 3 {
		t.Run(fmt.Sprint("lost", lost), func(t *testing.T) {
			fs := vfs.NewMem()
			l := mustOpen(t, smallOptions(fs))
			mustAppend(t, l, nil, plain(1, 1, 50))
			mustAppend(t, l, nil, plain(2, 1, 50), plain(3, 1, 50), plain(4, 1, 50))
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			b := readFile(t, fs, segmentName(1))
			clear(b[recordsOf(t, l, 0)[1+lost].offset:][:recordBytes(50)])
			writeFile(t, fs, segmentName(1), b)
			l = mustOpen(t, smallOptions(fs))
			want := []Entry{plain(1, 1, 50), plain(2, 1, 50), plain(3, 1, 50), plain(4, 1, 50)}[:1+lost]
			wantEntries(t, l, want)
			// The old data behind the gap must not come back when the gap is filled again with the very same
			// entry.
			mustAppend(t, l, nil, plain(uint64(2+lost), 1, 50))
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			l = mustOpen(t, smallOptions(fs))
			wantEntries(t, l, append(want, plain(uint64(2+lost), 1, 50)))
		})
	}
}
