package mysqlwire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/sys/deadhost"
	"github.com/quorate/quorate/internal/sys/strangers"
)

const (
	// connectionsMax bounds the connections of our own mysqld's feed that have logged
	// in. It uses one, and a second while it reconnects.
	connectionsMax = 8
	// strangersMax bounds the connections that have not logged in. At most strangersPerSource
	// connections of one address may take longer than strangersSpare: a login is two round
	// trips.
	strangersMax       = 256
	strangersPerSource = 16
	strangersSpare     = time.Second
	// These bound TLS handshakes with addresses from which no reader has logged in yet. At most readersTurns are
	// under way with one address. One begins every readersTurnEvery, for all such addresses together: 50 a second, at
	// 1 ms of a processor each (RSA). At most readersWaiting wait for their turn, up to 1 s.
	readersTurns     = 2
	readersTurnEvery = 20 * time.Millisecond
	readersWaiting   = 50
	// handshakeTimeout is how long a client may take to log in.
	handshakeTimeout = 10 * time.Second
	// commandTimeout is how long a client may be silent before it asks for a
	// dump; a replica's I/O thread asks at once.
	commandTimeout = time.Minute
	// writeTimeout is how long a client may let a write wait (it is mysqld's
	// default of net_write_timeout, which bounds a real source's dump).
	writeTimeout = time.Minute
	// acceptRetryDelay is the pause after accept failed.
	acceptRetryDelay = 100 * time.Millisecond
)

// Source gives a feed what it serves.
type Source interface {
	// Start says where the connected replica begins. It is called once per dump, with the set
	// that the replica asked not to be sent. That set is only a claim: what a mysqld has is in
	// its @@gtid_executed.
	//
	// A *ServerError is passed on to the replica (1236 stops it for good); any
	// other error only ends the connection, and the replica comes again.
	Start(ctx context.Context, requested *gtid.Set) (Cursor, error)
}

// Cursor walks through the committed log. It is used by one goroutine at a
// time.
type Cursor interface {
	// Next returns the next piece. If p is nil there is none yet, and more is closed once there
	// may be one. A piece must not change afterwards. The cursor bounds the size of a piece; a
	// dump holds one at a time. Errors as in Source.Start.
	Next() (p *Piece, more <-chan struct{}, err error)
	// Close releases what the cursor holds. It is called once.
	Close()
}

// Piece is a stretch of the committed log.
type Piece struct {
	// Index is the log's entry that the piece comes from. For a FormatDescription it is the
	// entry that follows. Only readers' cursors need it.
	Index uint64
	// FormatDescription is set at the log's beginning, at each epoch and at each rotation of
	// the primary's binlog: the FORMAT_DESCRIPTION event of what follows. The feed begins a new
	// file there, which also restarts the replica's logical clock. It comes before Events.
	FormatDescription []byte
	// Events are whole committed transactions: raw events with their CRC32.
	Events []byte
	// Stage is one staged transaction, instead of Events.
	Stage StageEvents
}

// StageEvents is the raw events of one staged transaction, with their CRC32.
type StageEvents interface {
	io.ReaderAt
	// Size is their length in bytes.
	Size() int64
	// Damaged is called when the bytes that were read are damaged events.
	Damaged(err error)
	// The feed calls Close once: it owns the StageEvents of a piece.
	Close() error
}

// drop releases what a piece holds, once the piece was sent or will not be sent.
func (p Piece) drop() {
	if p.Stage != nil {
		_ = p.Stage.Close() // it was only read
	}
}

// FeedConfig says what a feed serves, and where.
type FeedConfig struct {
	// Listen is the host:port; the replica's mysqld cannot use a Unix socket.
	Listen string
	// User and Password are what a replica logs in with. The password must not
	// be empty.
	User, Password string
	// ServerID is the server_id that artificial events carry.
	ServerID uint32
	// ServerUUID is the UUID of the feed itself. A replica refuses a source with its own UUID
	// unless it runs with replicate_same_server_id=1.
	ServerUUID func() string
	// ServerVersion is a version a.b.c that the replica accepts from its source: best the
	// replica's own version.
	ServerVersion func() string
	Source        Source
	// Workers returns how many transactions the replica of this dump applies at the same time.
	// 0, or a nil function = not known: nothing is limited.
	Workers func(context.Context) int
	Logger  *slog.Logger
	// WrapPayloads sends the events of a transaction as one uncompressed
	// TRANSACTION_PAYLOAD event: two packets instead of five or more.
	WrapPayloads bool
	// Readers, if set, makes it a feed for downstream readers: User, Password,
	// Source, Workers and WrapPayloads are then not used.
	Readers *ReadersConfig
}

