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

// TestLagAfterRestart: if all transactions of a log are older than the start of the commit check, its marks
// count as applied only if mysqld has these transactions.
func TestLagAfterRestart(t *testing.T) {
	id := gtid.GTID{UUID: gtid.UUID{1}, N: 1}
	before := &gtid.Set{}
	before.Add(id)
	var l LagTracker
	l.Start(before.Clone())
	l.Committed(Mark{Index: 7}, time.Now())
	if got := l.Executed(&gtid.Set{}, time.Now()); got.Applied != 0 {
		t.Errorf("an empty mysqld has applied up to %d", got.Applied)
	}
	if got := l.Executed(before, time.Now()); got.Applied != 7 {
		t.Errorf("a mysqld with everything has applied up to %d, want 7", got.Applied)
	}
}
