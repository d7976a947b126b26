package readers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/feed"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/entry"
)

// Config is what a Source reads.
type Config struct {
	// Log opens the log; the caller closes it. Changed returns the committed mark, and a channel that
	// is closed at the next mark. GTIDs are the transactions up to that mark.
	Log     func() feed.Log
	Changed func() (consensus.Mark, <-chan struct{})
	GTIDs   func() *gtid.Set
	// Open opens a staged transaction.
	Open   func(entry.StageID) (mysqlwire.StageEvents, error)
	Logger *slog.Logger
}

// Source serves downstream readers from the committed log (I4). Readers get what they ask
// for: they are responsible for themselves. It asks no mysqld of the cluster, so a node without
// mysqld serves readers, too, except for their SQL.
type Source struct {
	cfg Config

	mu sync.Mutex
	// begun says how the log's segments begin, as far as that is committed.
	begun map[uint64]beginning
}

// NewSource returns a Source that reads what cfg names.
func NewSource(cfg Config) *Source { return &Source{cfg: cfg} }

// beginning is what the first entry of a segment is.
type beginning struct {
	boundary bool // it begins an epoch, or a binlog file of the primary
	staged   bool // it names a staged transaction
}

// GTIDs implements mysqlwire.ReaderSource.
func (s *Source) GTIDs() (executed, purged *gtid.Set) {
	log := s.cfg.Log()
	defer log.Close()
	return s.cfg.GTIDs(), log.Segments()[0].GTIDsBefore
}

// Files implements mysqlwire.ReaderSource. Every file that it lists begins at the beginning of a segment. A
// segment that begins with another entry continues the file before it. With decompression a file may end
// earlier (4 GiB); where, only reading it would tell, so the file behind that is not listed.
func (s *Source) Files() ([]mysqlwire.ReaderFile, error) {
	log := s.cfg.Log()
	defer log.Close()
	segments := log.Segments()
	var files []mysqlwire.ReaderFile
	begun := make(map[uint64]beginning, len(segments))
	behindStage := false
	for i, segment := range segments {
		first := segment.FirstIndex
		b, ok, err := s.begins(log, first)
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		begun[first] = b
		if i == 0 && !b.boundary || behindStage {
			files = append(files, mysqlwire.ReaderFile{Index: first, Before: segment.GTIDsBefore})
		}
		if b.boundary {
			files = append(files, mysqlwire.ReaderFile{Index: first + 1, Before: segment.GTIDsBefore})
		}
		files[len(files)-1].Bytes += segment.Bytes
		behindStage = b.staged
	}
	s.mu.Lock()
	s.begun = begun
	s.mu.Unlock()
	if len(files) == 0 { // nothing is committed yet
		files = append(files, mysqlwire.ReaderFile{Index: segments[0].FirstIndex, Before: segments[0].GTIDsBefore})
	}
	return files, nil
}

// begins tells how a segment begins; ok = its first entry is committed.
func (s *Source) begins(log replay.CommittedLog, first uint64) (b beginning, ok bool, err error) {
	s.mu.Lock()
	b, ok = s.begun[first]
	s.mu.Unlock()
	if ok {
		return b, true, nil
	}
	found, ok, err := log.ReadCommitted(first, 1)
	if !ok || err != nil {
		return beginning{}, false, purgedError(err, first)
	}
	if found[0].Type != 0 {
		return beginning{}, true, nil
	}
	h, _, err := entry.Parse(found[0].Data)
	if err != nil {
		return beginning{}, false, fmt.Errorf("parse entry %d: %w", first, err)
	}
	return beginning{h.Kind == entry.KindEpoch || h.Kind == entry.KindRotate, h.Kind == entry.KindStaged}, true, nil
}

