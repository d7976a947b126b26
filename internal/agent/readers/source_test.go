package readers

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
	"github.com/quorate/quorate/internal/mysql/feed"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/entry"
)

// memLog is a log in memory of which the first entries are committed.
type memLog struct {
	entries   []seglog.Entry
	segments  []seglog.SegmentInfo
	committed uint64
	changed   chan struct{}
	has       gtid.Set
}

func (l *memLog) Segments() []seglog.SegmentInfo { return l.segments }
func (l *memLog) FirstIndex() uint64             { return l.segments[0].FirstIndex }
func (l *memLog) ReadStage(entry.StageID) (io.ReadCloser, error) {
	return nil, seglog.ErrNoStage
}

func (l *memLog) Close() {}

func (l *memLog) ReadCommitted(index, _ uint64) ([]seglog.Entry, bool, error) {
	if index < l.FirstIndex() {
		return nil, false, fmt.Errorf("read: %w", seglog.ErrCompacted)
	}
	if index > l.committed {
		return nil, false, nil
	}
	return l.entries[index-1 : index], true, nil
}

// add appends an entry, in a segment of its own if format is set.
func (l *memLog) add(data []byte, format []byte, ids ...uint64) {
	l.entries = append(l.entries, seglog.Entry{Index: uint64(len(l.entries) + 1), Term: 1, Data: data})
	index := uint64(len(l.entries))
	if format != nil {
		l.segments = append(l.segments, seglog.SegmentInfo{FirstIndex: index, Bytes: 1, GTIDsBefore: l.has.Clone(), FormatDescription: format})
	}
	for _, n := range ids {
		l.has.Add(binlogtest.GTID(n))
	}
}

func (l *memLog) source() *Source {
	return NewSource(Config{
		Log:     func() feed.Log { return l },
		Changed: func() (consensus.Mark, <-chan struct{}) { return consensus.Mark{Index: l.committed}, l.changed },
		GTIDs:   func() *gtid.Set { return &l.has },
		Open:    func(entry.StageID) (mysqlwire.StageEvents, error) { return nil, nil },
		Logger:  slog.New(slog.DiscardHandler),
	})
}

// newMemLog makes a log of ten entries. The last two, a rotation and a transaction, are not committed.
func newMemLog() *memLog {
	w := binlogtest.New("q.000001")
	first, other := w.FormatDescription(1), w.Event(15, append(w.FormatDescription(1)[19:117], 0, 1))
	l := &memLog{committed: 8, changed: make(chan struct{})}
	transaction := func() []byte {
		data := entry.AppendHeader(nil, entry.Header{Kind: entry.KindTransactions, Count: 1, Term: 1, Number: w.Next})
		return append(data, binlogtest.Join(w.Rows(10)...)...)
	}
	rotate := func(format []byte) []byte {
		return append(entry.AppendHeader(nil, entry.Header{Kind: entry.KindRotate, Term: 1, Number: 9}), format...)
	}
	l.add(nil, []byte("built-in"))
	l.add(entry.EncodeEpoch(entry.Epoch{Term: 1, FormatDescription: first}), first)
	l.add(transaction(), nil, 1)
	l.add(transaction(), first, 2) // the agent was started again
	staged := w.Rows(100)
	l.add(entry.EncodeStaged(entry.Staged{ID: entry.StageID{Term: 1, Number: 3}, GTIDEvent: staged[0], Bytes: 9999}), first, 3)
	l.add(transaction(), first, 4) // behind a stage
	l.add(rotate(first), first)
	l.add(transaction(), nil, 5)
	l.add(rotate(other), other)
	l.add(transaction(), nil, 6)
	return l
}

// readerFiles returns files. Each has three numbers, in turn: its index, its length and the number of transactions
// before it.
func readerFiles(numbers ...uint64) (files []mysqlwire.ReaderFile) {
	for i := 0; i < len(numbers); i += 3 {
		before := &gtid.Set{}
		for n := range numbers[i+2] {
			before.Add(binlogtest.GTID(n + 1))
		}
		files = append(files, mysqlwire.ReaderFile{Index: numbers[i], Bytes: int64(numbers[i+1]), Before: before})
	}
	return files
}

