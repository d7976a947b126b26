package replay

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/entry"
)

func numbers(ns ...uint64) *gtid.Set {
	s := &gtid.Set{}
	for _, n := range ns {
		s.Add(gtid.GTID{N: n})
	}
	return s
}

// drawChanges draws what n transactions do, from index 1 on. An XID is used again
// once its transaction has ended.
func drawChanges(t *rapid.T, n uint64) []change {
	prepared := map[byte]bool{}
	changes := make([]change, n+1)
	for i := range n {
		c := change{rapid.SampledFrom([]byte{noOp, rowChange, xaPrepare, xaEnd}).Draw(t, "kind"), rapid.ByteRange(1, 3).Draw(t, "xid")}
		if c.kind == xaPrepare && prepared[c.xid] || c.kind == xaEnd && !prepared[c.xid] {
			c.kind = rowChange
		}
		if c.kind == xaPrepare || c.kind == xaEnd {
			prepared[c.xid] = c.kind == xaPrepare
		}
		changes[i+1] = c
	}
	return changes
}

// TestPrefixAgainstModel compares with a simple model of a mysqld that started after a crash:
// it keeps the GTIDs of transactions with rows, and of XA PREPAREs only if it was the primary.
func TestPrefixAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		counts := rapid.SliceOfN(rapid.IntRange(1, 4), 0, 12).Draw(t, "counts")
		total := uint64(0)
		for _, c := range counts {
			total += uint64(c)
		}
		have := rapid.Uint64Range(0, total).Draw(t, "have")
		changes := drawChanges(t, total)
		primary := rapid.SliceOfN(rapid.Bool(), int(total)+1, int(total)+1).Draw(t, "primary")
		log := buildLog(counts, func(n uint64) change { return changes[n] })
		executed, last := &gtid.Set{}, uint64(0)
		for n := uint64(1); n <= have; n++ {
			if k := changes[n].kind; k == rowChange || k == xaEnd || k == xaPrepare && primary[n] {
				executed.Add(gtid.GTID{N: n})
				last = n
			}
		}
		done, again := &gtid.Set{}, &gtid.Set{}
		var feed []uint64 // what comes before all that follows
		for n := uint64(1); n <= last; n++ {
			switch {
			case executed.Contains(gtid.GTID{N: n}):
			case changes[n].kind == xaPrepare && !slices.Contains(changes[n:last+1], change{xaEnd, changes[n].xid}):
				again.Add(gtid.GTID{N: n})
				feed = append(feed, n)
			default:
				done.Add(gtid.GTID{N: n})
			}
		}
		mark := mustFind(t, log, executed, last)
		if !mark.Done.Equal(done) || !mark.Again.Equal(again) || !mark.Broken.IsEmpty() {
			t.Fatalf("done %s again %s broken %s, want %s and %s", mark.Done, mark.Again, mark.Broken, done, again)
		}
		executed.Union(done)
		mark = mustFind(t, log, executed, last)
		if got := through(log, mark); got != last || !mark.Done.IsEmpty() || !mark.Again.Equal(again) {
			t.Fatalf("all declared: mark %+v is transaction %d, want %d", mark, got, last)
		}
		c, err := NewCursor(log, mark)
		if err != nil {
			t.Fatal(err)
		}
		for n := last + 1; n <= total; n++ {
			feed = append(feed, n)
		}
		if got, _ := drain(t, c); !slices.Equal(got, feed) {
			t.Fatalf("mysqld has %s and is fed %v, want %v", executed, got, feed)
		}
		if k := changes[last].kind; last > 1 && (k == rowChange || k == xaEnd) {
			lost := rapid.Uint64Range(1, last-1).Draw(t, "lost")
			mustBreak(t, log, executed, changes, lost, last)
		}
	})
}

// mustBreak takes transaction lost away from a mysqld that has a later one.
func mustBreak(t *rapid.T, log *fakeLog, executed *gtid.Set, changes []change, lost, last uint64) {
	if k := changes[lost].kind; k != rowChange && k != xaEnd {
		return
	}
	executed = executed.Clone()
	executed.Subtract(numbers(lost))
	mark := mustFind(t, log, executed, last)
	if !mark.Broken.Contains(gtid.GTID{N: lost}) || through(log, mark) != last {
		t.Fatalf("%d is missing: mark %+v, broken %s", lost, mark, mark.Broken)
	}
}

func mustFind(t *rapid.T, log *fakeLog, executed *gtid.Set, last uint64) Prefix {
	mark, err := FindPrefix(log, executed, Mark{})
	if err != nil {
		t.Fatal(err)
	}
	if mark.Through.Count() != last {
		t.Fatalf("through %s, want 1-%d", mark.Through, last)
	}
	return mark
}

// through returns the number of the transaction at which a mark points.
func through(l *fakeLog, m Prefix) (n uint64) {
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
	log := buildLog([]int{2, 2, 2, 2, 2}, func(n uint64) change {
		if n == 3 {
			return change{kind: noOp}
		}
		return change{kind: rowChange}
	})
	mark, err := FindPrefix(log, numbers(1, 2, 5, 6, 7), Mark{})
	if err != nil || mark.Index != 4 || mark.Skip != 1 {
		t.Fatalf("mark %+v, %v", mark, err)
	}
	if !mark.Broken.Equal(numbers(4)) || !mark.Done.Equal(numbers(3)) {
		t.Fatalf("broken %s, done %s", mark.Broken, mark.Done)
	}
}

// TestHolesThatTheLogLacksAreRefused: a hole that cannot be read is not declared done.
func TestHolesThatTheLogLacksAreRefused(t *testing.T) {
	log := buildLog([]int{1, 1, 1}, func(uint64) change { return change{kind: rowChange} })
	mark := Prefix{First: 1, Index: 3, Skip: 1, Through: numbers(1, 2, 3, 9)}
	if err := mark.findHoles(log, log.Segments(), numbers(1, 2, 3), Mark{}); err == nil {
		t.Fatalf("filled %s", mark.Done)
	}
}
