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

// logReader shows the committed part of the log.
type logReader struct {
	*seglog.Log
	node    *consensus.Node
	damaged func(error)
}

func (a *Agent) reader() logReader { return logReader{a.log, a.node, a.damaged} }

// ReadCommitted implements replay.CommittedLog.
func (r logReader) ReadCommitted(index, bytesMax uint64) ([]seglog.Entry, bool, error) {
	found, ok, err := r.node.ReadCommitted(index, bytesMax)
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
	log      func() replay.CommittedLog
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
	prefix, err := replay.FindPrefix(s.log(), executed, s.durable())
	if err != nil {
		return nil, fmt.Errorf("find mysqld's place in the log: %w", err)
	}
	c, err := replay.NewCursor(s.log(), prefix)
	if err != nil {
		return nil, err
	}
	index, skip := c.Position()
	s.logger.Info("feed begins", "index", index, "skip", skip, "xa_again", prefix.Again.Count())
	return &feedCursor{c, s}, nil
}

// feedCursor says how to wait where a replay.Cursor has come to the end.
type feedCursor struct {
	*replay.Cursor
	source *feedSource
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
func (c *feedCursor) Close() {}
