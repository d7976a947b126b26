package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/feed"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/sys/metrics"
)

// readerPasswordBytesMax bounds how much of a password file is read.
const readerPasswordBytesMax = 1 << 10

// buildReaders makes the feed for downstream readers; nil if there is none.
func (a *Agent) buildReaders() (*mysqlwire.Feed, error) {
	if a.cfg.Feed.ReadersListen == "" {
		return nil, nil
	}
	a.readersTLS = a.newReadersTLS()
	var accounts []mysqlwire.Reader
	for _, r := range a.cfg.Readers {
		account, err := readerAccount(r)
		if err != nil {
			return nil, err
		}
		accounts = append(accounts, account)
	}
	return mysqlwire.NewFeed(mysqlwire.FeedConfig{
		Listen: a.cfg.Feed.ReadersListen, ServerID: a.serverID(serverIDOfReaders),
		ServerUUID: func() string { return a.derivedUUID(uuidOfReaders) }, ServerVersion: a.binlogVersion,
		Readers: &mysqlwire.ReadersConfig{
			Accounts: accounts, ConnectionsMax: a.cfg.Feed.ReadersMax, Certificate: a.readersTLS.Certificate,
			Source: &readerSource{
				log:     func() feed.Log { return a.logReader() },
				changed: func() (consensus.Mark, <-chan struct{}) { return a.Raft.Committed().Changed() },
				gtids:   a.committedGTIDs, open: a.openEvents, logger: a.logger,
			},
		},
		Logger: a.logger.With("port", "readers"),
	})
}

// listenReaders opens the port for downstream readers, if there is one. It stays open while the node joins,
// or heals its log, though nobody serves it.
func (a *Agent) listenReaders() (err error) {
	if a.readers != nil {
		return nil
	}
	if a.readers, err = a.buildReaders(); err != nil || a.readers == nil {
		return err
	}
	if err := a.readers.Listen(); err != nil {
		return fmt.Errorf("open readers' port (feed.readers_listen): %w", err)
	}
	return nil
}

// runReaders serves downstream readers until ctx ends.
func (a *Agent) runReaders(ctx context.Context) error {
	if a.readers == nil {
		return nil
	}
	a.readersTLS.look(ctx)
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return a.readersTLS.run(ctx) })
	both.Go(func() error {
		if err := a.readers.Run(ctx); !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	})
	return both.Wait()
}

// readerMetrics are the counters of each downstream reader.
func (p provider) readerMetrics() (m []metrics.Sample) {
	if p.readers == nil {
		return nil
	}
	f := p.readers.Stats()
	m = []metrics.Sample{
		metrics.Of("quorate_readers_connections", f.Connections),
		metrics.Of("quorate_readers_refused_total", f.Refused),
		metrics.Of("quorate_readers_expelled_total", f.Expelled),
	}
	for _, r := range p.readers.ReaderStats() {
		name := r.User
		m = append(m,
			metrics.Of("quorate_reader_dumps", r.Dumps, name),
			metrics.Of("quorate_reader_dumps_total", r.DumpsTotal, name),
			metrics.Of("quorate_reader_refused_total", r.Refused, name),
			metrics.Of("quorate_reader_transactions_total", r.Transactions, name),
			metrics.Of("quorate_reader_events_total", r.Events, name),
			metrics.Of("quorate_reader_bytes_total", r.Bytes, name),
			metrics.Of("quorate_reader_index", r.Index, name))
	}
	return m
}

func readerAccount(r config.Reader) (mysqlwire.Reader, error) {
	account := mysqlwire.Reader{User: r.User, Allow: r.Allow, Decompress: r.Decompress, PasswordHash: mysqlwire.PasswordHash(r.PasswordHash)}
	if r.PasswordFile == "" {
		return account, nil
	}
	info, err := os.Stat(r.PasswordFile)
	if err != nil {
		return account, fmt.Errorf("read password of reader %q: %w", r.User, err)
	}
	if info.Mode().Perm()&0o007 != 0 {
		return account, fmt.Errorf("read password of reader %q: everybody may read %s: chmod o= it", r.User, r.PasswordFile)
	}
	if info.Size() > readerPasswordBytesMax {
		return account, fmt.Errorf("read password of reader %q: %s has %d bytes", r.User, r.PasswordFile, info.Size())
	}
	text, err := os.ReadFile(r.PasswordFile)
	if err != nil {
		return account, fmt.Errorf("read password of reader %q: %w", r.User, err)
	}
	password := strings.TrimRight(string(text), "\r\n")
	if password == "" {
		return account, fmt.Errorf("read password of reader %q: %s is empty", r.User, r.PasswordFile)
	}
	account.PasswordHash = mysqlwire.HashPassword(password)
	return account, nil
}

