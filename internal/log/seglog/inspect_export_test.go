package seglog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// exportAll exports into memory.
func exportAll(t *testing.T, in *Inspector, o ExportOptions) (*Exported, []*bytes.Buffer, error) {
	t.Helper()
	var files []*bytes.Buffer
	x, err := in.Export(t.Context(), o, func(f ExportFile) (io.Writer, error) {
		files = append(files, &bytes.Buffer{})
		if f.Number != len(files) {
			return nil, fmt.Errorf("file %d is called %d", len(files), f.Number)
		}
		return files[len(files)-1], nil
	})
	return x, files, err
}

// checkExport reads exported files: they must hold the transactions from..to of the story and no others, and
// each file is of one server version.
func (s *story) checkExport(files []*bytes.Buffer, from, to int) error {
	before := &gtid.Set{}
	for n := range from - 1 {
		before.Add(storyGTID(uint64(n + 1)))
	}
	var raw []byte
	for _, f := range files {
		rest, ok := bytes.CutPrefix(f.Bytes(), []byte(binlog.Magic))
		if !ok {
			return errors.New("no magic")
		}
		fde, rest, err := binlog.CutEvent(rest)
		if err == nil {
			_, err = binlog.ParseFormatDescription(fde)
		}
		if err != nil {
			return err
		}
		previous, rest, err := binlog.CutEvent(rest)
		if err != nil {
			return err
		}
		set, err := binlog.ParsePreviousGTIDs(previous)
		if err != nil || !set.Equal(before) || binlog.VerifyChecksum(previous) != nil || int(previous.LogPos()) != 4+len(fde)+len(previous) {
			return fmt.Errorf("PREVIOUS_GTIDS %v at %d, want %v: %w", set, previous.LogPos(), before, err)
		}
		for transaction, err := range binlog.Transactions(rest) {
			if err != nil {
				return err
			}
			before.Add(transaction.GTID)
		}
		raw = append(raw, rest...)
	}
	if want := bytes.Join(s.raw[from-1:to], nil); !bytes.Equal(want, raw) {
		return fmt.Errorf("%d bytes, want transactions %d-%d, %d bytes", len(raw), from, to, len(want))
	}
	return nil
}

// TestExport exports everything, and then from each entry up to each transaction, by each kind of limit.
func TestExport(t *testing.T) {
	s := sampleStory()
	fs := vfs.NewMem()
	last := uint64(len(s.entries))
	commit := last - 1
	s.open(t, fs, commit)
	in := mustInspect(t, fs, false)
	committed := 0
	for _, at := range s.entryOf {
		if at <= commit {
			committed++
		}
	}
	check := func(o ExportOptions, from, to, files int) {
		t.Helper()
		x, found, err := exportAll(t, in, o)
		if err == nil {
			err = s.checkExport(found, from, to)
		}
		if err == nil && (x.Transactions != uint64(to-from+1) || x.Files != len(found) || files != 0 && files != x.Files) {
			err = fmt.Errorf("%+v with %d files", x, len(found))
		}
		if err == nil && to >= from && !x.LastTime.Equal(storyTime().Add(time.Duration(to)*time.Second)) {
			err = fmt.Errorf("last time %v", x.LastTime)
		}
		if err != nil {
			t.Errorf("%+v, want transactions %d-%d: %v", o, from, to, err)
		}
	}
	in = mustInspect(t, fs, true)
	check(ExportOptions{}, 1, len(s.raw), 0)
	in = mustInspect(t, fs, false)
	check(ExportOptions{}, 1, committed, 2)
	for n := 1; n <= committed; n++ {
		at := s.entryOf[n-1]
		commitTime := storyTime().Add(time.Duration(n) * time.Second)
		check(ExportOptions{UntilGTID: storyGTID(uint64(n))}, 1, n, 0)
		check(ExportOptions{UntilTime: commitTime}, 1, n, 0)
		check(ExportOptions{UntilTime: commitTime.Add(-1)}, 1, n-1, 0)
		first := int(s.firstFrom(at))
		check(ExportOptions{From: at}, first, committed, 0)
		check(ExportOptions{From: at, UntilIndex: at}, first, int(s.firstFrom(at+1))-1, 1)
		check(ExportOptions{From: at, UntilGTID: storyGTID(uint64(n))}, first, n, 1)
	}
	check(ExportOptions{UntilIndex: 2}, 1, 0, 1)
	check(ExportOptions{UntilIndex: last + 5}, 1, committed, 2)
	for _, o := range []ExportOptions{
		{UntilGTID: storyGTID(s.n)}, {UntilGTID: storyGTID(s.n + 1)}, {From: last}, {From: 9, UntilGTID: storyGTID(1)},
	} {
		if x, files, err := exportAll(t, in, o); err == nil || len(files) > 0 {
			t.Errorf("%+v: %+v in %d files, %v", o, x, len(files), err)
		}
	}
}

