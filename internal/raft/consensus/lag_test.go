package consensus

import (
	"testing"
	"time"

	"github.com/quorate/quorate/internal/mysql/gtid"
)

// TestLagTracker: however many marks there were, the lag is never reported too low, and it is exact when mysqld
// has caught up.
func TestLagTracker(t *testing.T) {
	var l LagTracker
	mark := func(n uint64) Mark {
		return Mark{Index: n, Last: gtid.GTID{N: n}, Transactions: n, Bytes: 100 * n}
	}
	const total = 3*lagMarksMax + 5
	for n := uint64(1); n <= total; n++ {
		l.Committed(mark(n), time.Now())
	}
	if len(l.marks) > lagMarksMax {
		t.Fatalf("%d marks", len(l.marks))
	}
	executed := &gtid.Set{}
	if err := executed.AddInterval(gtid.UUID{}, "", 1, total-2); err != nil {
		t.Fatal(err)
	}
	got := l.Executed(executed, time.Now())
	if got.Applied > total-2 || got.Transactions < 2 || got.Bytes != 100*got.Transactions {
		t.Errorf("behind by two: %+v", got)
	}
	if err := executed.AddInterval(gtid.UUID{}, "", 1, total); err != nil {
		t.Fatal(err)
	}
	if got := l.Executed(executed, time.Now()); got != (Lag{Applied: total, AppliedBytes: 100 * total}) {
		t.Errorf("caught up: %+v", got)
	}
}

// TestLagMarksStayBounded: also after a mysqld that lags was killed, and has lost its last commit while there are as many
// marks as possible.
func TestLagMarksStayBounded(t *testing.T) {
	var l LagTracker
	next := uint64(1)
	commit := func() {
		l.Committed(Mark{Index: next, Last: gtid.GTID{N: next}, Transactions: next}, time.Now())
		next++
	}
	executed := &gtid.Set{}
	for range 10 {
		executed.Add(gtid.GTID{N: next})
		commit()
	}
	l.Executed(executed, time.Now())
	for len(l.marks) < lagMarksMax {
		commit()
	}
	lost := &gtid.Set{}
	if err := lost.AddInterval(gtid.UUID{}, "", 1, 9); err != nil {
		t.Fatal(err)
	}
	l.Executed(lost, time.Now())
	for range 3 * lagMarksMax {
		if commit(); len(l.marks) > lagMarksMax {
			t.Fatalf("%d marks after entry %d, at most %d are kept", len(l.marks), next-1, lagMarksMax)
		}
	}
	if got := l.Executed(lost, time.Now()); got.Applied != 0 || got.Transactions != int64(next-10) {
		t.Errorf("%+v, want %d transactions", got, next-10)
	}
}

// TestLagAfterRestart: if all transactions of a log are older than the start of the commit check, its marks
// count as applied only if mysqld has these transactions.
func TestLagAfterRestart(t *testing.T) {
	id := gtid.GTID{UUID: gtid.UUID{1}, N: 1}
	before := &gtid.Set{}
	before.Add(id)
	var l LagTracker
	l.Start(before.Clone(), nil)
	l.Committed(Mark{Index: 7}, time.Now())
	if got := l.Executed(&gtid.Set{}, time.Now()); got.Applied != 0 {
		t.Errorf("an empty mysqld has applied up to %d", got.Applied)
	}
	if got := l.Executed(before, time.Now()); got.Applied != 7 {
		t.Errorf("a mysqld with everything has applied up to %d, want 7", got.Applied)
	}
}

// TestLagOfAKilledMysqld: a mysqld that was killed may lack what it had applied. Nobody knows how much, so until it has
// that again it has nothing for sure.
func TestLagOfAKilledMysqld(t *testing.T) {
	began := time.Now()
	set := func(last int64) *gtid.Set {
		s := &gtid.Set{}
		if err := s.AddInterval(gtid.UUID{}, "", 1, uint64(last)); err != nil {
			t.Fatal(err)
		}
		return s
	}
	for name, c := range map[string]struct {
		base uint64 // was committed when the commit check started
		late uint64 // marks that came while mysqld was down
	}{"idle": {0, 12}, "more came": {0, 14}, "all is older than the agent": {12, 12}} {
		t.Run(name, func(t *testing.T) {
			var l LagTracker
			at := began
			if c.base > 0 {
				l.Start(set(int64(c.base)), nil)
				l.Committed(Mark{Index: c.base, Transactions: c.base}, at)
			}
			commit := func(from, to uint64) {
				for n := from; n <= to; n++ {
					at = at.Add(time.Second)
					l.Committed(Mark{Index: n, Last: gtid.GTID{N: n}, Transactions: n}, at)
				}
			}
			commit(c.base+1, 12)
			if got := l.Executed(set(12), at); got.Applied != 12 || got.Transactions != 0 {
				t.Fatalf("it has all: %+v", got)
			}
			commit(13, c.late)
			for range 2 { // it is asked more than once
				if got := l.Executed(set(11), at.Add(time.Second)); got.Applied != 0 || got.Transactions != int64(c.late-11) {
					t.Errorf("it lacks the newest again: %+v", got)
				}
			}
			if got := l.Executed(set(12), at); got.Applied != 12 || got.Transactions != int64(c.late-12) {
				t.Errorf("it has that again: %+v", got)
			}
			if got := l.Executed(set(int64(c.late)), at); got != (Lag{Applied: c.late}) {
				t.Errorf("it has all again: %+v", got)
			}
		})
	}
}

// TestLagBetweenMarks: after a start, one mark stands for all that was committed before. The lag still shrinks while mysqld
// applies that.
func TestLagBetweenMarks(t *testing.T) {
	id, all := gtid.UUID{1}, &gtid.Set{}
	if err := all.AddInterval(id, "", 1, 1000); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		first, second Mark
		want          Lag
	}{
		"of this log": {
			Mark{Index: 90, Last: gtid.GTID{UUID: id, N: 900}, Transactions: 900, Bytes: 9000},
			Mark{Index: 100, Last: gtid.GTID{UUID: id, N: 1000}, Transactions: 1000, Bytes: 10_000},
			Lag{Transactions: 550, Bytes: 5500, AppliedBytes: 4500, Seconds: 1},
		},
		"older than the agent": {Mark{Index: 90}, Mark{Index: 100}, Lag{Transactions: 550, Seconds: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			var l LagTracker
			l.Start(all, func(s *gtid.Set) uint64 { return 1000 - s.Count() })
			now := time.Now()
			l.Committed(c.first, now)
			l.Committed(c.second, now)
			half := &gtid.Set{}
			if err := half.AddInterval(id, "", 1, 450); err != nil {
				t.Fatal(err)
			}
			if got := l.Executed(half, now.Add(time.Second)); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}