// StartReader implements mysqlwire.ReaderSource.
func (s *Source) StartReader(_ context.Context, request mysqlwire.ReaderRequest) (mysqlwire.Cursor, error) {
	log := s.cfg.Log()
	first := log.Segments()[0].FirstIndex
	mark, _ := s.cfg.Changed()
	from := request.From
	if from == 0 {
		var err error
		if from, err = s.find(log, request.Exclude, mark.Index); err != nil {
			log.Close()
			return nil, err
		}
	}
	if from < first {
		log.Close()
		return nil, mysqlwire.ErrPurged(from)
	}
	s.cfg.Logger.Info("reader begins", "index", from, "committed", mark.Index)
	return &cursor{source: s, log: log, from: from, once: request.Once, until: mark.Index}, nil
}

// find returns where a reader with a set of transactions begins. As in a real source that is the
// newest file before which there is nothing that the reader lacks.
func (s *Source) find(log replay.CommittedLog, has *gtid.Set, committed uint64) (uint64, error) {
	segments := log.Segments()
	missing := segments[0].GTIDsBefore.Clone()
	missing.Subtract(has)
	if !missing.IsEmpty() {
		return 0, mysqlwire.ErrPurgedGTIDs(has, missing)
	}
	from := segments[0].FirstIndex
	for _, segment := range segments {
		if segment.FirstIndex <= committed && has.ContainsSet(segment.GTIDsBefore) {
			from = segment.FirstIndex
		}
	}
	b, ok, err := s.begins(log, from)
	if ok && b.boundary { // the entry itself has no transaction
		from++
	}
	return from, err
}

// cursor reads the committed log and waits for it. It may have to wait at its beginning,
// too: a reader that comes from another node may be ahead of this node.
type cursor struct {
	source *Source
	log    feed.Log
	from   uint64
	once   bool
	until  uint64         // where once ends
	cursor *replay.Cursor // nil until everything before from is committed
	begun  bool           // something was handed out
}

// Next implements mysqlwire.Cursor.
func (c *cursor) Next() (*mysqlwire.Piece, <-chan struct{}, error) {
	mark, changed := c.source.cfg.Changed() // before the look, or a change could be missed
	if c.cursor == nil && mark.Index+1 >= c.from {
		cursor, err := replay.NewCursor(logBefore{c.log, c.from}, replay.Prefix{Index: c.from})
		if err != nil {
			return nil, nil, err
		}
		c.cursor = cursor
	}
	p, err := c.look()
	if p == nil && err == nil && c.once {
		err = mysqlwire.ErrEndOfLog
	}
	return p, changed, err
}

// look returns the next piece if it is committed.
func (c *cursor) look() (*mysqlwire.Piece, error) {
	if c.cursor == nil {
		return nil, nil
	}
	next, _ := c.cursor.Position()
	if c.once && c.begun && next > c.until {
		return nil, nil
	}
	p, ok, err := c.cursor.Next()
	if !ok || err != nil {
		return nil, purgedError(err, next)
	}
	c.begun = true
	piece := &mysqlwire.Piece{Index: p.Index, FormatDescription: p.FormatDescription, Events: p.Events}
	if p.Staged != nil {
		if piece.Stage, err = c.source.cfg.Open(p.Staged.ID); err != nil {
			return nil, purgedError(fmt.Errorf("read staged transaction of entry %d: %w", p.Index, err), p.Index)
		}
	}
	return piece, nil
}

// Close implements mysqlwire.Cursor.
func (c *cursor) Close() { c.log.Close() }

// logBefore shows the segments that begin before an index, but at least one. So the format at the
// index is the format of the entry before, which is committed, and not a format that the entry
// itself may bring. So a file begins with the same bytes on every node, whenever it is read.
type logBefore struct {
	replay.CommittedLog
	index uint64
}

// Segments implements replay.CommittedLog.
func (l logBefore) Segments() []seglog.SegmentInfo {
	segments := l.CommittedLog.Segments()
	n := 1
	for n < len(segments) && segments[n].FirstIndex < l.index {
		n++
	}
	return segments[:n]
}

func purgedError(err error, index uint64) error {
	if errors.Is(err, seglog.ErrCompacted) {
		return mysqlwire.ErrPurged(index)
	}
	return err
}
