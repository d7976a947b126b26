package feed

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/entry"
)

// Log is the committed part of the log for one reader. The reader closes it.
type Log interface {
	replay.CommittedLog
	Close()
}

// Source serves the local mysqld from the committed log (I4). Where the feed begins follows
// from mysqld's @@gtid_executed, never from the set in its request: that set may include
// transactions that only the relay log had. It implements mysqlwire.Source. All fields are
// required.
type Source struct {
	Log func() Log
	// Changed returns the committed mark, and a channel that is closed when more is committed.
	Changed func() (consensus.Mark, <-chan struct{})
	// Executed asks mysqld for its @@gtid_executed.
	Executed func(context.Context) (*gtid.Set, error)
	// Durable is the newest durable mark.
	Durable func() replay.Mark
	// Open opens a staged transaction of the log.
	Open   func(entry.StageID) (mysqlwire.StageEvents, error)
	Logger *slog.Logger
}

// Start implements mysqlwire.Source.
func (s *Source) Start(ctx context.Context, _ *gtid.Set) (mysqlwire.Cursor, error) {
	executed, err := s.Executed(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask mysqld what it has: %w", err)
	}
	log := s.Log()
	c, again, err := s.begin(log, executed)
	if err != nil {
		log.Close()
		return nil, err
	}
	index, skip := c.Position()
	s.Logger.Info("feed begins", "index", index, "skip", skip, "xa_again", again)
	return &cursor{c, s, log}, nil
}

// begin returns a cursor that starts where the transactions of mysqld end, and how many XA
// transactions mysqld gets again.
func (s *Source) begin(log replay.CommittedLog, executed *gtid.Set) (c *replay.Cursor, again uint64, err error) {
	prefix, err := replay.FindPrefix(log, executed, s.Durable())
	if err != nil {
		return nil, 0, fmt.Errorf("find mysqld's place in the log: %w", err)
	}
	c, err = replay.NewCursor(log, prefix)
	return c, prefix.Again.Count(), err
}

// cursor adds to a replay.Cursor how to wait at the end of the log.
type cursor struct {
	*replay.Cursor
	source *Source
	log    Log
}

// Next implements mysqlwire.Cursor.
func (c *cursor) Next() (*mysqlwire.Piece, <-chan struct{}, error) {
	_, changed := c.source.Changed() // before the read, or a change could be missed
	p, ok, err := c.Cursor.Next()
	switch {
	case err != nil:
		return nil, nil, err
	case p.Staged != nil:
		events, err := c.source.Open(p.Staged.ID)
		if err != nil {
			return nil, nil, fmt.Errorf("read staged transaction of entry %d: %w", p.Index, err)
		}
		return &mysqlwire.Piece{Stage: events}, nil, nil
	case ok:
		return &mysqlwire.Piece{FormatDescription: p.FormatDescription, Events: p.Events}, nil, nil
	}
	return nil, changed, nil
}

// Close implements mysqlwire.Cursor.
func (c *cursor) Close() { c.log.Close() }

// Open opens a staged transaction of a log. damaged is called where its bytes turn out to be
// damaged.
func Open(log *seglog.Log, id entry.StageID, damaged func(error)) (mysqlwire.StageEvents, error) {
	r, err := log.OpenStage(id)
	if err != nil {
		return nil, err
	}
	return stageEvents{r, damaged}, nil
}

// stageEvents is a staged transaction for the feed.
type stageEvents struct {
	*seglog.StageReader
	damaged func(error)
}

// Damaged implements mysqlwire.StageEvents.
func (s stageEvents) Damaged(err error) { s.damaged(s.StageReader.Damaged(err)) }

// Size implements mysqlwire.StageEvents.
func (s stageEvents) Size() int64 {
	n, _ := s.Bytes()
	return n
}