// Feed speaks the source side of the replication protocol.
type Feed struct {
	cfg      FeedConfig
	listener net.Listener
	stats    FeedCounters
	// strangers are the connections that have not logged in.
	strangers *strangers.Room
	// accounts are the accounts of downstream readers, tls is their TLS. Both are nil in the
	// feed of our own mysqld.
	accounts []*readerAccount
	tls      *tls.Config
	// begun, dumped, left and failed bound the log lines about readers' sessions.
	begun, dumped, left, failed strangers.Burst

	mu sync.Mutex
	// conns are the connections that have logged in.
	conns map[net.Conn]struct{}
	// dumps holds the replica UUID of each running dump.
	dumps map[*dumpHandle]string
}

// dumpHandle identifies a running dump and ends it.
type dumpHandle struct{ end func() }

// FeedCounters count what dumps do. The zero value is ready.
type FeedCounters struct {
	connections, refused, dumps, bytes, events, heartbeats atomic.Uint64
	// The names of the streams' files are numbered by boundaries.
	boundaries atomic.Uint64
}

// FeedStats counts from the making of the feed, except for Connections and Dumps.
type FeedStats struct {
	// Connections and Dumps are open now; connections that have not logged in do not count.
	Connections, Dumps int
	// ConnectionsTotal counts logins. Refused counts connections that were turned away because
	// of the limit, a wrong password, their address, or no TLS. Expelled counts connections
	// that were ended before their login, to make room for others. TurnedAway counts
	// connections that found too many others waiting for TLS.
	ConnectionsTotal, Refused, Expelled, TurnedAway uint64
	// DumpsTotal counts dumps that were begun.
	DumpsTotal uint64
	// Bytes and Events count what was sent, artificial events included.
	Bytes, Events uint64
	// Heartbeats and Boundaries (a ROTATE and a FORMAT_DESCRIPTION each) count what was sent.
	Heartbeats, Boundaries uint64
}

// NewFeed returns a feed that does nothing yet.
func NewFeed(cfg FeedConfig) (*Feed, error) {
	if cfg.ServerID == 0 || cfg.ServerUUID == nil || cfg.ServerVersion == nil || cfg.Source == nil && cfg.Readers == nil {
		return nil, errors.New("feed without server id, UUID, version or source")
	}
	f := &Feed{cfg: cfg, conns: map[net.Conn]struct{}{}, dumps: map[*dumpHandle]string{}}
	f.strangers = strangers.New(f.strangersLimits(), cfg.Logger)
	if cfg.Readers != nil {
		return f, f.checkReaders()
	}
	if cfg.User == "" || cfg.Password == "" {
		return nil, errors.New("feed without user or password")
	}
	return f, nil
}

func (f *Feed) strangersLimits() strangers.Limits {
	l := strangers.Limits{Max: strangersMax, PerSource: strangersPerSource, Spare: strangersSpare}
	if f.cfg.Readers != nil {
		l.Allow, l.Known = f.cfg.Readers.allow(), f.isReaders
		l.Turns, l.TurnEvery, l.TurnsWaiting = readersTurns, readersTurnEvery, readersWaiting
	}
	return l
}

// Listen opens the port. Run serves it, and closes it when it ends.
func (f *Feed) Listen() error {
	lc := net.ListenConfig{KeepAliveConfig: deadhost.KeepAlive()}
	listener, err := lc.Listen(context.Background(), "tcp", f.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen for replicas: %w", err)
	}
	f.listener = listener
	return nil
}

// Unlisten closes the port, for a caller that does not call Run after Listen, or whose Run has
// ended.
func (f *Feed) Unlisten() {
	if f.listener != nil {
		_ = f.listener.Close()
	}
}

// Addr is where the feed listens, after Listen.
func (f *Feed) Addr() net.Addr { return f.listener.Addr() }

