package mysqlwire

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/entry"
	"github.com/quorate/quorate/internal/gtid"
)

// batchBytesMaxDefault is TapConfig.BatchBytesMax if that is 0. Larger batches
// do not save fsyncs any more, and delay the first transaction in them.
const batchBytesMaxDefault = 1 << 20

// batchBytesMin is the room a batch starts with: one small transaction.
const batchBytesMin = 4 << 10

// ErrTransactionTooLarge is returned for a transaction that does not fit into
// an entry of TapConfig.EntryBytesMax bytes.
var ErrTransactionTooLarge = errors.New("mysqlwire: transaction too large for an entry")

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
	// Data is the whole entry, header included: KindTransactions or KindRotate.
	// The tap keeps no reference to it.
	Data []byte
	// Number counts the tap's batches of either kind from 1.
	Number uint64
	// GTIDs are the batch's transactions in binlog order; none for a rotation.
	GTIDs []gtid.GTID
	// End is the binlog position after the batch's last event.
	End Position
	// ACL says that a statement of the batch changes accounts or privileges:
	// grants are to be scanned again before the batch is acknowledged.
	ACL bool
	// Bytes is the length of the events, without the entry's header.
	Bytes int
	// ReceivedAt is when the batch's first event arrived, with the monotonic
	// clock reading.
	ReceivedAt time.Time
}

// batcher is the one growing batch between the tap's reader, which appends,
// and its proposer, which takes. Memory is bounded by one batch of
// max(bytesMax, one transaction) here plus what propose holds; when it is full
// the reader waits, and mysqld's dump thread with it.
type batcher struct {
	term          uint64
	bytesMax      int
	entryBytesMax int // 0: no limit
	acks          *ackTracker
	// ready tells the proposer that take may succeed, room tells the reader
	// that a batch was taken. One token each is enough: both sides look again.
	ready, room chan struct{}

	mu      sync.Mutex
	growing growingBatch
	taken   uint64 // number of the batch taken last
	// flush is set once the growing batch may be taken: the reader has nothing
	// more at hand, or the batch is full.
	flush bool
}

// growingBatch is a batch in the making. data[:complete] is the header's room
// and whole transactions; behind it is the beginning of one more.
type growingBatch struct {
	kind     entry.Kind
	data     []byte
	complete int
	count    int // whole transactions, the first count of gtids
	gtids    []gtid.GTID
	// acl is true for a statement in the whole transactions; tailACL for one
	// in the beginning behind them.
	acl, tailACL bool
	end          Position
	receivedAt   time.Time
}

func newBatcher(cfg TapConfig, acks *ackTracker) *batcher {
	return &batcher{
		term:          cfg.Term,
		bytesMax:      cfg.BatchBytesMax,
		entryBytesMax: cfg.EntryBytesMax,
		acks:          acks,
		ready:         make(chan struct{}, 1),
		room:          make(chan struct{}, 1),
	}
}

func (g *growingBatch) empty() bool { return g.complete <= entry.HeaderBytes }

// begin opens a transaction of the given length in bytes (0: not known). It
// waits until the batch has room for it: an entry is longer than bytesMax only
// if it is a single transaction.
func (b *batcher) begin(ctx context.Context, id gtid.GTID, bytes uint64) error {
	if b.entryBytesMax > 0 && bytes > uint64(b.entryBytesMax-entry.HeaderBytes) {
		return fmt.Errorf("%w: %v has %d bytes", ErrTransactionTooLarge, id, bytes)
	}
	err := b.lockWhen(ctx, func(g *growingBatch) bool {
		room := uint64(max(b.bytesMax-len(g.data), 0))
		return g.empty() || g.kind == entry.KindTransactions && max(bytes, 1) <= room
	})
	if err != nil {
		return err
	}
	defer b.mu.Unlock()
	b.growing.open(entry.KindTransactions, bytes)
	b.growing.gtids = append(b.growing.gtids, id)
	return nil
}

