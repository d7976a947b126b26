package seglog

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/binlog"
)

// TestSparseIndex reads, cuts and opens a segment of many points, with entries
// that are small against the distance of two, and larger ones.
func TestSparseIndex(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	fs := vfs.NewMem()
	o := Options{FS: fs, Dir: testDir, Identity: testIdentity(), SegmentBytesMax: 64 << 20, CacheBytesMax: 1}
	l := mustOpen(t, o)
	var want []Entry
	for term := uint64(1); len(want) < 400; term += rng.Uint64N(2) {
		size := rng.IntN(6000)
		if rng.IntN(20) == 0 {
			size = rng.IntN(300 << 10)
		}
		want = append(want, plain(uint64(len(want)+1), term, size))
	}
	mustAppend(t, l, nil, want...)
	check := func() {
		t.Helper()
		for range 200 {
			lo := 1 + rng.IntN(len(want))
			hi := lo + rng.IntN(len(want)-lo+2)
			bytesMax := rng.Uint64N(1 << 20)
			n, size := 0, uint64(0)
			for _, e := range want[lo-1 : hi-1] {
				if size += uint64(len(e.Data)); size > bytesMax && n > 0 {
					break
				}
				n++
			}
			got, err := l.Entries(uint64(lo), uint64(hi), bytesMax)
			if err != nil || !sameEntries(got, want[lo-1:][:n]) {
				t.Fatalf("entries %d-%d in %d bytes: %d, want %d: %v", lo, hi, bytesMax, len(got), n, err)
			}
		}
		for _, e := range want {
			if term, err := l.Term(e.Index); term != e.Term || err != nil {
				t.Fatalf("term of %d: %d, %v", e.Index, term, err)
			}
		}
	}
	check()
	if x := l.tail().index; len(x.points) < 20 || len(x.points) > int(l.tail().end/pointBytes)+1 {
		t.Fatalf("%d points for %d bytes", len(x.points), l.tail().end)
	}
	for len(want) > 20 {
		at := len(want) - rng.IntN(min(len(want)-1, 80))
		want = append(want[:at:at], plain(uint64(at+1), want[at-1].Term+1, rng.IntN(100)))
		mustAppend(t, l, nil, want[at])
		check()
		// The index that Open builds from the file is the same as the one that the appends built.
		made := *l.tail()
		_ = l.Close()
		l = mustOpen(t, o)
		if found := *l.tail(); made.end != found.end || made.chain != found.chain ||
			cmp.Diff(made.index, found.index, cmp.AllowUnexported(sparseIndex{}, point{}, termRun{})) != "" {
			t.Fatalf("made %+v, found %+v", made, found)
		}
	}
}

// TestCutIndex: additions to an index that was cut are not seen in the index that it was cut from.
func TestCutIndex(t *testing.T) {
	build := func(n int) (x sparseIndex) {
		for i := range n {
			x.add(place{offset: int64(i) * pointBytes, term: uint64(i), chain: uint32(i)})
		}
		return x
	}
	whole := build(10)
	cut := whole.cut(4)
	opts := cmp.AllowUnexported(sparseIndex{}, point{}, termRun{})
	if diff := cmp.Diff(build(4), cut, opts); diff != "" {
		t.Fatal(diff)
	}
	cut.add(place{offset: 5 * pointBytes, term: 77, chain: 77})
	if diff := cmp.Diff(build(10), whole, opts); diff != "" {
		t.Fatal(diff)
	}
}

// TestOvertakenReader: a reader does not mix entries from before and after a truncation.
func TestOvertakenReader(t *testing.T) {
	var l *Log
	opens := 0
	fs := vfs.Wrap(vfs.NewMem(), func(op vfs.Op, _ string) error {
		if op == vfs.OpOpen && l != nil {
			if opens++; opens == 2 {
				return l.Append([]Entry{plain(1, 2, 900), plain(2, 2, 900), plain(3, 2, 900)}, nil)
			}
		}
		return nil
	})
	o := smallOptions(fs)
	o.CacheBytesMax = 1
	log := mustOpen(t, o)
	mustAppend(t, log, nil, plain(1, 1, 1000), plain(2, 1, 1000), plain(3, 1, 1000))
	l = log
	got, err := l.Entries(1, 4, 1<<20)
	if err != nil || opens < 2 || !sameEntries(got, []Entry{plain(1, 2, 900), plain(2, 2, 900), plain(3, 2, 900)}) {
		t.Fatalf("%d entries in %d opens: %v", len(got), opens, err)
	}
}

