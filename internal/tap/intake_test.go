package tap

import (
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quorate/quorate/internal/binlog/binlogtest"
)

// Whoever takes a batch, the reader or the proposer, and whatever the reader gives back:
// one batch is under way at a time, none is left out or comes twice, and behind one that
// was not proposed comes nothing.
func TestOneBatchAtATime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := binlogtest.New("q.000001")
		m := New(Config{Term: 7, BatchBytesMax: 1000})
		in := Intake{Machine: m, Lock: &sync.Mutex{}}
		var proposed []uint64
		var under *Batch // the proposer's
		closed := false
		take := func(b Batch) {
			if under != nil || closed || b.Number != uint64(len(proposed)+1) {
				t.Fatalf("batch %d comes behind %v, under way: %v, closed: %t", b.Number, proposed, under, closed)
			}
		}
		proposer := func() {
			if under != nil {
				proposed, under = append(proposed, under.Number), nil
				m.Proposed()
			}
			if b, ok := m.TakeBatch(); ok {
				take(b)
				under = &b
			}
		}
		reader := func(b Batch) bool {
			take(b)
			if m.Ready() {
				t.Fatal("another batch may be taken beside it")
			}
			if rapid.Bool().Draw(t, "refuses") {
				return false
			}
			proposed = append(proposed, b.Number)
			return true
		}
		events := w.Start()
		for range rapid.IntRange(1, 8).Draw(t, "transactions") {
			events = append(events, w.Rows(rapid.IntRange(10, 600).Draw(t, "bytes"))...)
		}
		fails := rapid.IntRange(-100, len(events)).Draw(t, "fails")
		for i, event := range events {
			step, err := m.Read(event)
			if err != nil {
				t.Fatal(err)
			}
			for done := false; !done && !closed; {
				if done, err = in.Take(step, time.Time{}); err != nil {
					t.Fatal(err)
				}
				if !done {
					proposer()
				}
			}
			if i == fails {
				m.Close()
				closed = true
			}
			switch rapid.IntRange(0, 3).Draw(t, "who") {
			case 0:
				in.Release(reader)
			case 1:
				in.Release(nil)
			case 2:
				proposer()
			}
		}
		in.Release(nil)
		for !closed && (under != nil || m.Ready()) {
			proposer()
		}
		if !closed && m.Outstanding() != uint64(len(proposed)) {
			t.Fatalf("%d of %d batches were proposed", len(proposed), m.Outstanding())
		}
		if !slices.IsSorted(proposed) {
			t.Fatalf("proposed are %v", proposed)
		}
	})
}