func TestReaderFiles(t *testing.T) {
	l := newMemLog()
	s := l.source()
	for range 2 { // the second time from what is known
		files, err := s.Files()
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(readerFiles(1, 1, 0, 3, 3, 0, 6, 1, 3, 8, 1, 4), files); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
	l.segments = l.segments[2:] // what is purged; the oldest goes on in the middle of a file
	files, err := s.Files()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(readerFiles(4, 2, 1, 6, 1, 3, 8, 1, 4), files); d != "" {
		t.Errorf("purged (-want +got):\n%s", d)
	}
	if len(s.begun) != 4 {
		t.Errorf("%d segments are remembered, want 4", len(s.begun))
	}
}

// TestReaderCursor: a reader gets the committed entries from where it asks on, and the format that was in force
// before, whatever an entry that may still be replaced would bring.
func TestReaderCursor(t *testing.T) {
	l := newMemLog()
	s := l.source()
	read := func(from uint64) (indexes []uint64, format []byte) {
		t.Helper()
		c, err := s.StartReader(t.Context(), mysqlwire.ReaderRequest{From: from, Once: true})
		if err != nil {
			t.Fatal(err)
		}
		for {
			p, _, err := c.Next()
			if errors.Is(err, mysqlwire.ErrEndOfLog) {
				return indexes, format
			}
			if err != nil {
				t.Fatal(err)
			}
			if p.FormatDescription != nil && format == nil {
				format = p.FormatDescription
			}
			if p.FormatDescription == nil {
				indexes = append(indexes, p.Index)
			}
		}
	}
	for from, want := range map[uint64][]uint64{
		1: {3, 4, 5, 6, 8}, 3: {3, 4, 5, 6, 8}, 4: {4, 5, 6, 8}, 6: {6, 8}, 7: {8}, 8: {8}, 9: nil, 11: nil,
	} {
		got, _ := read(from)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("from %d (-want +got):\n%s", from, d)
		}
	}
	if _, format := read(9); !bytes.Equal(format, l.segments[1].FormatDescription) {
		t.Errorf("the file at the end begins with a format of %d bytes that is not committed", len(format))
	}
}

// TestReaderCursorWaits: a reader that is ahead waits, also at the beginning.
func TestReaderCursorWaits(t *testing.T) {
	l := newMemLog()
	c, err := l.source().StartReader(t.Context(), mysqlwire.ReaderRequest{From: 10})
	if err != nil {
		t.Fatal(err)
	}
	if p, more, err := c.Next(); p != nil || more == nil || err != nil {
		t.Fatalf("%+v, %v; want nothing", p, err)
	}
	l.committed = 10
	var indexes []uint64
	for range 2 {
		p, _, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		indexes = append(indexes, p.Index)
	}
	if d := cmp.Diff([]uint64{10, 10}, indexes); d != "" { // format and transaction
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestReaderFindsItsPlace(t *testing.T) {
	for _, tc := range []struct {
		has    string // numbers of transactions
		purged int    // segments
		want   uint64 // 0 = refused
	}{
		{"", 0, 3}, {"1", 0, 4}, {"1-2", 0, 5}, {"1-3", 0, 6}, {"1-4", 0, 8}, {"1-5", 0, 8}, {"1-9", 0, 8},
		{"2-5", 0, 3}, {"", 2, 0}, {"1", 2, 4}, {"2-9", 2, 0}, {"1-5", 2, 8},
	} {
		l := newMemLog()
		l.segments = l.segments[tc.purged:]
		has := &gtid.Set{}
		if tc.has != "" {
			var err error
			if has, err = gtid.ParseSet(binlogtest.GTID(1).UUID.String() + ":" + tc.has); err != nil {
				t.Fatal(err)
			}
		}
		c, err := l.source().StartReader(t.Context(), mysqlwire.ReaderRequest{Exclude: has})
		if e, ok := errors.AsType[*mysqlwire.ServerError](err); ok != (tc.want == 0) || ok && e.Code != 1236 {
			t.Errorf("%+v: %v", tc, err)
		}
		if got, ok := c.(*cursor); ok && got.from != tc.want {
			t.Errorf("%+v: from %d", tc, got.from)
		}
	}
	l := newMemLog()
	l.segments = l.segments[2:]
	_, err := l.source().StartReader(t.Context(), mysqlwire.ReaderRequest{From: 3})
	if e, ok := errors.AsType[*mysqlwire.ServerError](err); !ok || e.Code != 1236 {
		t.Errorf("a file that is purged: %v", err)
	}
	c, err := l.source().StartReader(t.Context(), mysqlwire.ReaderRequest{From: 4})
	if err != nil {
		t.Fatal(err)
	}
	l.segments = l.segments[2:] // purged while it reads
	if _, _, err = c.Next(); err == nil {
		_, _, err = c.Next()
	}
	if e, ok := errors.AsType[*mysqlwire.ServerError](err); !ok || e.Code != 1236 {
		t.Errorf("purged under a reader: %v", err)
	}
}
