package tap

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
	"github.com/quorate/quorate/internal/raft/entry"
)

// After any part of the stream, Ends is true exactly if everything that came is whole and was
// handed out. Settle then releases all of it; else it releases nothing.
func TestSettleAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := binlogtest.New("q.000001")
		m := New(Config{Term: 7, StageBytesMin: 1, BatchBytesMax: 20000})
		s := &stagingShell{t: t, m: m, stages: map[entry.StageID][]byte{}}
		left := false // something came and was not handed out
		check := func() {
			taken := m.batch.taken
			for n := max(taken, 1) - 1; n <= taken+1; n++ {
				if _, ok := m.Ends(n); ok != (n == taken && !left) {
					t.Fatalf("ends with %d of %d: %t, left: %t", n, taken, ok, left)
				}
			}
		}
		feed := func(counts bool, events ...[]byte) {
			for i, event := range events {
				if err := s.event(event, 1000); err != nil {
					t.Fatal(err)
				}
				left = left || counts
				check()
				if rapid.IntRange(0, 4).Draw(t, "take") == 0 {
					m.Release()
					s.take()
					left = left && i < len(events)-1 && counts // the beginning of a transaction stays
					check()
				}
			}
		}
		feed(false, w.Start()...)
		transactions, end := 0, Position{}
		for range rapid.IntRange(0, 8).Draw(t, "transactions") {
			if n := rapid.IntRange(0, 9000).Draw(t, "bytes"); n < 300 {
				feed(false, w.Rotate(w.File+"1"))
				start := w.Start()
				feed(false, start[0])
				if err := s.event(start[1], 1000); err != nil { // the format: an entry of its own
					t.Fatal(err)
				}
				m.Release()
				s.take()
				left = false
				check()
				feed(false, start[2:]...)
			} else {
				feed(true, w.Rows(n)...)
				transactions, end = transactions+1, Position{w.File, w.Offset}
			}
			if at, _ := m.Ends(0); at != (Position{w.File, w.Offset}) {
				t.Fatalf("at %v, fed up to %s:%d", at, w.File, w.Offset)
			}
		}
		number := m.batch.taken
		got, ok := m.Settle(number)
		at, acks := m.NextAck()
		switch {
		case ok == left, !ok && acks:
			t.Fatalf("settled: %t, something left: %t, acknowledges: %t", ok, left, acks)
		case ok && (got != transactions || acks != (transactions > 0) || at != end):
			t.Fatalf("%d transactions and %v let go, want %d and %v", got, at, transactions, end)
		}
	})
}
