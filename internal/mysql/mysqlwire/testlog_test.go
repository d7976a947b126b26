package mysqlwire

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/entry"
)

// testLog is a committed log in memory, as a feed's Source.
type testLog struct {
	mu     sync.Mutex
	pieces []Piece
	// grown is closed and replaced when pieces grow or fail is set.
	grown    chan struct{}
	startErr error
	fail     error
	starts   []*gtid.Set
	closed   int
	// opened, if set, counts the stages that cursors gave out.
	opened *atomic.Int32
}

func newTestLog(pieces ...Piece) *testLog {
	return &testLog{pieces: pieces, grown: make(chan struct{})}
}

func (l *testLog) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.grown)
	l.grown = make(chan struct{})
}

func (l *testLog) append(p Piece) { l.change(func() { l.pieces = append(l.pieces, p) }) }

// appendBatch appends what a tap received.
func (l *testLog) appendBatch(b Batch) {
	_, body, _ := entry.Parse(b.Data)
	if entry.Kind(b.Data[0]) == entry.KindRotate {
		l.append(Piece{FormatDescription: body})
		return
	}
	l.append(Piece{Events: body})
}

// appendStaged is appendBatch for a tap that stages.
func (l *testLog) appendStaged(b Batch, stages *memoryStages) {
	if b.Staged == nil {
		l.appendBatch(b)
		return
	}
	body, _ := stages.stage(*b.Staged)
	l.append(Piece{Stage: &countedStage{bytes.NewReader(body), &atomic.Int32{}}})
}

func (l *testLog) counts() (starts, closed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.starts), l.closed
}

func (l *testLog) Start(_ context.Context, requested *gtid.Set) (Cursor, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starts = append(l.starts, requested)
	if l.startErr != nil {
		return nil, l.startErr
	}
	return &testCursor{log: l, skip: requested}, nil
}

type testCursor struct {
	log  *testLog
	at   int
	skip *gtid.Set
}

func (c *testCursor) Next() (*Piece, <-chan struct{}, error) {
	c.log.mu.Lock()
	grown, fail := c.log.grown, c.log.fail
	var p Piece
	ok := c.at < len(c.log.pieces)
	if ok {
		p = c.log.pieces[c.at]
		c.at++
	}
	c.log.mu.Unlock()
	if !ok {
		return nil, grown, fail
	}
	p.Events = c.without(p.Events)
	if p.Stage != nil && c.log.opened != nil {
		c.log.opened.Add(1)
	}
	return &p, nil, nil
}

// without removes the transactions that the replica has.
func (c *testCursor) without(events []byte) []byte {
	var out []byte
	for transaction, err := range binlog.Transactions(events) {
		if err != nil {
			return events // a test's made-up bytes
		}
		if !c.skip.Contains(transaction.GTID) {
			out = append(out, transaction.Raw...)
		}
	}
	return slices.Clip(out)
}

func (c *testCursor) Close() {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	c.log.closed++
}
