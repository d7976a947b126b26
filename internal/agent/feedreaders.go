package agent

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorate/quorate/internal/agent/readers"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/feed"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/sys/metrics"
)

// certificateLook is how often the files of the readers' port's certificate are looked at.
const certificateLook = 30 * time.Second

// buildReaders makes the feed for downstream readers; nil if there is none.
func (a *Agent) buildReaders() (*mysqlwire.Feed, error) {
	if a.cfg.Feed.ReadersListen == "" {
		return nil, nil
	}
	mysqld := a.mysqldConfig()
	if !a.runsMysqld() {
		mysqld.OSUser = "" // the account may not exist on a host without mysqld
	}
	a.readersCert = readers.NewCertificate(mysqld.ServerCertificate, mysqld.OwnTLS(), a.logger.With("port", "readers"))
	var accounts []mysqlwire.Reader
	for _, r := range a.cfg.Readers {
		account, err := readers.Account(r)
		if err != nil {
			return nil, err
		}
		accounts = append(accounts, account)
	}
	a.readersSQL.Socket = func() string { return a.local.Server().Socket() }
	a.readersSQL.Serves = func() bool { return a.board.Own().Role.Judged() }
	return mysqlwire.NewFeed(mysqlwire.FeedConfig{
		Listen: a.cfg.Feed.ReadersListen, ServerID: a.serverID(serverIDOfReaders),
		ServerUUID: func() string { return a.derivedUUID(uuidOfReaders) }, ServerVersion: a.binlogVersion,
		Readers: &mysqlwire.ReadersConfig{
			Accounts: accounts, ConnectionsMax: a.cfg.Feed.ReadersMax, Certificate: a.readersCert.Current,
			Site: a.following.AskedBySite, SQL: a.readersSQL.Dial, Barrier: a.readersBarrier,
			Source: readers.NewSource(readers.Config{
				Log:     func() feed.Log { return a.logReader() },
				Changed: func() (consensus.Mark, <-chan struct{}) { return a.Raft.Committed().Changed() },
				GTIDs:   a.committedGTIDs, Open: a.openEvents, Logger: a.logger,
			}),
		},
		Logger: a.logger.With("port", "readers"),
	})
}

// readersBarrierTimeout bounds readersBarrier: without a leader nobody knows more than this node.
const readersBarrierTimeout = 2 * time.Second

// readersBarrier waits until this node knows what is committed: a reader that comes from another node may know more.
func (a *Agent) readersBarrier(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, readersBarrierTimeout)
	defer cancel()
	if a.Raft.Role().Leading {
		return
	}
	_ = a.Raft.Barrier(ctx) // without an answer this node's own knowledge has to do
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
	return port("readers' port (feed.readers_listen)").opened(a.readers.Listen())
}

// runReaders serves downstream readers until ctx ends.
func (a *Agent) runReaders(ctx context.Context) error {
	if a.readers == nil {
		return nil
	}
	a.readersCert.Look(ctx)
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return every(ctx, certificateLook, func() error { a.readersCert.Look(ctx); return nil }) })
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
		metrics.Of("quorate_readers_turned_away_total", f.TurnedAway),
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

// binlogVersion is the version of the server that wrote the newest part of the
// log: readers see it as the version of their source.
func (a *Agent) binlogVersion() string {
	segments := a.log.Segments()
	format, err := binlog.ParseFormatDescription(segments[len(segments)-1].FormatDescription)
	if err != nil { // the log verified it
		a.logger.Error("the log's format cannot be read", "error", err)
		return ""
	}
	return format.ServerVersion
}
