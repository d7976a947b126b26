package seglog

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/raft/entry"
)

func stageID(n uint64) entry.StageID { return entry.StageID{Term: 1, Number: n} }

func TestStageLife(t *testing.T) {
	fs := vfs.NewMem()
	l := mustOpen(t, smallOptions(fs))
	raw := bytes.Repeat([]byte("0123456789"), 100)
	s, err := l.CreateStage(stageID(3))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.CreateStage(stageID(3)); !errors.Is(err, ErrStageExists) {
		t.Fatalf("second create: %v", err)
	}
	r, err := l.OpenStage(stageID(3))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	for rest := raw; len(rest) > 0; rest = rest[250:] {
		if n, err := s.Write(rest[:250]); n != 250 || err != nil {
			t.Fatalf("write: %d, %v", n, err)
		}
		at := int64(len(raw) - len(rest))
		if n, complete := r.Bytes(); n != at+250 || complete || l.HasStage(stageID(3)) {
			t.Fatalf("%d bytes, complete %v", n, complete)
		}
		b := make([]byte, 300)
		if n, err := r.ReadAt(b, at); n != 250 || !errors.Is(err, io.EOF) || !bytes.Equal(b[:n], rest[:250]) {
			t.Fatalf("read at %d: %d, %v", at, n, err)
		}
	}
	if diff := cmp.Diff([]entry.StageID{stageID(3)}, l.stageIDs()); diff != "" {
		t.Fatal(diff)
	}
	crc := crc32.Checksum(raw, castagnoli())
	for _, err := range []error{s.Finish(999, crc), s.Finish(1000, crc+1)} {
		if err == nil || l.HasStage(stageID(3)) {
			t.Fatal("a stage of another length or checksum is complete")
		}
	}
	if err := s.Finish(1000, crc); err != nil {
		t.Fatal(err)
	}
	if n, complete := r.Bytes(); n != 1000 || !complete || !l.HasStage(stageID(3)) {
		t.Fatalf("%d bytes, complete %v", n, complete)
	}
	if err := s.Abort(); err != nil || !l.HasStage(stageID(3)) {
		t.Fatalf("abort of a finished stage: %v", err)
	}
	if _, err := l.CreateStage(stageID(3)); !errors.Is(err, ErrStageExists) {
		t.Fatalf("create of a finished stage: %v", err)
	}
	if err := l.DropStages(func(entry.StageID) bool { return false }); err != nil || len(l.stageIDs()) > 0 || l.HasStage(stageID(3)) {
		t.Fatalf("drop: %v, left %v", err, l.stageIDs())
	}
	if _, err := l.OpenStage(stageID(3)); !errors.Is(err, ErrNoStage) {
		t.Fatalf("open: %v", err)
	}
	if got, err := io.ReadAll(io.NewSectionReader(r, 0, 1000)); err != nil || !bytes.Equal(got, raw) {
		t.Fatalf("an open reader reads %d bytes: %v", len(got), err)
	}
}

