package agent

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/quorate/quorate/internal/binlog"
	"github.com/quorate/quorate/internal/consensus"
	"github.com/quorate/quorate/internal/entry"
	"github.com/quorate/quorate/internal/gtid"
	"github.com/quorate/quorate/internal/mysqlwire"
	"github.com/quorate/quorate/internal/seglog"
)

// logReader shows the committed part of the log.
type logReader struct {
	*seglog.Log
	node *consensus.Node
}

// ReadCommitted implements committedLog.
func (r logReader) ReadCommitted(index, bytesMax uint64) ([]seglog.Entry, bool, error) {
	return r.node.ReadCommitted(index, bytesMax)
}

// feedSource serves the local mysqld from the committed log (I4). Where to
// begin follows from what mysqld itself says that it has, never from the set
// in its request: that set may count transactions that only the relay log had.
type feedSource struct {
	log      func() committedLog
	changed  func() (consensus.Mark, <-chan struct{})
	executed func(context.Context) (*gtid.Set, error)
	logger   *slog.Logger
}

// Start implements mysqlwire.Source.
func (s *feedSource) Start(ctx context.Context, _ *gtid.Set) (mysqlwire.Cursor, error) {
	executed, err := s.executed(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask mysqld what it has: %w", err)
	}
	mark, err := findPrefix(s.log(), executed)
	if err != nil {
		return nil, fmt.Errorf("find mysqld's place in the log: %w", err)
	}
	c := &logCursor{source: s, next: max(mark.Index, s.log().FirstIndex()), skip: mark.Skip}
	if c.format, err = s.formatAt(c.next); err != nil {
		return nil, err
	}
	s.logger.Info("feed begins", "index", c.next, "skip", c.skip)
	return c, nil
}

// formatAt returns the FORMAT_DESCRIPTION in force at an index: that of the
// nearest epoch or rotate entry at or before it, with which a segment begins.
// nil before the first epoch.
func (s *feedSource) formatAt(index uint64) ([]byte, error) {
	segments := s.log().Segments()
	for i := len(segments) - 1; i >= 0; i-- {
		if segments[i].FirstIndex > index {
			continue
		}
		found, ok, err := s.log().ReadCommitted(segments[i].FirstIndex, 1)
		if err != nil {
			return nil, fmt.Errorf("read the format of segment %d: %w", segments[i].FirstIndex, err)
		}
		if !ok {
			continue
		}
		if fd, err := formatOf(found[0]); err != nil || fd != nil {
			return fd, err
		}
	}
	return nil, nil
}

// formatOf returns the FORMAT_DESCRIPTION that an entry carries, or nil.
func formatOf(e seglog.Entry) ([]byte, error) {
	if e.Type != 0 {
		return nil, nil
	}
	h, body, err := entry.Parse(e.Data)
	if err != nil {
		return nil, fmt.Errorf("parse entry %d: %w", e.Index, err)
	}
	switch h.Kind {
	case entry.KindRotate:
		return body, nil
	case entry.KindEpoch:
		epoch, err := entry.ParseEpoch(h, body)
		return epoch.FormatDescription, err
	}
	return nil, nil
}

// logCursor reads the committed log for one feed session.
type logCursor struct {
	source *feedSource
	next   uint64 // index of the next entry
	skip   int    // transactions of that entry that mysqld has already
	format []byte // to be sent before the next events; nil = sent
	read   []seglog.Entry
}

// Next implements mysqlwire.Cursor.
func (c *logCursor) Next(ctx context.Context) (mysqlwire.Piece, error) {
	for {
		if c.format != nil {
			p := mysqlwire.Piece{FormatDescription: c.format}
			c.format = nil
			return p, nil
		}
		e, err := c.entry(ctx)
		if err != nil {
			return mysqlwire.Piece{}, err
		}
		if fd, err := formatOf(e); err != nil {
			return mysqlwire.Piece{}, err
		} else if fd != nil {
			c.format = fd
			continue
		}
		events, err := c.events(e)
		if err != nil {
			return mysqlwire.Piece{}, err
		}
		if len(events) > 0 {
			return mysqlwire.Piece{Events: events}, nil
		}
	}
}

// events returns the entry's transactions without the ones to skip.
func (c *logCursor) events(e seglog.Entry) ([]byte, error) {
	skip := c.skip
	c.skip = 0
	if e.Type != 0 {
		return nil, nil
	}
	h, body, err := entry.Parse(e.Data)
	if err != nil || h.Kind != entry.KindTransactions {
		return nil, err
	}
	if skip == 0 {
		return body, nil
	}
	for tx, err := range binlog.Transactions(body) {
		if err != nil {
			return nil, fmt.Errorf("read transactions of entry %d: %w", e.Index, err)
		}
		if skip == 0 {
			break
		}
		body = body[len(tx.Raw):]
		skip--
	}
	return body, nil
}

// entry returns the next committed entry and waits for it.
func (c *logCursor) entry(ctx context.Context) (seglog.Entry, error) {
	for len(c.read) == 0 {
		_, changed := c.source.changed()
		found, ok, err := c.source.log().ReadCommitted(c.next, readBytesMax)
		if err != nil {
			return seglog.Entry{}, err
		}
		if ok {
			c.read = found
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return seglog.Entry{}, ctx.Err()
		}
	}
	e := c.read[0]
	if e.Index != c.next {
		return seglog.Entry{}, fmt.Errorf("log returned entry %d for %d: %w", e.Index, c.next, io.ErrUnexpectedEOF)
	}
	c.read = c.read[1:]
	c.next++
	return e, nil
}

// Close implements mysqlwire.Cursor.
func (c *logCursor) Close() {}
