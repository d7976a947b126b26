package seglog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/entry"
)

// story makes a log as a cluster would, with epochs, their numbers, and commit times.
type story struct {
	term, number uint64
	entries      []Entry
	// stages holds the bytes of the stages that entries name.
	stages map[entry.StageID][]byte
	// raw has the bytes of every transaction, in order. entryOf has, at the same position, the index of its
	// entry.
	raw     [][]byte
	entryOf []uint64
	// n is the number of the newest GTID.
	n uint64
}

func newStory() *story { return &story{stages: map[entry.StageID][]byte{}} }

func (s *story) add(typ uint8, data []byte) {
	s.entries = append(s.entries, Entry{Index: uint64(len(s.entries) + 1), Term: s.term, Type: typ, Data: data})
}

func (s *story) header(kind entry.Kind, count int) []byte {
	s.number++
	return entry.AppendHeader(nil, entry.Header{Kind: kind, Count: uint32(count), Term: s.term, Number: s.number})
}

// epoch opens an epoch in a new term.
func (s *story) epoch(version string) {
	s.term, s.number = s.term+1, 0
	s.add(raftNormal, nil)
	e := epoch(uint64(len(s.entries)+1), s.term, version)
	s.entries = append(s.entries, e)
}

func (s *story) rotate(version string) {
	s.add(raftNormal, append(s.header(entry.KindRotate, 0), testFormatDescription(version)...))
}

// transaction makes the next transaction. Transaction n is committed n seconds after storyTime.
func (s *story) transaction(size int) []byte {
	s.n++
	raw := timedTransaction(s.n, storyTime().Add(time.Duration(s.n)*time.Second), "insert "+strings.Repeat("x", size))
	s.raw = append(s.raw, raw)
	s.entryOf = append(s.entryOf, uint64(len(s.entries)+1))
	return raw
}

func (s *story) transactions(count, size int) {
	data := s.header(entry.KindTransactions, count)
	for range count {
		data = append(data, s.transaction(size)...)
	}
	s.add(raftNormal, data)
}

// staged adds an entry that names a stage.
func (s *story) staged(size int) {
	raw := s.transaction(size)
	s.number++
	id := entry.StageID{Term: s.term, Number: s.number}
	s.stages[id] = raw
	event, rest, err := binlog.CutEvent(raw)
	if err != nil {
		panic(err)
	}
	s.add(raftNormal, entry.EncodeStaged(entry.Staged{
		ID: id, Bytes: uint64(len(raw)), CRC: crc32.Checksum(raw, castagnoli()), GTIDEvent: event, EndEvent: rest[:min(len(rest), 8)],
	}))
}

func storyTime() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func timedTransaction(n uint64, commit time.Time, statement string) []byte {
	uuid := testUUID(1)
	g := append([]byte{1}, uuid[:]...)
	g = binary.LittleEndian.AppendUint64(g, n)
	g = append(g, 2)
	g = binary.LittleEndian.AppendUint64(g, n-1)
	g = binary.LittleEndian.AppendUint64(g, n)
	stamp := binary.LittleEndian.AppendUint64(nil, uint64(commit.UnixMicro()))
	g = append(g, stamp[:7]...)
	q := append(make([]byte, 13), "\x00"...)
	q = append(q, statement...)
	return append(testEvent(binlog.TypeGTID, g), testEvent(binlog.TypeQuery, q)...)
}

func storyGTID(n uint64) gtid.GTID { return gtid.GTID{UUID: testUUID(1), N: n} }

// sampleStory returns a story with each kind of entry, with stages, and with servers of two versions.
func sampleStory() *story {
	s := newStory()
	s.epoch("8.4.3")
	for i := range 8 {
		s.transactions(1+i%3, 20*i)
	}
	s.add(1, []byte("conf change"))
	s.staged(3000)
	s.transactions(2, 10)
	s.rotate("8.4.3")
	s.transactions(1, 700)
	s.epoch("9.7.4")
	s.transactions(3, 30)
	s.staged(5000)
	s.staged(100)
	s.rotate("9.7.4")
	s.transactions(2, 5)
	s.transactions(1, 5)
	return s
}

