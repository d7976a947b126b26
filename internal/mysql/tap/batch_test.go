package tap

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/entry"
)

// batchItem is what a batcher was given: a transaction, or a rotation with the
// zero GTID.
type batchItem struct {
	body  []byte
	id    gtid.GTID
	known bool // the length was announced
}

// batchDriver gives a batcher random items and takes its batches.
type batchDriver struct {
	*batcher
	got []Batch
}

func (d *batchDriver) take() {
	if batch, ok := d.batcher.take(); ok {
		d.got = append(d.got, batch)
	}
}

// wait calls f, and if there is no room takes a batch and calls f again.
func (d *batchDriver) wait(t *rapid.T, f func() (bool, error)) {
	ok, err := f()
	if !ok && err == nil {
		d.take()
		ok, err = f()
	}
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
}

func (d *batchDriver) feed(t *rapid.T) []batchItem {
	var items []batchItem
	w := binlogtest.New("q")
	chance := func(percent int, what string) bool { return rapid.IntRange(1, 100).Draw(t, what) <= percent }
	for range rapid.IntRange(1, 30).Draw(t, "items") {
		if chance(10, "rotation") {
			item := batchItem{body: w.FormatDescription(1), known: true}
			d.wait(t, func() (bool, error) { return d.rotate(item.body, Position{w.File, w.Offset}, time.Time{}), nil })
			items = append(items, item)
			continue
		}
		events := w.Rows(rapid.IntRange(0, 1500).Draw(t, "bytes"))
		item := batchItem{binlogtest.Join(events...), binlogtest.GTID(w.Next - 1), chance(80, "known")}
		var length uint64
		if item.known {
			length = uint64(len(item.body))
		}
		d.wait(t, func() (bool, error) { return d.begin(item.id, length, time.Time{}) })
		for _, event := range events {
			if err := d.add(event); err != nil {
				t.Fatal(err)
			}
			if chance(10, "release") {
				d.release()
			}
			if chance(10, "take") {
				d.take()
			}
		}
		d.finish(Position{w.File, w.Offset})
		items = append(items, item)
	}
	d.release()
	d.take()
	return items
}

// However reading and taking interleave, the batches are the stream: whole transactions in
// order, nothing lost or twice, consecutive numbers. No entry is above the limit, unless it is
// a single transaction, or the length of its last transaction was not known.
func TestBatcherKeepsTheStream(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const bytesMax = 2000
		d := &batchDriver{batcher: &New(Config{BatchBytesMax: bytesMax, Term: 9}).batch}
		items := d.feed(t)
		for i, batch := range d.got {
			h, body, err := entry.Parse(batch.Data)
			if err != nil || h.Number != uint64(i+1) || batch.Number != h.Number || h.Term != 9 || int(h.Count) != len(batch.GTIDs) {
				t.Fatalf("batch %d: %+v, %v", i, h, err)
			}
			n := max(int(h.Count), 1)
			if n > len(items) {
				t.Fatalf("batch %d has %d items, %d were given", i, n, len(items))
			}
			var want Batch
			for j, item := range items[:n] {
				if rotation := item.id == (gtid.GTID{}); rotation != (h.Kind == entry.KindRotate) {
					t.Fatalf("batch %d of kind %v has item %v", i, h.Kind, item.id)
				} else if !rotation {
					want.GTIDs = append(want.GTIDs, item.id)
				}
				before := entry.HeaderBytes + len(want.Data)
				want.Data = append(want.Data, item.body...)
				if j > 0 && (before >= bytesMax || item.known && before+len(item.body) > bytesMax) {
					t.Fatalf("batch %d: item %d of %d bytes added to %d", i, j, len(item.body), before)
				}
			}
			if !bytes.Equal(body, want.Data) || batch.Bytes != len(body) ||
				cmp.Diff(want.GTIDs, batch.GTIDs, cmpopts.EquateEmpty()) != "" {
				t.Fatalf("batch %d with %v is not the stream; want %v", i, batch.GTIDs, want.GTIDs)
			}
			items = items[n:]
		}
		if len(items) != 0 {
			t.Fatalf("%d items did not come out", len(items))
		}
	})
}

