package agent

import (
	"encoding/binary"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/quorate/quorate/internal/binlog"
	"github.com/quorate/quorate/internal/entry"
	"github.com/quorate/quorate/internal/gtid"
	"github.com/quorate/quorate/internal/seglog"
)

// fakeLog is a committed log in memory, cut into segments.
type fakeLog struct {
	entries  []seglog.Entry
	segments []seglog.SegmentInfo
}

func (l *fakeLog) Segments() []seglog.SegmentInfo { return l.segments }
func (l *fakeLog) FirstIndex() uint64             { return 1 }
func (l *fakeLog) ReadCommitted(index, _ uint64) ([]seglog.Entry, bool, error) {
	if index > uint64(len(l.entries)) {
		return nil, false, nil
	}
	return l.entries[index-1 : min(int(index)+1, len(l.entries))], true, nil
}

// fakeTransaction is a GTID event and either a statement or a row change.
func fakeTransaction(n uint64, rows bool) []byte {
	var id gtid.UUID
	body := append([]byte{1}, id[:]...)
	body = binary.LittleEndian.AppendUint64(body, n)
	body = append(body, 2)
	body = append(body, make([]byte, 16)...)
	raw := fakeEvent(33, body)
	if rows {
		query := append(make([]byte, 13), "\x00BEGIN"...)
		raw = append(raw, fakeEvent(2, query)...)
		raw = append(raw, fakeEvent(30, make([]byte, 10))...)
		return append(raw, fakeEvent(16, make([]byte, 8))...)
	}
	return append(raw, fakeEvent(2, append(make([]byte, 13), "\x00DROP TABLE IF EXISTS t"...))...)
}

func fakeEvent(kind byte, body []byte) []byte {
	e := make([]byte, binlog.HeaderBytes)
	e[4] = kind
	e = append(append(e, body...), 0, 0, 0, 0)
	binary.LittleEndian.PutUint32(e[9:], uint32(len(e)))
	binlog.PutChecksum(e)
	return e
}

// buildLog makes entries of the given transaction counts; rows says which
// transactions carry rows. A segment begins at every third entry.
func buildLog(counts []int, rows func(n uint64) bool) *fakeLog {
	l := &fakeLog{}
	before, n := &gtid.Set{}, uint64(0)
	for i, count := range counts {
		index := uint64(i + 1)
		if i%3 == 0 {
			l.segments = append(l.segments, seglog.SegmentInfo{FirstIndex: index, GTIDsBefore: before.Clone()})
		}
		data := entry.AppendHeader(nil, entry.Header{Kind: entry.KindTransactions, Count: uint32(count), Term: 1, Number: index})
		for range count {
			n++
			data = append(data, fakeTransaction(n, rows(n))...)
			before.Add(gtid.GTID{N: n})
		}
		l.entries = append(l.entries, seglog.Entry{Index: index, Term: 1, Data: data})
	}
	return l
}

func numbers(ns ...uint64) *gtid.Set {
	s := &gtid.Set{}
	for _, n := range ns {
		s.Add(gtid.GTID{N: n})
	}
	return s
}

// TestPrefixAgainstModel compares with a plain search over all transactions.
func TestPrefixAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		counts := rapid.SliceOfN(rapid.IntRange(1, 4), 0, 12).Draw(t, "counts")
		total := uint64(0)
		for _, c := range counts {
			total += uint64(c)
		}
		have := rapid.Uint64Range(0, total).Draw(t, "have")
		noop := rapid.SliceOfN(rapid.Bool(), int(total)+1, int(total)+1).Draw(t, "noop")
		log := buildLog(counts, func(n uint64) bool { return !noop[n] })
		executed, want, last := &gtid.Set{}, &gtid.Set{}, uint64(0)
		for n := uint64(1); n <= have; n++ {
			if !noop[n] {
				executed.Add(gtid.GTID{N: n})
				last = n
			}
		}
		for n := uint64(1); n <= last; n++ {
			if noop[n] {
				want.Add(gtid.GTID{N: n})
			}
		}
		mark, err := findPrefix(log, executed)
		if err != nil {
			t.Fatal(err)
		}
		if got := through(log, mark); got != last {
			t.Fatalf("mark %+v is transaction %d, want %d", mark, got, last)
		}
		if mark.Through.Count() != last {
			t.Fatalf("through %s, want 1-%d", mark.Through, last)
		}
		holes, err := findHoles(log, mark, executed)
		if err != nil || !holes.Equal(want) {
			t.Fatalf("holes %v (%v), want %v", holes, err, want)
		}
	})
}

// through returns the number of the transaction at which a mark points.
func through(l *fakeLog, m prefixMark) (n uint64) {
	for _, e := range l.entries {
		h, _, _ := entry.Parse(e.Data)
		if e.Index == m.Index {
			return n + uint64(m.Skip)
		}
		n += uint64(h.Count)
	}
	return 0
}

// TestHoleWithRowsIsRefused: trace A4. A missing transaction with rows below
// the mark is never declared done.
func TestHoleWithRowsIsRefused(t *testing.T) {
	log := buildLog([]int{2, 2, 2, 2, 2}, func(n uint64) bool { return n != 3 })
	executed := numbers(1, 2, 5, 6, 7) // 3 is a no-op, 4 carries rows
	mark, err := findPrefix(log, executed)
	if err != nil || mark.Index != 4 || mark.Skip != 1 {
		t.Fatalf("mark %+v, %v", mark, err)
	}
	_, err = findHoles(log, mark, executed)
	want := fmt.Sprintf("mysqld lacks transactions with rows (%s) although it has later ones", numbers(4))
	if err == nil || err.Error() != want {
		t.Fatalf("got %v, want %s", err, want)
	}
}

// TestHolesThatTheLogLacksAreRefused: what cannot be looked at is not filled.
func TestHolesThatTheLogLacksAreRefused(t *testing.T) {
	log := buildLog([]int{1, 1, 1}, func(uint64) bool { return true })
	mark := prefixMark{Index: 3, Skip: 1, Through: numbers(1, 2, 3, 9)}
	if holes, err := findHoles(log, mark, numbers(1, 2, 3)); err == nil {
		t.Fatalf("filled %s", holes)
	}
}