// append writes the entries from index on, one by one, with their stages.
func (s *story) append(t testing.TB, l *Log, from, to, commit uint64) {
	t.Helper()
	for _, e := range s.entries[from-1 : to] {
		if n, ok := namingOf(&e); ok && !l.HasStage(n.id) {
			stage, err := l.CreateStage(n.id)
			if err == nil {
				_, err = stage.Write(s.stages[n.id])
			}
			if err == nil {
				err = stage.Finish(uint64(n.bytes), n.crc)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		mustAppend(t, l, &HardState{Term: e.Term, Commit: max(l.HardState().Commit, min(commit, e.Index))}, e)
	}
}

func (s *story) open(t testing.TB, fs vfs.FS, commit uint64) *Log {
	t.Helper()
	l := mustOpen(t, smallOptions(fs))
	s.append(t, l, 1, uint64(len(s.entries)), commit)
	return l
}

func mustInspect(t testing.TB, fs vfs.FS, uncommitted bool) *Inspector {
	t.Helper()
	in, err := Inspect(InspectOptions{FS: fs, Dir: testDir, Uncommitted: uncommitted})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// TestInspectSegments compares the list of segments with what the open log says, for every commit index.
func TestInspectSegments(t *testing.T) {
	s := sampleStory()
	last := uint64(len(s.entries))
	for commit := range last + 1 {
		fs := vfs.NewMem()
		l := s.open(t, fs, commit)
		for _, uncommitted := range []bool{false, true} {
			shown := commit
			if uncommitted {
				shown = last
			}
			next := uint64(1)
			err := mustInspect(t, fs, uncommitted).Segments(func(sum SegmentSummary) error {
				defer func() { next = sum.LastIndex + 1 }()
				return s.checkSummary(l, sum, next, shown)
			})
			if err != nil || next != shown+1 {
				t.Fatalf("%d committed, uncommitted %v: ends before %d: %v", commit, uncommitted, next, err)
			}
		}
		_ = l.Close()
	}
}

// checkSummary compares the summary of the segment that begins at first with the log and the story.
func (s *story) checkSummary(l *Log, sum SegmentSummary, first, shown uint64) error {
	infos := l.Segments()
	i := slices.IndexFunc(infos, func(i SegmentInfo) bool { return i.FirstIndex == first })
	if i < 0 || sum.FirstIndex != first || sum.Name != segmentName(first) || sum.Problem != nil {
		return fmt.Errorf("%+v: no segment begins at %d", sum, first)
	}
	info, entries := infos[i], s.entries[first-1:sum.LastIndex]
	if want := min(info.LastIndex, shown); sum.LastIndex != want {
		return fmt.Errorf("%+v: ends at %d", sum, want)
	}
	var times []time.Time
	set := &gtid.Set{}
	for n, at := range s.entryOf {
		if at >= first && at <= sum.LastIndex {
			times = append(times, storyTime().Add(time.Duration(n+1)*time.Second))
			set.Add(storyGTID(uint64(n + 1)))
		}
	}
	if !set.Equal(sum.GTIDs) || sum.Transactions != uint64(len(times)) {
		return fmt.Errorf("%+v: want %v", sum, set)
	}
	if len(times) > 0 && (!sum.FirstTime.Equal(times[0]) || !sum.LastTime.Equal(times[len(times)-1])) {
		return fmt.Errorf("%+v: want times %v", sum, times)
	}
	if len(entries) > 0 && (sum.FirstTerm != entries[0].Term || sum.LastTerm != entries[len(entries)-1].Term) {
		return fmt.Errorf("%+v: want terms %d-%d", sum, entries[0].Term, entries[len(entries)-1].Term)
	}
	n, isNaming := naming{}, false
	if len(entries) > 0 {
		n, isNaming = namingOf(&entries[0])
	}
	if sum.Staged != isNaming || isNaming && n.gtid != storyGTID(s.numberAt(first)) {
		return fmt.Errorf("%+v: staged should be %v", sum, isNaming)
	}
	if info.LastIndex == sum.LastIndex && sum.Bytes != info.Bytes {
		return fmt.Errorf("%+v: want %d bytes", sum, info.Bytes)
	}
	return nil
}

func (s *story) numberAt(index uint64) uint64 { return uint64(slices.Index(s.entryOf, index) + 1) }

// TestInspectEntries reads every range, and every transaction with its bytes.
func TestInspectEntries(t *testing.T) {
	s := sampleStory()
	fs := vfs.NewMem()
	last := uint64(len(s.entries))
	commit := last - 2
	s.open(t, fs, commit)
	for from := uint64(1); from <= commit; from++ {
		for _, to := range []uint64{from, from + 3, last} {
			next, transaction := from, slices.IndexFunc(s.entryOf, func(at uint64) bool { return at >= from })
			err := mustInspect(t, fs, false).Entries(from, to, func(e *InspectedEntry) error {
				want := s.entries[next-1]
				h, _, _ := entry.Parse(want.Data)
				if e.Index != want.Index || e.Term != want.Term || e.Type != want.Type || e.Problem != nil || want.Type == 0 && e.Header != h {
					return fmt.Errorf("%+v, want %+v", e, want)
				}
				bytes := len(want.Data)
				if n, ok := namingOf(&want); ok {
					bytes += len(s.stages[n.id])
				}
				if e.Bytes != int64(bytes) {
					return fmt.Errorf("entry %d has %d bytes, want %d", e.Index, e.Bytes, bytes)
				}
				next++
				for i := range e.Transactions {
					if err := s.checkTransaction(e, &e.Transactions[i], transaction); err != nil {
						return err
					}
					transaction++
				}
				if int(h.Count) != len(e.Transactions) {
					return fmt.Errorf("%d transactions, want %d", len(e.Transactions), h.Count)
				}
				return nil
			})
			if err != nil || next != min(to, commit)+1 {
				t.Fatalf("entries %d-%d: ended before %d: %v", from, to, next, err)
			}
		}
	}
	in := mustInspect(t, fs, false)
	for n, at := range s.entryOf {
		found, err := in.Find(storyGTID(uint64(n + 1)))
		if at > commit && errors.Is(err, ErrNoTransaction) {
			continue
		}
		if found != at || err != nil {
			t.Fatalf("transaction %d: entry %d, want %d: %v", n+1, found, at, err)
		}
	}
	if _, err := in.Find(storyGTID(s.n + 1)); !errors.Is(err, ErrNoTransaction) {
		t.Fatalf("a transaction that is not there: %v", err)
	}
	if err := in.Entries(commit+1, 0, nil); !errors.Is(err, ErrUnavailable) {
		t.Fatalf("an entry behind the commit index: %v", err)
	}
}

func (s *story) checkTransaction(e *InspectedEntry, t *InspectedTransaction, i int) error {
	n := uint64(i + 1)
	if t.GTID != storyGTID(n) || !t.Time.Equal(storyTime().Add(time.Duration(n)*time.Second)) || s.entryOf[i] != e.Index {
		return fmt.Errorf("%+v in entry %d, want transaction %d of entry %d", t, e.Index, n, s.entryOf[i])
	}
	var raw []byte
	if err := e.Events(t, func(event InspectedEvent) error {
		if !event.Whole() {
			return fmt.Errorf("event at %d is not whole", event.Offset)
		}
		raw = append(raw, event.Head...)
		return nil
	}); err != nil {
		return err
	}
	if diff := cmp.Diff(s.raw[i], raw); diff != "" {
		return fmt.Errorf("events of transaction %d (-want +got):\n%s", n, diff)
	}
	return nil
}

// TestInspectPurged: the error for a purged entry says that it was purged.
func TestInspectPurged(t *testing.T) {
	s := sampleStory()
	fs := vfs.NewMem()
	l := s.open(t, fs, uint64(len(s.entries)))
	if _, err := l.Purge(12); err != nil || l.FirstIndex() < 2 {
		t.Fatal(l.FirstIndex(), err)
	}
	in := mustInspect(t, fs, false)
	if err := in.Entries(1, 0, nil); !errors.Is(err, ErrCompacted) {
		t.Errorf("entry 1: %v", err)
	}
	if _, err := in.Find(storyGTID(1)); !errors.Is(err, ErrCompacted) {
		t.Errorf("transaction 1: %v", err)
	}
	first := uint64(0)
	if err := in.Entries(0, 0, func(e *InspectedEntry) error {
		if first == 0 {
			first = e.Index
		}
		return nil
	}); err != nil || first != l.FirstIndex() {
		t.Errorf("begins at %d, want %d: %v", first, l.FirstIndex(), err)
	}
	v, err := in.Verify(t.Context(), nil)
	if err != nil || len(v.Findings) > 0 || v.FirstIndex != l.FirstIndex() {
		t.Errorf("verify: %+v, %v", v, err)
	}
}

// TestInspectRefuses: a directory that is no log is refused, and so is one that a newer quorate wrote.
func TestInspectRefuses(t *testing.T) {
	fs := vfs.NewMem()
	inspect := func() error {
		_, err := Inspect(InspectOptions{FS: fs, Dir: testDir})
		return err
	}
	if err := inspect(); !isNotExist(err) {
		t.Errorf("no directory: %v", err)
	}
	if err := fs.MkdirAll(testDir); err != nil {
		t.Fatal(err)
	}
	writeFile(t, fs, "binlog.000001", []byte(binlog.Magic))
	if err := inspect(); !errors.Is(err, ErrFormat) {
		t.Errorf("no log: %v", err)
	}
	_ = mustOpen(t, Options{FS: fs, Dir: filepath.Join(testDir, "log"), Identity: testIdentity()})
	in, err := Inspect(InspectOptions{FS: fs, Dir: filepath.Join(testDir, "log")})
	if err == nil {
		err = in.Entries(0, 0, func(*InspectedEntry) error { return errors.New("there is an entry") })
	}
	if err != nil {
		t.Errorf("an empty log: %v", err)
	}
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// TestWindowOfShrunkFile: bytes that exist can be read although the file is cut behind them meanwhile.
func TestWindowOfShrunkFile(t *testing.T) {
	fs := copyOf(t, map[string][]byte{"f": bytes.Repeat([]byte("x"), 100)})
	f, err := fs.OpenReadWrite(filepath.Join(testDir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, err := newWindow(f)
	if err == nil {
		err = f.Truncate(50)
	}
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int64]error{50: nil, 51: errDamage} {
		if b, err := w.bytes(0, n); !errors.Is(err, want) || err == nil && int64(len(b)) != n {
			t.Errorf("%d bytes of 50: %d, %v", n, len(b), err)
		}
	}
}

// TestInspectLiveLog inspects a log while it grows, is cut and is purged: committed entries are found unless
// they were purged, and nothing ever counts as damage.
func TestInspectLiveLog(t *testing.T) {
	s := newStory()
	s.epoch("9.7.4")
	for i := range 200 {
		s.transactions(1, i%50)
		if i%17 == 0 {
			s.staged(1000)
		}
		if i%29 == 0 {
			s.rotate("9.7.4")
		}
	}
	mem := vfs.NewMem()
	l := mustOpen(t, smallOptions(mem))
	s.append(t, l, 1, 4, 2)
	var writer sync.WaitGroup
	done, looked := make(chan struct{}), make(chan struct{})
	writer.Go(func() {
		defer close(done)
		for from := uint64(5); from <= uint64(len(s.entries)); {
			if from > uint64(len(s.entries))/2 {
				<-looked
			}
			// Some entries are written, cut off, and written again.
			to := min(from+6, uint64(len(s.entries)))
			s.append(t, l, from, to, from-1)
			from += 3
			if _, err := l.Purge(from / 2); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer writer.Wait()
	goOn := sync.OnceFunc(func() { close(looked) })
	defer goOn()
	for looks := 1; ; looks++ {
		running := true
		select {
		case <-done:
			running = false
		default:
		}
		lookAtLiveLog(t, mem)
		if !running {
			return
		}
		if looks == 3 {
			goOn()
		}
	}
}

func lookAtLiveLog(t *testing.T, fs vfs.FS) {
	t.Helper()
	in := mustInspect(t, fs, false)
	v, err := in.Verify(t.Context(), nil)
	if err != nil || len(v.Findings) > 0 && v.Damaged() {
		t.Fatalf("verify: %+v, %v", v, err)
	}
	in = mustInspect(t, fs, false)
	next := uint64(0)
	if err := in.Entries(0, 0, func(e *InspectedEntry) error {
		if next != 0 && e.Index != next || e.Problem != nil {
			return fmt.Errorf("entry %d, want %d: %w", e.Index, next, e.Problem)
		}
		next = e.Index + 1
		return nil
	}); err != nil && !errors.Is(err, ErrCompacted) || err == nil && next != in.HardState().Commit+1 {
		t.Fatalf("entries end before %d with %d committed: %v", next, in.HardState().Commit, err)
	}
	if err := in.Segments(func(sum SegmentSummary) error { return nil }); err != nil {
		t.Fatalf("segments: %v", err)
	}
}