// TestBatchHoldsNoSpareMemory: the log's cache keeps batches, and its bound counts their length.
func TestBatchHoldsNoSpareMemory(t *testing.T) {
	for _, c := range []struct{ count, bytes int }{{1, 10}, {1, 3000}, {1, 5000}, {20, 100}, {30, 1000}, {700, 1000}} {
		w := binlogtest.New("q")
		b := &New(Config{}).batch
		for range c.count {
			events := w.Rows(c.bytes)
			id := binlogtest.GTID(w.Next - 1)
			if ok, err := b.begin(id, uint64(len(binlogtest.Join(events...))), time.Time{}); !ok || err != nil {
				t.Fatal(ok, err)
			}
			for _, event := range events {
				if err := b.add(event); err != nil {
					t.Fatal(err)
				}
			}
			b.finish(Position{w.File, w.Offset})
		}
		b.release()
		grown := b.growing.data
		batch, ok := b.take()
		if !ok {
			t.Fatal("no batch")
		}
		held := cap(batch.Data)
		if &batch.Data[0] == &grown[0] {
			held = cap(grown)
		}
		if n := len(batch.Data); held > n+n/4+32 {
			t.Errorf("%d transactions of %d bytes: a batch of %d bytes holds %d", c.count, c.bytes, n, held)
		}
	}
}

// With lengths known the limit is exact.
func TestBatcherLimit(t *testing.T) {
	w := binlogtest.New("q")
	one := w.Rows(100)
	length := len(binlogtest.Join(one...))
	b := &New(Config{BatchBytesMax: entry.HeaderBytes + 3*length}).batch
	for i := range 4 {
		ok, err := b.begin(binlogtest.GTID(uint64(i+1)), uint64(length), time.Time{})
		if err != nil || ok != (i < 3) {
			t.Fatalf("transaction %d begins: %v, %v", i+1, ok, err)
		}
		if !ok {
			break
		}
		if err := b.add(binlogtest.Join(one...)); err != nil {
			t.Fatal(err)
		}
		b.finish(Position{"q", uint64(i)})
	}
	batch, ok := b.take() // released by the refusal
	if !ok || len(batch.GTIDs) != 3 {
		t.Fatalf("batch of %d transactions", len(batch.GTIDs))
	}
	// A longer transaction gets a batch of its own. An announced length beyond all memory
	// allocates nothing.
	if ok, err := b.begin(binlogtest.GTID(9), 1<<62, time.Time{}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if n := cap(b.growing.data); n > 2<<20 {
		t.Errorf("%d bytes for a claim", n)
	}
}

func TestBatcherTransactionTooLarge(t *testing.T) {
	b := &New(Config{BatchBytesMax: 100, EntryBytesMax: 1000}).batch
	if _, err := b.begin(binlogtest.GTID(1), 1000-entry.HeaderBytes+1, time.Time{}); !errors.Is(err, ErrTransactionTooLarge) {
		t.Error(err)
	}
	if ok, err := b.begin(binlogtest.GTID(1), 0, time.Time{}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := b.add(make([]byte, 1000-entry.HeaderBytes)); err != nil {
		t.Error(err)
	}
	if err := b.add(make([]byte, 1)); !errors.Is(err, ErrTransactionTooLarge) {
		t.Error(err)
	}
}

// The commit of a rotation acknowledges nothing: its position is in a file in which the source
// has no transaction yet.
func TestBatcherRotationHasNoAck(t *testing.T) {
	m := New(Config{BatchBytesMax: 100})
	if !m.batch.rotate([]byte("format"), Position{"q", 100}, time.Time{}) {
		t.Fatal("no room")
	}
	if batch, ok := m.TakeBatch(); !ok || batch.End != (Position{"q", 100}) {
		t.Fatalf("batch %+v", batch)
	}
	m.Committed(1)
	if p, ok := m.NextAck(); ok {
		t.Errorf("acknowledges %v", p)
	}
}