// firstFrom returns the number of the first transaction from entry index on.
func (s *story) firstFrom(index uint64) uint64 {
	for n, at := range s.entryOf {
		if at >= index {
			return uint64(n + 1)
		}
	}
	return s.n + 1
}

// TestExportStopsAtDamage: nothing of a damaged entry is exported, and the error says where the entry is.
func TestExportStopsAtDamage(t *testing.T) {
	s := sampleStory()
	fs := vfs.NewMem()
	s.open(t, fs, uint64(len(s.entries)))
	files := content(t, fs)
	n, place := s.firstFrom(12), InspectedEntry{}
	if err := mustInspect(t, fs, false).Entries(12, 12, func(e *InspectedEntry) error {
		files[e.Segment][e.Transactions[0].Offset+e.Transactions[0].Bytes-10] ^= 1
		place = *e
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	_, found, err := exportAll(t, mustInspect(t, copyOf(t, files), false), ExportOptions{})
	if c, ok := errors.AsType[*CorruptError](err); !ok || c.Index != 12 || c.Offset != place.Offset || c.File != place.Segment {
		t.Errorf("error is %v", err)
	}
	if err := s.checkExport(found, 1, int(n-1)); err != nil {
		t.Error(err)
	}
}

// TestLongEventsArePassedInPieces: a row event that is longer than the limit is never in memory as a whole, and
// all its bytes are passed.
func TestLongEventsArePassedInPieces(t *testing.T) {
	rows := bytes.Repeat([]byte("0123456789abcdef"), 3*wholeEventBytesMax/16)
	begin := append(append(make([]byte, 13), "\x00"...), "BEGIN"...)
	gtidEvent, _, err := binlog.CutEvent(timedTransaction(1, storyTime(), "x"))
	if err != nil {
		t.Fatal(err)
	}
	raw := bytes.Join([][]byte{
		gtidEvent, testEvent(binlog.TypeQuery, begin), testEvent(binlog.TypeTableMap, make([]byte, 20)),
		testEvent(binlog.TypeWriteRows, rows), testEvent(binlog.TypeXID, make([]byte, 8)),
	}, nil)
	s := newStory()
	s.epoch("9.7.4")
	s.transactions(0, 0)
	e := &s.entries[len(s.entries)-1]
	e.Data = append(e.Data, raw...)
	e.Data[4] = 1
	s.raw, s.n = [][]byte{raw}, 1
	fs := vfs.NewMem()
	s.open(t, fs, 3)
	in := mustInspect(t, fs, false)
	_, files, err := exportAll(t, in, ExportOptions{})
	if err == nil {
		err = s.checkExport(files, 1, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	var lengths []int
	err = in.Entries(3, 3, func(e *InspectedEntry) error {
		return e.Events(&e.Transactions[0], func(event InspectedEvent) error {
			lengths = append(lengths, len(event.Head))
			if event.Whole() != (event.Head.Type() != binlog.TypeWriteRows) {
				return fmt.Errorf("%d of %d bytes", len(event.Head), event.Head.Length())
			}
			return nil
		})
	})
	if err != nil || len(lengths) != 5 || lengths[3] != wholeEventBytesMax {
		t.Errorf("%v, %v", lengths, err)
	}
	damagedFiles := content(t, fs)
	damagedFiles[segmentName(3)][2*wholeEventBytesMax] ^= 1
	if v := mustVerify(t, copyOf(t, damagedFiles)); len(v.Findings) != 1 || v.Findings[0].Index != 3 {
		t.Errorf("%+v", v.Findings)
	}
}
