package tap

import (
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
)

// turns lets a reader and a proposer propose batches.
type turns struct {
	t        *rapid.T
	m        *Machine
	proposed []uint64
	under    *Batch // the proposer's
	closed   bool
}

func (u *turns) take(b Batch) {
	if u.under != nil || u.closed || b.Number != uint64(len(u.proposed)+1) {
		u.t.Fatalf("batch %d comes behind %v, under way: %v, closed: %t", b.Number, u.proposed, u.under, u.closed)
	}
}

func (u *turns) proposer() {
	if u.under != nil {
		u.proposed, u.under = append(u.proposed, u.under.Number), nil
		u.m.Proposed()
	}
	if b, ok := u.m.TakeBatch(); ok {
		u.take(b)
		u.under = &b
	}
}

func (u *turns) reader(b Batch) bool {
	u.take(b)
	if u.m.Ready() {
		u.t.Fatal("another batch may be taken beside it")
	}
	if rapid.Bool().Draw(u.t, "refuses") {
		return false
	}
	u.proposed = append(u.proposed, b.Number)
	return true
}

// The reader or the proposer takes a batch, and the reader may give it back. In any case one
// batch is under way at a time, none is left out or comes twice, and nothing comes behind a
// batch whose proposal failed.
func TestOneBatchAtATime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := binlogtest.New("q.000001")
		m := New(Config{Term: 7, BatchBytesMax: 1000})
		in, u := Intake{Machine: m, Lock: &sync.Mutex{}}, &turns{t: t, m: m}
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
			for done := false; !done && !u.closed; {
				if done, err = in.Take(step, time.Time{}); err != nil {
					t.Fatal(err)
				}
				if !done {
					u.proposer()
				}
			}
			if i == fails {
				m.Close()
				u.closed = true
			}
			switch rapid.IntRange(0, 3).Draw(t, "who") {
			case 0:
				in.Release(u.reader)
			case 1:
				in.Release(nil)
			case 2:
				u.proposer()
			}
		}
		in.Release(nil)
		for !u.closed && (u.under != nil || m.Ready()) {
			u.proposer()
		}
		if !u.closed && m.Outstanding() != uint64(len(u.proposed)) {
			t.Fatalf("%d of %d batches were proposed", len(u.proposed), m.Outstanding())
		}
	})
}