// binlogVersion is the version of the server that wrote the newest part of the
// log: readers take it for the source's.
func (a *Agent) binlogVersion() string {
	segments := a.log.Segments()
	format, err := binlog.ParseFormatDescription(segments[len(segments)-1].FormatDescription)
	if err != nil { // the log verified it
		a.logger.Error("the log's format cannot be read", "error", err)
		return ""
	}
	return format.ServerVersion
}

// readerSource serves downstream readers from the committed log (I4). Readers get what they ask
// for: they are responsible for themselves. It asks no mysqld of the cluster, so a node without
// mysqld serves readers, too.
type readerSource struct {
	log     func() feed.Log
	changed func() (consensus.Mark, <-chan struct{})
	gtids   func() *gtid.Set
	open    func(entry.StageID) (mysqlwire.StageEvents, error)
	logger  *slog.Logger

	mu sync.Mutex
	// begun says how the log's segments begin, as far as that is committed.
	begun map[uint64]beginning
}

// beginning is what the first entry of a segment is.
type beginning struct {
	boundary bool // it begins an epoch, or a binlog file of the primary
	staged   bool // it names a staged transaction
}

// GTIDs implements mysqlwire.ReaderSource.
func (s *readerSource) GTIDs() (executed, purged *gtid.Set) {
	log := s.log()
	defer log.Close()
	return s.gtids(), log.Segments()[0].GTIDsBefore
}

// Files implements mysqlwire.ReaderSource. Every file begins at the beginning of a segment. Where
// a segment begins elsewhere, its file goes on.
func (s *readerSource) Files() ([]mysqlwire.ReaderFile, error) {
	log := s.log()
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
			files = append(files, mysqlwire.ReaderFile{Index: first})
		}
		if b.boundary {
			files = append(files, mysqlwire.ReaderFile{Index: first + 1})
		}
		files[len(files)-1].Bytes += segment.Bytes
		behindStage = b.staged
	}
	s.mu.Lock()
	s.begun = begun
	s.mu.Unlock()
	if len(files) == 0 { // nothing is committed yet
		files = append(files, mysqlwire.ReaderFile{Index: segments[0].FirstIndex})
	}
	return files, nil
}

// begins tells how a segment begins; ok = its first entry is committed.
func (s *readerSource) begins(log replay.CommittedLog, first uint64) (b beginning, ok bool, err error) {
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
func (s *readerSource) StartReader(_ context.Context, request mysqlwire.ReaderRequest) (mysqlwire.Cursor, error) {
	log := s.log()
	first := log.Segments()[0].FirstIndex
	mark, _ := s.changed()
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
	s.logger.Info("reader begins", "index", from, "committed", mark.Index)
	return &readerCursor{source: s, log: log, from: from, once: request.Once, until: mark.Index}, nil
}

// find returns where a reader with a set of transactions begins. As in a real source that is the
// newest file before which there is nothing that the reader lacks.
func (s *readerSource) find(log replay.CommittedLog, has *gtid.Set, committed uint64) (uint64, error) {
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

// readerCursor reads the committed log and waits for it. It may have to wait at its beginning,
// too: a reader that comes from another node may be ahead of this node.
type readerCursor struct {
	source *readerSource
	log    feed.Log
	from   uint64
	once   bool
	until  uint64         // where once ends
	cursor *replay.Cursor // nil until everything before from is committed
	begun  bool           // something was handed out
}

// Next implements mysqlwire.Cursor.
func (c *readerCursor) Next() (*mysqlwire.Piece, <-chan struct{}, error) {
	mark, changed := c.source.changed() // before the look, or a change could be missed
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
func (c *readerCursor) look() (*mysqlwire.Piece, error) {
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
		if piece.Stage, err = c.source.open(p.Staged.ID); err != nil {
			return nil, purgedError(fmt.Errorf("read staged transaction of entry %d: %w", p.Index, err), p.Index)
		}
	}
	return piece, nil
}

// Close implements mysqlwire.Cursor.
func (c *readerCursor) Close() { c.log.Close() }

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
