package tap

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/entry"
)

// batchBytesMaxDefault is Config.BatchBytesMax if that is 0. Larger batches do
// not save fsyncs any more, and delay the first transaction in them.
const batchBytesMaxDefault = 1 << 20

// batchBytesMin is the capacity that a batch starts with: one small transaction.
const batchBytesMin = 4 << 10

// ErrTransactionTooLarge is returned for a transaction that does not fit into
// an entry of Config.EntryBytesMax bytes.
var ErrTransactionTooLarge = errors.New("tap: transaction too large for an entry")

// Position is a place in the source's binlog: a base name without a path and a
// byte offset. Unlike the 32-bit field of an event's header the offset does
// not wrap at 4 GiB.
type Position struct {
	File   string
	Offset uint64
}

// String formats the position as file:offset.
func (p Position) String() string { return fmt.Sprintf("%s:%d", p.File, p.Offset) }

// Batch is one entry, ready to be proposed.
type Batch struct {
	// Data is the whole entry, header included: KindTransactions, KindRotate or
	// KindStaged. The tap keeps no reference to it.
	Data []byte
	// Staged names the stage that holds the transaction of a KindStaged entry.
	Staged *entry.StageID
	// Number counts the tap's batches of all kinds from 1.
	Number uint64
	// GTIDs are the batch's transactions in binlog order; none for a rotation.
	GTIDs []gtid.GTID
	// End is the binlog position after the batch's last event.
	End Position
	// Bytes is the length of the events, without the entry's header. For a staged transaction
	// it counts the events in the stage.
	Bytes int
	// ReceivedAt is when the batch's first event arrived.
	ReceivedAt time.Time
}

// batcher has the one growing batch, between the reader of the stream and the proposer. Memory
// is bounded by one batch of max(bytesMax, one transaction). A full batch accepts nothing more
// until it is taken.
type batcher struct {
	term          uint64
	bytesMax      int
	entryBytesMax int // 0: no limit
	acks          *ackQueue

	growing growingBatch
	taken   uint64 // number of the batch taken last
	// flush is set once the growing batch may be taken: the reader has nothing
	// more at hand, or the batch is full.
	flush bool
}

// growingBatch is a batch in the making. data[:complete] is the header's room and whole
// transactions; behind that is the beginning of one more transaction.
type growingBatch struct {
	kind     entry.Kind
	bytes    uint64 // of a staged transaction
	data     []byte
	complete int
	count    int // whole transactions, the first count of gtids
	gtids    []gtid.GTID
	end      Position
	// receivedAt is when the batch's first event arrived, begunAt when the first event of the
	// newest transaction did.
	receivedAt, begunAt time.Time
}

func (g *growingBatch) empty() bool { return g.complete <= entry.HeaderBytes }

// begin opens a transaction of the given length in bytes (0: not known). It
// returns false if the batch has no room for it: an entry is longer than
// bytesMax only if it is a single transaction.
func (b *batcher) begin(id gtid.GTID, bytes uint64, now time.Time) (bool, error) {
	if b.entryBytesMax > 0 && bytes > uint64(b.entryBytesMax-entry.HeaderBytes) {
		return false, fmt.Errorf("%w: %v has %d bytes", ErrTransactionTooLarge, id, bytes)
	}
	g := &b.growing
	room := uint64(max(b.bytesMax-len(g.data), 0))
	if !g.empty() && (g.kind != entry.KindTransactions || max(bytes, 1) > room) {
		b.release()
		return false, nil
	}
	g.open(entry.KindTransactions, bytes, now)
	g.gtids = append(g.gtids, id)
	g.begunAt = now
	return true, nil
}

// open gives an empty batch its kind, header room and time of birth.
func (g *growingBatch) open(kind entry.Kind, bytes uint64, now time.Time) {
	if len(g.data) > 0 {
		return
	}
	g.kind, g.receivedAt = kind, now
	// The length is only announced. Above 1 MiB the buffer grows with the bytes that arrive.
	capacity := entry.HeaderBytes + int(min(max(bytes, batchBytesMin), 1<<20))
	g.data = make([]byte, entry.HeaderBytes, capacity)
	g.complete = entry.HeaderBytes
}