// open gives an empty batch its kind, header room and time of birth.
func (g *growingBatch) open(kind entry.Kind, bytes uint64) {
	if len(g.data) > 0 {
		return
	}
	g.kind, g.receivedAt = kind, time.Now()
	// A length is a claim until the bytes are there: beyond 1 MiB grow with
	// them.
	capacity := entry.HeaderBytes + int(min(max(bytes, batchBytesMin), 1<<20))
	g.data = make([]byte, entry.HeaderBytes, capacity)
	g.complete = entry.HeaderBytes
}

// lockWhen returns with b.mu held once cond holds for the growing batch. Until
// then it has the proposer take what is there. It is called between
// transactions.
func (b *batcher) lockWhen(ctx context.Context, cond func(*growingBatch) bool) error {
	for {
		b.mu.Lock()
		if cond(&b.growing) {
			return nil
		}
		b.mu.Unlock()
		b.release()
		select {
		case <-b.room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// add appends an event of the open transaction.
func (b *batcher) add(event []byte, acl bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := &b.growing
	if bytes := len(g.data) - g.complete + len(event); b.entryBytesMax > 0 && bytes > b.entryBytesMax-entry.HeaderBytes {
		return fmt.Errorf("%w: %v has over %d bytes", ErrTransactionTooLarge, g.gtids[len(g.gtids)-1], b.entryBytesMax)
	}
	g.data = append(g.data, event...)
	g.tailACL = g.tailACL || acl
	return nil
}

// finish closes the open transaction, whose last event ends at end.
func (b *batcher) finish(end Position) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := &b.growing
	g.complete, g.count, g.end = len(g.data), len(g.gtids), end
	g.acl, g.tailACL = g.acl || g.tailACL, false
	b.acks.received(b.taken+1, end)
}

// rotate makes a batch of its own of the next binlog file's
// FORMAT_DESCRIPTION event.
func (b *batcher) rotate(ctx context.Context, formatDescription []byte, at Position) error {
	if err := b.lockWhen(ctx, (*growingBatch).empty); err != nil {
		return err
	}
	g := &b.growing
	g.open(entry.KindRotate, uint64(len(formatDescription)))
	g.data = append(g.data, formatDescription...)
	g.complete, g.end = len(g.data), at
	b.acks.received(b.taken+1, Position{})
	b.mu.Unlock()
	b.release()
	return nil
}

// release lets the proposer have the whole transactions of the growing batch.
func (b *batcher) release() {
	b.mu.Lock()
	b.flush = !b.growing.empty()
	flush := b.flush
	b.mu.Unlock()
	if flush {
		signal(b.ready)
	}
}

// take returns the growing batch if it was released. The beginning of an
// unfinished transaction behind it opens the next one.
func (b *batcher) take() (Batch, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.flush {
		return Batch{}, false
	}
	g := b.growing
	b.growing, b.flush = growingBatch{}, false
	if tail := g.data[g.complete:]; len(g.gtids) > g.count {
		b.growing.open(entry.KindTransactions, uint64(len(tail)))
		b.growing.data = append(b.growing.data, tail...)
		b.growing.gtids = slices.Clone(g.gtids[g.count:])
		b.growing.tailACL = g.tailACL
	}
	b.taken++
	b.acks.handOut(b.taken)
	data := g.data[:g.complete:g.complete]
	entry.SetHeader(data, entry.Header{Kind: g.kind, Count: uint32(g.count), Term: b.term, Number: b.taken})
	signal(b.room)
	return Batch{
		Data:       data,
		Number:     b.taken,
		GTIDs:      g.gtids[:g.count:g.count],
		End:        g.end,
		ACL:        g.acl,
		Bytes:      len(data) - entry.HeaderBytes,
		ReceivedAt: g.receivedAt,
	}, true
}

// signal leaves a token in a channel of capacity 1 without waiting.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
