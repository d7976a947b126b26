package mysqlwire

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/quorate/quorate/internal/entry"
	"github.com/quorate/quorate/internal/gtid"
)

// feedBatcher gives b what a stream of random transactions and rotations
// becomes, and returns it in order: the bodies of all entries, and the GTIDs
// (the zero GTID for a rotation).
func feedBatcher(t *rapid.T, b *batcher) (bodies [][]byte, ids []gtid.GTID, acls []bool) {
	w := newBinlogWriter("q")
	for range rapid.IntRange(1, 30).Draw(t, "transactions") {
		if rapid.IntRange(0, 9).Draw(t, "kind") == 0 {
			format := w.formatDescription(1)
			if err := b.rotate(context.Background(), format, Position{w.file, w.offset}); err != nil {
				t.Fatal(err)
			}
			bodies, ids, acls = append(bodies, format), append(ids, gtid.GTID{}), append(acls, false)
			continue
		}
		events := w.rows(rapid.IntRange(0, 1500).Draw(t, "bytes"))
		id, acl := testGTID(w.next-1), rapid.Bool().Draw(t, "acl")
		length := uint64(len(join(events...)))
		if rapid.IntRange(0, 4).Draw(t, "length unknown") == 0 {
			length = 0
		}
		if err := b.begin(context.Background(), id, length); err != nil {
			t.Fatal(err)
		}
		for i, event := range events {
			if err := b.add(event, acl && i == 1); err != nil {
				t.Fatal(err)
			}
			if rapid.IntRange(0, 9).Draw(t, "release") == 0 {
				b.release()
			}
		}
		b.finish(Position{w.file, w.offset})
		bodies, ids, acls = append(bodies, join(events...)), append(ids, id), append(acls, acl)
	}
	b.release()
	return bodies, ids, acls
}

// However reading and taking interleave, the batches are the stream: whole
// transactions in order, nothing lost or twice, numbers consecutive, and no
// entry above the limit but for a single transaction.
func TestBatcherKeepsTheStream(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const bytesMax = 2000
		b := newBatcher(TapConfig{BatchBytesMax: bytesMax, Term: 9}, newAckTracker())
		var got []Batch
		done, stop := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				if batch, ok := b.take(); ok {
					got = append(got, batch)
					continue
				}
				select {
				case <-b.ready:
				case <-stop:
					return
				}
			}
		}()
		bodies, ids, acls := feedBatcher(t, b)
		close(stop)
		<-done
		if batch, ok := b.take(); ok { // the last release may have lost to stop
			got = append(got, batch)
		}

		unknownLengths := b.bytesMax + 2000 // such a transaction is seen when it is there
		next := 0
		for i, batch := range got {
			h, body, err := entry.Parse(batch.Data)
			if err != nil || h.Number != uint64(i+1) || batch.Number != h.Number || h.Term != 9 {
				t.Fatalf("batch %d: %+v, %v", i, h, err)
			}
			n := max(int(h.Count), 1)
			if n > len(bodies)-next || !bytes.Equal(body, join(bodies[next:next+n]...)) {
				t.Fatalf("batch %d with %d transactions is not the stream from %d on", i, n, next)
			}
			acl := false
			for _, a := range acls[next : next+n] {
				acl = acl || a
			}
			if batch.ACL != acl || batch.Bytes != len(body) {
				t.Fatalf("batch %d: ACL %v, %d bytes; want %v, %d", i, batch.ACL, batch.Bytes, acl, len(body))
			}
			if h.Kind == entry.KindTransactions && cmp.Diff(ids[next:next+n], batch.GTIDs) != "" {
				t.Fatalf("batch %d: GTIDs %v", i, batch.GTIDs)
			}
			if len(batch.Data) > unknownLengths && n > 1 {
				t.Fatalf("batch %d of %d transactions has %d bytes", i, n, len(batch.Data))
			}
			next += n
		}
		if next != len(bodies) {
			t.Fatalf("%d of %d transactions came out", next, len(bodies))
		}
	})
}

// With lengths known the limit is exact.
func TestBatcherLimit(t *testing.T) {
	w := newBinlogWriter("q")
	one := w.rows(100)
	length := len(join(one...))
	b := newBatcher(TapConfig{BatchBytesMax: entry.HeaderBytes + 3*length}, newAckTracker())
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // begin waits for nobody
	for i := range 4 {
		err := b.begin(ctx, testGTID(uint64(i+1)), uint64(length))
		if i == 3 {
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("a fourth transaction fits: %v", err)
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := b.add(join(one...), false); err != nil {
			t.Fatal(err)
		}
		b.finish(Position{"q", uint64(i)})
	}
	batch, ok := b.take() // released by the wait
	if !ok || len(batch.GTIDs) != 3 {
		t.Fatalf("batch of %d transactions", len(batch.GTIDs))
	}
	// A longer one goes alone; a claim beyond all memory allocates nothing.
	if err := b.begin(ctx, testGTID(9), 1<<62); err != nil {
		t.Fatal(err)
	}
	if n := cap(b.growing.data); n > 2<<20 {
		t.Errorf("%d bytes for a claim", n)
	}
}

func TestBatcherTransactionTooLarge(t *testing.T) {
	b := newBatcher(TapConfig{BatchBytesMax: 100, EntryBytesMax: 1000}, newAckTracker())
	if err := b.begin(t.Context(), testGTID(1), 1000-entry.HeaderBytes+1); !errors.Is(err, ErrTransactionTooLarge) {
		t.Error(err)
	}
	if err := b.begin(t.Context(), testGTID(1), 0); err != nil {
		t.Fatal(err)
	}
	if err := b.add(make([]byte, 1000-entry.HeaderBytes), false); err != nil {
		t.Error(err)
	}
	if err := b.add(make([]byte, 1), false); !errors.Is(err, ErrTransactionTooLarge) {
		t.Error(err)
	}
}