// TestAbortedStage: a reader of the stage is told that no more data will come.
func TestAbortedStage(t *testing.T) {
	for name, end := range map[string]func(*Log, *Stage) error{
		"abort": func(_ *Log, s *Stage) error { return s.Abort() },
		"drop":  func(l *Log, _ *Stage) error { return l.DropStages(func(entry.StageID) bool { return false }) },
		"close": func(l *Log, _ *Stage) error { return l.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			l := mustOpen(t, smallOptions(fs))
			s, err := l.CreateStage(stageID(1))
			if err != nil {
				t.Fatal(err)
			}
			r, err := l.OpenStage(stageID(1))
			if err != nil {
				t.Fatal(err)
			}
			if err := end(l, s); err != nil {
				t.Fatal(err)
			}
			if _, err := r.ReadAt(make([]byte, 1), 0); !errors.Is(err, ErrNoStage) {
				t.Fatalf("read: %v", err)
			}
			if _, err := s.Write([]byte("x")); !errors.Is(err, ErrNoStage) {
				t.Fatalf("write: %v", err)
			}
			if err := s.Finish(0, 0); !errors.Is(err, ErrNoStage) {
				t.Fatalf("finish: %v", err)
			}
			again, err := l.CreateStage(stageID(1))
			if name == "close" {
				if !errors.Is(err, ErrClosed) {
					t.Fatalf("create: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			// The end of the first stage is not the end of the second.
			if err := s.Abort(); err != nil || len(l.stageIDs()) != 1 {
				t.Fatalf("abort: %v, %v", err, l.stageIDs())
			}
			if _, err := again.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			_ = again.Abort()
			_ = r.Close()
		})
	}
}

// TestGrowingStageIsSynced: a crash loses at most stageSyncBytes.
func TestGrowingStageIsSynced(t *testing.T) {
	syncs := 0
	l := mustOpen(t, smallOptions(vfs.Wrap(vfs.NewMem(), func(op vfs.Op, path string) error {
		if op == vfs.OpSyncData && filepath.Base(path) == stageName(stageID(1)) {
			syncs++
		}
		return nil
	})))
	s, err := l.CreateStage(stageID(1))
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if _, err := s.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Abort(); err != nil || syncs != 2 {
		t.Fatalf("%d syncs: %v", syncs, err)
	}
}

// stagedHistory appends stages among other entries, and returns both.
func stagedHistory(t testing.TB, l *Log) (entries []Entry, stages map[entry.StageID][]byte) {
	stages = map[entry.StageID][]byte{}
	add := func(e Entry, raw []byte) {
		entries, stages[entry.StageID{Term: e.Term, Number: e.Index}] = append(entries, e), raw
	}
	entries = []Entry{plain(1, 1, 0), epoch(2, 1, "9.7.4"), transactions(3, 1, 1, 1, 1, 10)}
	add(staged(4, 1, 1, 2, 5000))
	add(staged(5, 1, 1, 3, 10))
	entries = append(entries, transactions(6, 1, 1, 4, 1, 10), plain(7, 1, 10), rotate(8, 1, "9.7.4"))
	add(staged(9, 1, 1, 5, 3000))
	entries = append(entries, plain(10, 1, 20))
	add(staged(11, 1, 1, 6, 900))
	for id, raw := range stages {
		if err := putStage(l, id, raw); err != nil {
			t.Fatal(err)
		}
	}
	return entries, stages
}

func checkStagedLog(t *testing.T, l *Log, entries []Entry, stages map[entry.StageID][]byte, commit uint64) {
	t.Helper()
	wantEntries(t, l, entries[l.FirstIndex()-1:])
	p := &promise{stages: stages}
	if err := p.checkStages(l, entries[l.FirstIndex()-1:]); err != nil {
		t.Fatal(err)
	}
	if err := checkSegments(l, entries, commit); err != nil {
		t.Fatal(err)
	}
}

func TestStagedEntries(t *testing.T) {
	for _, slack := range []int64{stageSlackBytes, -stageAlign} {
		for _, group := range []int{1, 100} {
			fs := vfs.NewMem()
			l := mustOpen(t, smallOptions(fs))
			l.slackBytes = slack
			entries, stages := stagedHistory(t, l)
			readers := map[entry.StageID]*StageReader{}
			for id := range stages {
				r, err := l.OpenStage(id)
				if err != nil {
					t.Fatal(err)
				}
				readers[id] = r
			}
			for rest := entries; len(rest) > 0; {
				n := min(group, len(rest))
				mustAppend(t, l, nil, rest[:n]...)
				rest = rest[n:]
			}
			mustAppend(t, l, &HardState{Term: 1, Commit: 10})
			for id, r := range readers {
				if got, err := io.ReadAll(io.NewSectionReader(r, 0, 1<<20)); err != nil || !bytes.Equal(got, stages[id]) {
					t.Fatalf("stage %v through an old reader: %d bytes: %v", id, len(got), err)
				}
				_ = r.Close()
			}
			for range 3 {
				checkStagedLog(t, l, entries, stages, 10)
				if len(l.stageIDs()) > 0 || len(l.Segments()) != 9 {
					t.Fatalf("stages %v, %d segments", l.stageIDs(), len(l.Segments()))
				}
				if _, err := l.CreateStage(stageID(4)); !errors.Is(err, ErrStageExists) {
					t.Fatalf("create: %v", err)
				}
				_ = l.Close()
				l = mustOpen(t, smallOptions(fs.CrashClone(0)))
			}
		}
	}
}

// TestMissingStage: a call of Append writes nothing if it names a stage that is not complete, or one with other
// content.
func TestMissingStage(t *testing.T) {
	e, raw := staged(2, 1, 1, 1, 100)
	for name, prepare := range map[string]func(*Log) error{
		"missing": func(*Log) error { return nil },
		"growing": func(l *Log) error { _, err := l.CreateStage(stageID(2)); return err },
		"other":   func(l *Log) error { return putStage(l, stageID(2), raw[1:]) },
	} {
		t.Run(name, func(t *testing.T) {
			l := mustOpen(t, smallOptions(vfs.NewMem()))
			if err := prepare(l); err != nil {
				t.Fatal(err)
			}
			if err := l.Append([]Entry{plain(1, 1, 1), e}, nil); !errors.Is(err, ErrNoStage) {
				t.Fatalf("append: %v", err)
			}
			wantEntries(t, l, nil)
			mustAppend(t, l, nil, plain(1, 1, 1))
		})
	}
}

// TestRemovedStageComesBack: the next leader may bring back a naming entry that a conflict removed, while
// others read, or in the same call.
func TestRemovedStageComesBack(t *testing.T) {
	for at := uint64(3); at <= 11; at++ {
		fs := vfs.NewMem()
		l := mustOpen(t, smallOptions(fs))
		entries, stages := stagedHistory(t, l)
		mustAppend(t, l, nil, entries...)
		mustAppend(t, l, nil, entries[at-1:]...)
		checkStagedLog(t, l, entries, stages, 0)

		other := append(append([]Entry(nil), entries[:at-1]...), plain(at, 2, 50))
		mustAppend(t, l, nil, other[at-1])
		checkStagedLog(t, l, other, stages, 0)
		for id, raw := range stages {
			if got, err := stageBytes(l, id); err != nil || !bytes.Equal(got, raw) || !l.HasStage(id) {
				t.Fatalf("cut at %d: stage %v has %d bytes: %v", at, id, len(got), err)
			}
		}
		checkDurable(t, l, fs.CrashClone(0), fmt.Sprintf("cut at %d", at))
		for i := at - 1; i < uint64(len(entries)); i++ {
			entries[i].Term = 3
		}
		mustAppend(t, l, nil, entries[at-1:]...)
		checkStagedLog(t, l, entries, stages, 0)
		if len(l.stageIDs()) > 0 {
			t.Fatalf("stages %v", l.stageIDs())
		}
	}
}

// TestSealedBeforeRemovedStage: a segment that was sealed, and perhaps copied, does not grow again if a crash
// comes after the stage behind it was removed.
func TestSealedBeforeRemovedStage(t *testing.T) {
	fs := vfs.NewMem()
	l := mustOpen(t, smallOptions(fs))
	e, raw := staged(3, 1, 1, 1, 100)
	mustAppend(t, l, &HardState{Term: 1, Commit: 2}, plain(1, 1, 10), plain(2, 1, 10))
	mustAppendStaged(t, l, nil, e, raw)
	if !l.Segments()[0].Sealed {
		t.Fatal("the segment is not sealed")
	}
	before := readFile(t, fs, segmentName(1))
	l.options.FS = vfs.Wrap(fs, func(op vfs.Op, _ string) error {
		if op == vfs.OpCreate {
			return errors.New("power loss")
		}
		return nil
	})
	if err := l.Append([]Entry{plain(3, 2, 10)}, nil); !errors.Is(err, ErrFailed) {
		t.Fatalf("append: %v", err)
	}
	after := fs.CrashClone(0)
	l = mustOpen(t, smallOptions(after))
	wantEntries(t, l, []Entry{plain(1, 1, 10), plain(2, 1, 10)})
	mustAppend(t, l, nil, plain(3, 2, 10))
	if !bytes.Equal(before, readFile(t, after, segmentName(1))) {
		t.Fatal("the sealed segment has changed")
	}
}

// TestDropBesideAppend: a stage that a call of Append is about to name is not dropped.
func TestDropBesideAppend(t *testing.T) {
	var l *Log
	fs := vfs.Wrap(vfs.NewMem(), func(op vfs.Op, _ string) error {
		if op == vfs.OpSyncDir && l != nil {
			return l.DropStages(func(entry.StageID) bool { return false })
		}
		return nil
	})
	l = mustOpen(t, smallOptions(fs))
	e, raw := staged(3, 1, 1, 1, 100)
	mustAppend(t, l, nil, plain(1, 1, 1))
	if err := putStage(l, entry.StageID{Term: 1, Number: 3}, raw); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second call removes it and brings it back
		mustAppend(t, l, nil, epoch(2, 1, "9.7.4"), e)
	}
	wantEntries(t, l, []Entry{plain(1, 1, 1), epoch(2, 1, "9.7.4"), e})
}

// TestStagesAreGarbageAfterRestart: nothing relies on a stage that no entry names.
func TestStagesAreGarbageAfterRestart(t *testing.T) {
	fs := vfs.NewMem()
	l := mustOpen(t, smallOptions(fs))
	if err := putStage(l, stageID(7), []byte("complete")); err != nil {
		t.Fatal(err)
	}
	if _, err := l.CreateStage(stageID(8)); err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	l = mustOpen(t, smallOptions(fs))
	if l.HasStage(stageID(7)) || len(l.stageIDs()) > 0 || len(content(t, fs)) != 2 {
		t.Fatalf("stages %v, files %d", l.stageIDs(), len(content(t, fs)))
	}
}

// TestPurgedStage: a reader that is open can go on. A new one gets an error.
func TestPurgedStage(t *testing.T) {
	l := mustOpen(t, smallOptions(vfs.NewMem()))
	entries, stages := stagedHistory(t, l)
	mustAppend(t, l, &HardState{Term: 1, Commit: 11}, entries...)
	r, err := l.OpenStage(stageID(4))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if _, err := l.Purge(4); err != nil || l.FirstIndex() != 5 {
		t.Fatalf("first %d: %v", l.FirstIndex(), err)
	}
	if got, err := io.ReadAll(io.NewSectionReader(r, 0, 1<<20)); err != nil || !bytes.Equal(got, stages[stageID(4)]) {
		t.Fatalf("%d bytes: %v", len(got), err)
	}
	if _, err := l.OpenStage(stageID(4)); !errors.Is(err, ErrNoStage) || l.HasStage(stageID(4)) {
		t.Fatalf("open: %v", err)
	}
	checkStagedLog(t, l, entries, stages, 11)
}

// TestDamagedStage: a stage was durable before an entry named it. So any damage in it is corruption, also in
// the last segment.
func TestDamagedStage(t *testing.T) {
	fs := vfs.NewMem()
	l := mustOpen(t, smallOptions(fs))
	l.slackBytes = 0
	e, raw := staged(2, 1, 1, 1, 100)
	mustAppend(t, l, nil, plain(1, 1, 1))
	mustAppendStaged(t, l, nil, e, raw)
	_ = l.Close()
	whole := readFile(t, fs, segmentName(2))
	check := func(what string, content []byte) {
		t.Helper()
		disk := fs.CrashClone(1)
		writeFile(t, disk, segmentName(2), content)
		if l, err := Open(smallOptions(disk)); err == nil {
			t.Fatalf("%s was not found: last index %d", what, l.LastIndex())
		} else if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrFormat) && !errors.Is(err, ErrIdentity) {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for at := range whole {
		spoilt := bytes.Clone(whole)
		spoilt[at] ^= 1 << (at % 8)
		check(fmt.Sprint("flipped bit at ", at), spoilt)
	}
	for size := 0; size < len(whole); size += 1 + size/50 {
		check(fmt.Sprint("file cut to ", size), whole[:size])
	}
	check("longer file", append(bytes.Clone(whole), 0))
}

// holeFS shows the file name with zeros behind its end, up to size.
type holeFS struct {
	vfs.FS
	name string
	size int64
}

type holeFile struct {
	vfs.File
	size int64
}

func (h *holeFS) Open(name string) (vfs.File, error) {
	f, err := h.FS.Open(name)
	if err == nil && filepath.Base(name) == h.name {
		return holeFile{f, h.size}, nil
	}
	return f, err
}

func (h holeFile) Size() (int64, error) { return h.size, nil }

func (h holeFile) ReadAt(p []byte, offset int64) (int, error) {
	n := int(min(int64(len(p)), h.size-offset))
	clear(p[:n])
	if _, err := h.File.ReadAt(p[:n], offset); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// TestStageBeyond4GiB: no offset is shortened to 32 bits.
func TestStageBeyond4GiB(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 8 GiB of zeros")
	}
	const size = 4<<30 + 12345
	zeros, crc := make([]byte, windowBytes), uint32(0)
	for rest := int64(size); rest > 0; rest -= windowBytes {
		crc = crc32.Update(crc, castagnoli(), zeros[:min(rest, windowBytes)])
	}
	e, _ := staged(2, 1, 1, 1, 10)
	_, body, _ := entry.Parse(e.Data)
	named, _ := entry.ParseStaged(entry.Header{Kind: entry.KindStaged, Count: 1, Term: 1, Number: 2}, body)
	named.Bytes, named.CRC = size, crc
	e.Data = entry.EncodeStaged(named)

	fs := &holeFS{FS: vfs.NewMem(), name: segmentName(2)}
	l := mustOpen(t, smallOptions(fs))
	mustAppend(t, l, nil, plain(1, 1, 1))
	s, err := l.CreateStage(named.ID)
	if err != nil {
		t.Fatal(err)
	}
	s.bytes, s.crc = size, crc
	if err := s.Finish(size, crc); err != nil {
		t.Fatal(err)
	}
	fs.size = s.region + size
	mustAppend(t, l, nil, e, plain(3, 1, 20))
	for range 2 {
		wantEntries(t, l, []Entry{plain(1, 1, 1), e, plain(3, 1, 20)})
		r, err := l.OpenStage(named.ID)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 100)
		if n, complete := r.Bytes(); n != size || !complete || l.Segments()[1].Bytes != fs.size {
			t.Fatalf("%d bytes in %+v", n, l.Segments()[1])
		}
		if n, err := r.ReadAt(b, size-40); n != 40 || !errors.Is(err, io.EOF) {
			t.Fatalf("read at the end: %d, %v", n, err)
		}
		_ = r.Close()
		_ = l.Close()
		l = mustOpen(t, smallOptions(fs))
	}
}
