package seglog

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/binlog"
)

// copyOf returns a file system with the given files.
func copyOf(t testing.TB, files map[string][]byte) vfs.FS {
	t.Helper()
	fs := vfs.NewMem()
	if err := fs.MkdirAll(testDir); err != nil {
		t.Fatal(err)
	}
	for name, b := range files {
		writeFile(t, fs, name, b)
	}
	return fs
}

func mustVerify(t testing.TB, fs vfs.FS) *Verified {
	t.Helper()
	v, err := mustInspect(t, fs, false).Verify(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestVerifyWhole: nothing is wrong in a log with every kind of entry, and all of it was looked at.
func TestVerifyWhole(t *testing.T) {
	s := sampleStory()
	fs := vfs.NewMem()
	l := s.open(t, fs, uint64(len(s.entries))-1)
	v := mustVerify(t, fs)
	if len(v.Findings) > 0 || v.Segments != len(l.Segments()) || v.Entries != uint64(len(s.entries)) ||
		v.Transactions != s.n || v.FirstIndex != 1 || v.LastIndex != v.Entries || v.Commit != v.Entries-1 {
		t.Fatalf("%+v", v)
	}
}

// TestVerifyAgreesWithOpen flips a bit at each place of a log and compares the verdict with that of Open, which
// has tests of its own. Damage that Open finds must be found in the right file, and not behind its place.
func TestVerifyAgreesWithOpen(t *testing.T) {
	s := newStory()
	s.epoch("8.4.3")
	s.transactions(2, 20)
	s.staged(300)
	s.transactions(1, 40)
	s.epoch("9.7.4")
	s.transactions(1, 30)
	s.transactions(2, 10)
	last := uint64(len(s.entries))
	fs := vfs.NewMem()
	l := mustOpen(t, Options{FS: fs, Dir: testDir, Identity: testIdentity(), SegmentBytesMax: 1500})
	l.slackBytes = 1 << 10
	s.append(t, l, 1, last, last-2)
	files := content(t, fs)
	for name, whole := range files {
		step := 1
		if testing.Short() {
			step = 7
		}
		for at := 0; at < len(whole); at += step {
			files[name] = bytes.Clone(whole)
			files[name][at] ^= 0x10
			if err := compareWithOpen(t, files, name, int64(at)); err != nil {
				t.Errorf("%s, bit at %d: %v", name, at, err)
			}
		}
		files[name] = whole
	}
}

func compareWithOpen(t *testing.T, files map[string][]byte, name string, at int64) error {
	fs := copyOf(t, files)
	in, err := Inspect(InspectOptions{FS: fs, Dir: testDir})
	var v *Verified
	if err == nil {
		v, err = in.Verify(t.Context(), nil)
	}
	l, openErr := Open(Options{FS: fs, Dir: testDir, Identity: testIdentity()})
	if openErr == nil {
		defer func() { _ = l.Close() }()
	}
	switch {
	case errors.Is(openErr, ErrFormat) != errors.Is(err, ErrFormat):
		return fmt.Errorf("%w, but open says %w", err, openErr)
	case errors.Is(openErr, ErrFormat):
		return nil
	case err != nil:
		return err
	case v.Damaged() != (openErr != nil):
		return fmt.Errorf("%+v, but open says %w", v.Findings, openErr)
	case openErr == nil && len(v.Findings) == 0 && l.Stats().TornBytes > 0:
		return errors.New("the torn tail was not found")
	case openErr == nil:
		return nil
	}
	for _, f := range v.Findings {
		if f.Segment == name && f.Offset <= at && !f.Torn {
			return nil
		}
	}
	return fmt.Errorf("no finding in its file at or before it: %+v", v.Findings)
}

// TestVerifyOvertaken: after the directory was listed, segments are cut off and written again, with one more
// between. That is no damage.
func TestVerifyOvertaken(t *testing.T) {
	long, short := newStory(), newStory()
	for s, rotations := range map[*story][]int{long: {10}, short: {8, 10}} {
		s.epoch("9.7.4")
		for len(s.entries) < 12 {
			if slices.Contains(rotations, len(s.entries)+1) {
				s.rotate("9.7.4")
			} else {
				s.transactions(1, 10)
			}
		}
	}
	fs := vfs.NewMem()
	l := long.open(t, fs, 4)
	in := mustInspect(t, fs, false)
	short.append(t, l, 8, 12, 4)
	if now := mustInspect(t, fs, false); len(now.names) != len(in.names)+1 || now.names[len(now.names)-1] != in.names[len(in.names)-1] {
		t.Fatalf("segments %v, before %v", now.names, in.names)
	}
	v, err := in.Verify(t.Context(), nil)
	if err != nil || len(v.Findings) > 0 || v.LastIndex != 12 {
		t.Fatalf("%+v, %v", v, err)
	}
}

// TestVerifyGoesOn: damage in several places is found in one run, each place once and with its index. The parts
// between are counted.
func TestVerifyGoesOn(t *testing.T) {
	s := sampleStory()
	fs := vfs.NewMem()
	s.open(t, fs, uint64(len(s.entries)))
	files := content(t, fs)
	places := map[uint64]InspectedEntry{}
	if err := mustInspect(t, fs, false).Entries(0, 0, func(e *InspectedEntry) error {
		places[e.Index] = *e
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	// The body of one record, the heads of two, and a segment's header.
	body, head, staged := places[5], places[7], places[12]
	if len(staged.Transactions) != 1 || staged.Header.Kind.String() != "staged" {
		t.Fatalf("entry 12 is %+v", staged)
	}
	files[body.Segment][body.Transactions[0].Offset+50] ^= 1
	files[head.Segment][head.Offset+recordHeadBytes/2] ^= 1
	files[staged.Segment][staged.Transactions[0].Offset+100] ^= 1
	rotate := places[14]
	files[rotate.Segment][1] ^= 1
	v := mustVerify(t, copyOf(t, files))
	want := []struct {
		index  uint64
		offset int64
	}{{5, body.Offset}, {7, head.Offset}, {12, staged.Offset}, {14, 0}}
	if len(v.Findings) != len(want) {
		t.Fatalf("%+v", v.Findings)
	}
	for i, w := range want {
		if f := v.Findings[i]; f.Index != w.index || f.Offset != w.offset || f.Segment != places[w.index].Segment || f.Torn {
			t.Errorf("finding %+v, want %+v", f, w)
		}
	}
	if v.LastIndex != uint64(len(s.entries)) || v.Entries >= uint64(len(s.entries))-3 || v.Entries < uint64(len(s.entries))-6 {
		t.Errorf("%+v of %d entries", v, len(s.entries))
	}
}

// TestLostSegmentBehindDamage: a segment that is lost is missed whatever is wrong with the segment before it, and nobody
// takes its entries for that segment's.
func TestLostSegmentBehindDamage(t *testing.T) {
	s := newStory()
	s.epoch("9.7.4")
	for range 12 {
		s.transactions(2, 200)
	}
	fs := vfs.NewMem()
	l := s.open(t, fs, uint64(len(s.entries)))
	segments := l.Segments()
	if len(segments) < 5 {
		t.Fatalf("%d segments: the test needs more", len(segments))
	}
	for what, at := range map[string]int{"intact": -1, "its header is damaged": 9, "its end is damaged": len(content(t, fs)[segmentName(segments[1].FirstIndex)]) - 9} {
		files := content(t, fs)
		before, lost, next := segmentName(segments[1].FirstIndex), segmentName(segments[2].FirstIndex), segmentName(segments[3].FirstIndex)
		if delete(files, lost); at >= 0 {
			files[before][at] ^= 0x10
		}
		disk := copyOf(t, files)
		v := mustVerify(t, disk)
		if !slices.ContainsFunc(v.Findings, func(f Finding) bool { return f.Segment == next && f.Index == segments[3].FirstIndex && !f.Torn }) {
			t.Errorf("%s: verify finds %+v", what, v.Findings)
		}
		if err := mustInspect(t, disk, false).Segments(func(sum SegmentSummary) error {
			if sum.Name == before && (sum.Problem == nil || sum.LastIndex >= segments[2].FirstIndex) {
				t.Errorf("%s: listed as %+v", what, sum)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestVerifyTornTail: data that a crash leaves behind the last sync is no damage.
func TestVerifyTornTail(t *testing.T) {
	s := newStory()
	s.epoch("9.7.4")
	s.transactions(1, 10)
	s.transactions(1, 10)
	fs := vfs.NewMem()
	l := s.open(t, fs, 3)
	name, end := segmentName(l.tail().first), l.tail().end
	files := content(t, fs)
	files[name] = append(files[name][:end:end], "half a record"...)
	v := mustVerify(t, copyOf(t, files))
	if len(v.Findings) != 1 || !v.Findings[0].Torn || v.Damaged() || v.Findings[0].Offset != end || v.Findings[0].Index != 5 {
		t.Errorf("garbage behind the end: %+v", v.Findings)
	}
	files[name] = append(files[name][:end:end], make([]byte, 100)...)
	if v := mustVerify(t, copyOf(t, files)); len(v.Findings) > 0 {
		t.Errorf("zeros behind the end: %+v", v.Findings)
	}
	files[name] = files[name][:end-3]
	if v := mustVerify(t, copyOf(t, files)); v.Damaged() || len(v.Findings) != 1 || v.LastIndex != 3 {
		t.Errorf("half of an uncommitted entry: %+v", v.Findings)
	}
	s = newStory()
	s.epoch("9.7.4")
	s.transactions(1, 10)
	fs = vfs.NewMem()
	l = s.open(t, fs, 3)
	files = content(t, fs)
	files[segmentName(2)] = files[segmentName(2)][:l.tail().end-3]
	if v := mustVerify(t, copyOf(t, files)); !v.Damaged() {
		t.Errorf("half of a committed entry: %+v", v.Findings)
	}
}

// TestVerifyRules: the bytes of these entries are intact, but the entries break a rule for committed entries.
func TestVerifyRules(t *testing.T) {
	for name, spoil := range map[string]func(s *story){
		"number is missing":        func(s *story) { s.number++; s.transactions(1, 5) },
		"of another term":          func(s *story) { s.term++; s.transactions(1, 5) },
		"GTID twice":               func(s *story) { s.n--; s.transactions(1, 5) },
		"staged twice":             func(s *story) { s.n--; s.staged(100) },
		"epoch again":              func(s *story) { s.term--; s.epoch("9.7.4") },
		"no entry of this version": func(s *story) { s.add(raftNormal, []byte("?")) },
		"wrong count": func(s *story) {
			s.transactions(1, 5)
			s.entries[len(s.entries)-1].Data[4]++
		},
		"half a transaction": func(s *story) {
			s.transactions(1, 5)
			e := &s.entries[len(s.entries)-1]
			event, _, err := binlog.CutEvent(e.Data[24:])
			if err != nil {
				panic(err)
			}
			e.Data = e.Data[:24+len(event)]
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			s := newStory()
			s.epoch("9.7.4")
			s.transactions(1, 10)
			if v := verifyStory(t, s); len(v.Findings) > 0 {
				t.Fatalf("before: %+v", v.Findings)
			}
			spoil(s)
			index := uint64(len(s.entries))
			v := verifyStory(t, s)
			if len(v.Findings) != 1 || v.Findings[0].Index != index || v.Findings[0].Torn {
				t.Errorf("%+v, want one at entry %d", v.Findings, index)
			}
		})
	}
}

func verifyStory(t *testing.T, s *story) *Verified {
	t.Helper()
	fs := vfs.NewMem()
	s.open(t, fs, uint64(len(s.entries)))
	return mustVerify(t, fs)
}

// TestVerifyPreviousGTIDs: a segment states the wrong GTIDs for the part before it, with right checksums.
func TestVerifyPreviousGTIDs(t *testing.T) {
	s := newStory()
	s.epoch("9.7.4")
	s.transactions(1, 10)
	fs := vfs.NewMem()
	l := s.open(t, fs, 3)
	l.writer.gtids.Add(storyGTID(77))
	s.rotate("9.7.4")
	s.append(t, l, 4, 4, 4)
	v := mustVerify(t, fs)
	if len(v.Findings) != 1 || v.Findings[0].Segment != segmentName(4) || !strings.Contains(v.Findings[0].Detail, "PREVIOUS_GTIDS") {
		t.Errorf("%+v", v.Findings)
	}
}

// TestVerifyForeignSegment: a segment of a similar log, with another past or of another node.
func TestVerifyForeignSegment(t *testing.T) {
	build := func(identity [16]byte, size int) map[string][]byte {
		s := newStory()
		s.epoch("9.7.4")
		s.transactions(1, size)
		s.rotate("9.7.4")
		fs := vfs.NewMem()
		l := mustOpen(t, Options{FS: fs, Dir: testDir, Identity: identity, SegmentBytesMax: 1500})
		s.append(t, l, 1, 4, 4)
		return content(t, fs)
	}
	own := build(testIdentity(), 10)
	for name, foreign := range map[string]map[string][]byte{
		"not chained to it": build(testIdentity(), 11),
		"it has identity":   build([16]byte{1}, 10),
	} {
		mixed := map[string][]byte{}
		for file, b := range own {
			mixed[file] = b
		}
		mixed[segmentName(4)] = foreign[segmentName(4)]
		v := mustVerify(t, copyOf(t, mixed))
		if !v.Damaged() || v.Findings[0].Segment != segmentName(4) || !strings.Contains(v.Findings[0].Detail, name) {
			t.Errorf("%s: %+v", name, v.Findings)
		}
	}
}

// TestVerifyStageHasNoTail: a stage was durable before its entry was appended. So damage in a stage is no torn
// tail, not even behind the commit index.
func TestVerifyStageHasNoTail(t *testing.T) {
	s := newStory()
	s.epoch("9.7.4")
	s.staged(500)
	fs := vfs.NewMem()
	s.open(t, fs, 2)
	files := content(t, fs)
	b := files[segmentName(3)]
	b[len(b)-100] ^= 1
	if v := mustVerify(t, copyOf(t, files)); !v.Damaged() || len(v.Findings) != 1 || v.Findings[0].Index != 3 {
		t.Errorf("%+v", v.Findings)
	}
}

// TestVerifyBoundsFindings: if a disk lost everything, the list of findings is still limited.
func TestVerifyBoundsFindings(t *testing.T) {
	v := &verifier{}
	for i := range FindingsMax + 5 {
		v.find("x", int64(i), 0, "y")
	}
	if len(v.Findings) != FindingsMax || v.More != 5 {
		t.Errorf("%d findings, %d more", len(v.Findings), v.More)
	}
}

// goldenLog copies a log that version 1 wrote, before there were stages.
func goldenLog(t *testing.T) (dir string, lines []string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "golden-v1"))); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join("testdata", "golden-v1.entries"))
	if err != nil {
		t.Fatal(err)
	}
	return dir, strings.Split(strings.TrimSpace(string(text)), "\n")
}

// TestGoldenVersion1: a log of version 1 is opened, read, verified, appended to.
func TestGoldenVersion1(t *testing.T) {
	dir, lines := goldenLog(t)
	in, err := Inspect(InspectOptions{FS: vfs.OS{}, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if v, err := in.Verify(t.Context(), nil); err != nil || len(v.Findings) > 0 || v.Entries != uint64(len(lines)) {
		t.Fatalf("verify: %+v, %v", v, err)
	}
	o := Options{FS: vfs.OS{}, Dir: dir, Identity: testIdentity(), SegmentBytesMax: 4096}
	l := mustOpen(t, o)
	want := HardState{Term: 3, Vote: 7, Commit: 28}
	if l.HardState() != want || l.Stats().TornBytes != 0 {
		t.Fatalf("hard state %+v, want %+v; torn %d", l.HardState(), want, l.Stats().TornBytes)
	}
	wantGolden(t, l, lines)
	last := l.LastIndex()
	added := transactions(last+1, 3, 9, 1, 2, 3000)
	mustAppend(t, l, &HardState{Term: 3, Vote: 7, Commit: last}, added, plain(last+2, 4, 5))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, o)
	entries, err := l.Entries(last+1, last+3, 1<<20)
	if err != nil || !sameEntries(entries, []Entry{added, plain(last+2, 4, 5)}) {
		t.Fatalf("appended: %+v, %v", entries, err)
	}
	wantGolden(t, l, lines)
}

func wantGolden(t *testing.T, l *Log, lines []string) {
	t.Helper()
	for i, want := range lines {
		index := uint64(i + 1)
		entries, err := l.Entries(index, index+1, 1)
		if err != nil || len(entries) != 1 {
			t.Fatalf("entry %d: %v", index, err)
		}
		e := entries[0]
		got := fmt.Sprintf("%d %d %d %d %08x", e.Index, e.Term, e.Type, len(e.Data), dataCRC(e.Data, nil))
		if got != want {
			t.Errorf("entry %q, want %q", got, want)
		}
	}
}

// FuzzInspect: no content of a segment makes a reader panic, or makes it show a committed entry that was not
// written.
func FuzzInspect(f *testing.F) {
	s := newStory()
	s.epoch("9.7.4")
	s.transactions(2, 20)
	s.staged(50)
	s.transactions(1, 20)
	fs := vfs.NewMem()
	l := mustOpen(f, smallOptions(fs))
	l.slackBytes = 256
	s.append(f, l, 1, uint64(len(s.entries)), 4)
	files := content(f, fs)
	for i, info := range l.Segments() {
		segment := files[segmentName(info.FirstIndex)]
		f.Add(uint8(i), segment)
		f.Add(uint8(i), segment[:info.Bytes-20])
		f.Add(uint8(i), append(bytes.Clone(segment[:info.Bytes]), segment[100:]...))
	}
	names := mustInspect(f, fs, false).names
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		spoilt := map[string][]byte{}
		for name, whole := range files {
			spoilt[name] = whole
		}
		spoilt[names[int(which)%len(names)]] = b
		in := mustInspect(t, copyOf(t, spoilt), which%2 == 1)
		_, _ = in.Verify(t.Context(), nil)
		_ = in.Segments(func(SegmentSummary) error { return nil })
		_, _ = in.Find(storyGTID(3))
		_ = in.Entries(0, 0, func(e *InspectedEntry) error {
			for i := range e.Transactions {
				n := e.Transactions[i].GTID.N
				if e.Index <= 4 && (n == 0 || n > s.n || s.entryOf[n-1] != e.Index) {
					t.Errorf("entry %d shows transaction %d", e.Index, n)
				}
				_ = e.Events(&e.Transactions[i], func(InspectedEvent) error { return nil })
			}
			return nil
		})
	})
}
