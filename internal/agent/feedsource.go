package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/quorate/quorate/internal/consensus"
	"github.com/quorate/quorate/internal/entry"
	"github.com/quorate/quorate/internal/gtid"
	"github.com/quorate/quorate/internal/mysqlwire"
	"github.com/quorate/quorate/internal/replay"
	"github.com/quorate/quorate/internal/seglog"
)

// committedLog is the committed part of the log, as one reader has it, who closes it.
type committedLog interface {
	replay.CommittedLog
	Close()
}

// logReader implements committedLog.
type logReader struct {
	*seglog.Log
	committed
	entries *seglog.Reader
	damaged func(error)
}

func (a *Agent) logReader() logReader {
	return logReader{a.log, committed{a.node}, a.log.NewReader(), a.damaged}
}

// committed implements primary.Committed.
type committed struct{ node *consensus.Node }

func (c committed) Barrier(ctx context.Context) error { return c.node.Barrier(ctx) }
func (c committed) GTIDs() *gtid.Set                  { return c.node.Committed().GTIDs() }

// Close implements committedLog. The log itself goes on.
func (r logReader) Close() { r.entries.Close() }

// ReadCommitted implements replay.CommittedLog.
func (r logReader) ReadCommitted(index, bytesMax uint64) ([]seglog.Entry, bool, error) {
	found, ok, err := r.node.Committed().Read(r.entries, index, bytesMax)
	if errors.Is(err, seglog.ErrCorrupt) {
		r.damaged(err)
	}
	return found, ok, err
}

// ReadStage implements replay.CommittedLog.
func (r logReader) ReadStage(id entry.StageID) (io.ReadCloser, error) {
	stage, err := r.OpenStage(id)
	if err != nil {
		return nil, err
	}
	n, _ := stage.Bytes()
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(stage, 0, n), stage}, nil
}

// feedSource serves the local mysqld from the committed log (I4). Where to
// begin follows from what mysqld itself says that it has, never from the set
// in its request: that set may count transactions that only the relay log had.
type feedSource struct {
	log      func() committedLog
	changed  func() (consensus.Mark, <-chan struct{})
	executed func(context.Context) (*gtid.Set, error)
	durable  func() replay.Mark
	open     func(entry.StageID) (mysqlwire.StageEvents, error)
	logger   *slog.Logger
}

// Start implements mysqlwire.Source.
func (s *feedSource) Start(ctx context.Context, _ *gtid.Set) (mysqlwire.Cursor, error) {
	executed, err := s.executed(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask mysqld what it has: %w", err)
	}
	log := s.log()
	c, again, err := s.begin(log, executed)
	if err != nil {
		log.Close()
		return nil, err
	}
	index, skip := c.Position()
	s.logger.Info("feed begins", "index", index, "skip", skip, "xa_again", again)
	return &feedCursor{c, s, log}, nil
}

// begin returns a cursor from where mysqld's log ends on, and how many XA transactions it
// gets again.
func (s *feedSource) begin(log replay.CommittedLog, executed *gtid.Set) (c *replay.Cursor, again uint64, err error) {
	prefix, err := replay.FindPrefix(log, executed, s.durable())
	if err != nil {
		return nil, 0, fmt.Errorf("find mysqld's place in the log: %w", err)
	}
	c, err = replay.NewCursor(log, prefix)
	return c, prefix.Again.Count(), err
}

// feedCursor says how to wait where a replay.Cursor has come to the end.
type feedCursor struct {
	*replay.Cursor
	source *feedSource
	log    committedLog
}

// Next implements mysqlwire.Cursor.
func (c *feedCursor) Next() (*mysqlwire.Piece, <-chan struct{}, error) {
	_, changed := c.source.changed() // before the look, or a change could be missed
	p, ok, err := c.Cursor.Next()
	switch {
	case err != nil:
		return nil, nil, err
	case p.Staged != nil:
		events, err := c.source.open(p.Staged.ID)
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
func (c *feedCursor) Close() { c.log.Close() }