// Run accepts connections until ctx is done, then ends them and returns ctx's
// error after all of its goroutines.
func (f *Feed) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { _ = f.listener.Close() })
	defer stop()
	var sessions sync.WaitGroup
	defer sessions.Wait()
	defer cancel()
	sessions.Go(func() { f.watchHosts(ctx) })
	for id := uint32(1); ; id++ {
		conn, err := f.listener.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return ctx.Err()
		}
		if err != nil {
			// Mostly because too many files are open. Replicas that are connected need no new
			// file.
			f.cfg.Logger.Error("feed cannot accept", "error", err)
			select {
			case <-time.After(acceptRetryDelay):
			case <-ctx.Done():
			}
			continue
		}
		if !f.strangers.Allows(conn.RemoteAddr()) {
			f.strangers.Log().Warn(conn.RemoteAddr(), "closed a reader's connection: reader.allow does not have its address")
			_ = conn.Close()
			continue
		}
		s := newFeedSession(f, conn, id)
		sessions.Go(func() {
			defer f.dismiss(conn)
			defer s.stay.Leave()
			if err := s.run(ctx); err != nil && ctx.Err() == nil {
				f.ended(s, err)
			}
		})
	}
}

// watchHosts closes the connections of hosts that have died: a reader's session in mysqld may hold a lock that stops all writes.
func (f *Feed) watchHosts(ctx context.Context) {
	ticker := time.NewTicker(deadhost.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			f.closeDead(deadhost.After)
		case <-ctx.Done():
			return
		}
	}
}

// closeDead closes the connections whose hosts have acknowledged nothing for a time.
func (f *Feed) closeDead(after time.Duration) {
	f.mu.Lock()
	all := slices.Collect(maps.Keys(f.conns))
	f.mu.Unlock()
	for _, conn := range all {
		if deadhost.Silent(conn, after) {
			f.cfg.Logger.Warn("closed a connection: its host has acknowledged nothing for "+after.String(), "host", conn.RemoteAddr())
			_ = conn.Close()
		}
	}
}

// ended logs why a session ended. For sessions that had not logged in, it writes only a few
// lines a minute.
func (f *Feed) ended(s *feedSession, err error) {
	if s.admitted {
		s.record(&f.failed, slog.LevelWarn, "feed session ended", "replica", s.replicaUUID, "error", err)
		return
	}
	if !errors.Is(err, net.ErrClosed) { // else it was expelled, which is logged already
		f.strangers.Log().Warn(s.conn.RemoteAddr(), "login to the feed failed", "connection", s.id, "error", err)
	}
}

// admit counts conn in, unless there are too many.
func (f *Feed) admit(conn net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	limit := connectionsMax
	if f.cfg.Readers != nil {
		limit = f.cfg.Readers.ConnectionsMax
	}
	if len(f.conns) >= limit {
		f.stats.refused.Add(1)
		return false
	}
	f.conns[conn] = struct{}{}
	f.stats.connections.Add(1)
	return true
}

func (f *Feed) dismiss(conn net.Conn) {
	_ = conn.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, conn)
}

// beginDump notes handle as the dump of the replica uuid, and ends that replica's earlier dump:
// a replica that connects again has given up its old connection. A reader without a UUID
// replaces nothing.
func (f *Feed) beginDump(uuid string, handle *dumpHandle) {
	f.stats.dumps.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	for old, oldUUID := range f.dumps {
		if uuid != "" && oldUUID == uuid {
			old.end()
		}
	}
	f.dumps[handle] = uuid
}

func (f *Feed) endDump(handle *dumpHandle) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.dumps, handle)
}

// Stats returns the feed's counters.
func (f *Feed) Stats() FeedStats {
	f.mu.Lock()
	connections, dumps := len(f.conns), len(f.dumps)
	f.mu.Unlock()
	waiting := f.strangers.Stats()
	return FeedStats{
		Connections:      connections,
		Dumps:            dumps,
		ConnectionsTotal: f.stats.connections.Load(),
		Refused:          f.stats.refused.Load() + waiting.Refused,
		Expelled:         waiting.Expelled,
		TurnedAway:       waiting.TurnedAway,
		DumpsTotal:       f.stats.dumps.Load(),
		Bytes:            f.stats.bytes.Load(),
		Events:           f.stats.events.Load(),
		Heartbeats:       f.stats.heartbeats.Load(),
		Boundaries:       f.stats.boundaries.Load(),
	}
}