// add appends an event of the open transaction.
func (b *batcher) add(event []byte) error {
	g := &b.growing
	if bytes := len(g.data) - g.complete + len(event); b.entryBytesMax > 0 && bytes > b.entryBytesMax-entry.HeaderBytes {
		return fmt.Errorf("%w: %v has over %d bytes", ErrTransactionTooLarge, g.gtids[len(g.gtids)-1], b.entryBytesMax)
	}
	g.data = append(g.data, event...)
	return nil
}

// finish closes the open transaction, whose last event ends at end.
func (b *batcher) finish(end Position) {
	g := &b.growing
	g.complete, g.count, g.end = len(g.data), len(g.gtids), end
	b.acks.received(b.taken+1, end)
}

// rotate puts the FORMAT_DESCRIPTION event of the next binlog file into a batch of its own. It
// returns false if another batch is in its way.
func (b *batcher) rotate(formatDescription []byte, at Position, now time.Time) bool {
	g := &b.growing
	if !g.empty() {
		b.release()
		return false
	}
	g.open(entry.KindRotate, uint64(len(formatDescription)), now)
	g.data = append(g.data, formatDescription...)
	g.complete, g.end = len(g.data), at
	b.acks.received(b.taken+1, Position{})
	b.release()
	return true
}

// beginStaged reserves the growing batch, and so the next number, for a staged transaction.
// Nothing is added to that batch until finishStaged. It returns false if another batch is in
// its way.
func (b *batcher) beginStaged(id gtid.GTID, now time.Time) bool {
	g := &b.growing
	if !g.empty() {
		b.release()
		return false
	}
	g.gtids, g.receivedAt = []gtid.GTID{id}, now
	return true
}

// finishStaged makes the batch that names a staged transaction.
func (b *batcher) finishStaged(s *Stage, end Position) {
	g := &b.growing
	g.kind, g.bytes, g.count, g.end = entry.KindStaged, s.Bytes, 1, end
	g.data = entry.EncodeStaged(entry.Staged{
		ID: entry.StageID{Term: b.term, Number: b.taken + 1}, Bytes: s.Bytes, CRC: s.CRC,
		GTIDEvent: s.gtidEvent, EndEvent: s.endEvent, Rows: s.rows,
	})
	g.complete = len(g.data)
	b.acks.received(b.taken+1, end)
	b.release()
}

// release lets the whole transactions of the growing batch be taken.
func (b *batcher) release() { b.flush = !b.growing.empty() }

// take returns the growing batch if it was released. The beginning of an unfinished transaction
// behind it opens the next batch.
func (b *batcher) take() (Batch, bool) {
	if !b.flush {
		return Batch{}, false
	}
	g := b.growing
	b.growing, b.flush = growingBatch{}, false
	if tail := g.data[g.complete:]; len(g.gtids) > g.count {
		b.growing.open(entry.KindTransactions, uint64(len(tail)), g.begunAt)
		b.growing.data = append(b.growing.data, tail...)
		b.growing.gtids = slices.Clone(g.gtids[g.count:])
	}
	b.taken++
	b.acks.handOut(b.taken)
	data := g.data[:g.complete:g.complete]
	if spare := cap(g.data) - len(data); spare > len(data)/4 {
		data = slices.Clone(data) // the log's cache keeps it, and counts its length
	}
	entry.SetHeader(data, entry.Header{Kind: g.kind, Count: uint32(g.count), Term: b.term, Number: b.taken})
	batch := Batch{
		Data:       data,
		Number:     b.taken,
		GTIDs:      g.gtids[:g.count:g.count],
		End:        g.end,
		Bytes:      len(data) - entry.HeaderBytes,
		ReceivedAt: g.receivedAt,
	}
	if g.kind == entry.KindStaged {
		batch.Staged, batch.Bytes = &entry.StageID{Term: b.term, Number: b.taken}, int(g.bytes)
	}
	return batch, true
}