// TestDamagedHeadOnTheWay: a reader that passes over a record relies only on those parts of its head that the
// chain proves.
func TestDamagedHeadOnTheWay(t *testing.T) {
	fs := vfs.NewMem()
	o := Options{FS: fs, Dir: testDir, Identity: testIdentity(), CacheBytesMax: 1}
	l := mustOpen(t, o)
	mustAppend(t, l, nil, plain(1, 1, 100), plain(2, 1, 100), plain(3, 1, 100), plain(4, 1, 100))
	at := recordsOf(t, l, 0)[1].offset
	whole := readFile(t, fs, segmentName(1))
	for i := range int64(recordHeadBytes) {
		b := append([]byte(nil), whole...)
		b[at+i] ^= 0x20
		writeFile(t, fs, segmentName(1), b)
		got, err := l.Entries(3, 5, 1000)
		if err == nil && !sameEntries(got, []Entry{plain(3, 1, 100), plain(4, 1, 100)}) {
			t.Fatalf("byte %d: %d entries", i, len(got))
		}
		var corrupt *CorruptError
		if err != nil && (!errors.As(err, &corrupt) || corrupt.Index != 2 || corrupt.Offset != at) {
			t.Fatalf("byte %d: %v", i, err)
		}
	}
}

func TestSegmentTimes(t *testing.T) {
	stamp := func(e Entry, seconds ...byte) Entry {
		body := e.Data[24:]
		for _, s := range seconds {
			body[0] = s
			n := int(body[9]) // the GTID event
			fix(body[:n])
			body = body[n:]
			body = body[body[9]:]
		}
		return e
	}
	fs := vfs.NewMem()
	l := mustOpen(t, Options{FS: fs, Dir: testDir, Identity: testIdentity()})
	mustAppend(t, l, nil, plain(1, 1, 5), stamp(transactions(2, 1, 1, 1, 2, 5), 50, 60), stamp(transactions(3, 1, 1, 3, 1, 5), 70), plain(4, 1, 5))
	mustAppend(t, l, nil, stamp(transactions(5, 1, 1, 4, 1, 5), 80), rotate(6, 1, "9.7.4"))
	type span struct{ first, last int64 }
	check := func(want ...span) {
		t.Helper()
		for range 2 {
			for i, s := range l.Segments() {
				if got := (span{s.FirstTime, s.LastTime}); got != want[i] {
					t.Fatalf("segment %d: %+v, want %+v", i, got, want[i])
				}
			}
			_ = l.Close()
			l = mustOpen(t, Options{FS: fs, Dir: testDir, Identity: testIdentity()})
		}
	}
	check(span{50, 80}, span{})
	mustAppend(t, l, nil, plain(5, 2, 1))
	check(span{50, 70})
}

// TestSegmentTimesAreCommits: a client may set the time of its session, as one does that replicates from
// another server. log.retention_age once used that time as the age of the segment, and so today's segments were
// purged at once.
func TestSegmentTimesAreCommits(t *testing.T) {
	const committed, client = 1_790_000_000, 86_400
	of := func(index uint64, seconds int64) Entry {
		e := transactions(index, 1, 1, index, 1, 5)
		header, body := e.Data[:24], e.Data[24:]
		n := int(body[9]) // the GTID event
		stamp := binary.LittleEndian.AppendUint64(nil, uint64(seconds)*1_000_000)[:7]
		event := testEvent(binlog.TypeGTID, append(body[19:n-4:n-4], stamp...))
		binary.LittleEndian.PutUint32(event, client)
		fix(event)
		e.Data = slices.Concat(header, event, body[n:])
		return e
	}
	fs := vfs.NewMem()
	o := Options{FS: fs, Dir: testDir, Identity: testIdentity()}
	l := mustOpen(t, o)
	mustAppend(t, l, nil, of(1, committed), of(2, committed+5))
	for range 2 {
		if s := l.Segments()[0]; s.FirstTime != committed || s.LastTime != committed+5 {
			t.Errorf("its transactions are of %d to %d, want when they were committed, not %d", s.FirstTime, s.LastTime, client)
		}
		_ = l.Close()
		l = mustOpen(t, o)
	}
	_ = l.Close()
}
