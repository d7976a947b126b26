package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"golang.org/x/sync/errgroup"
)

// Database is the schema that holds the table.
const Database = "quorate_demo"

// Table is the table's full name.
const Table = Database + ".ledger"

// Bounds of a workload.
const (
	// rowsPerTransactionMax bounds a transaction: at most 8 rows of 300 bytes.
	rowsPerTransactionMax = 8
	// attemptsMax bounds one writer's history: 2^22 attempts of 12 bytes are
	// 48 MiB. A writer that reaches it ends with ErrHistoryFull.
	attemptsMax = 1 << 22
	// retryDelayMin and retryDelayMax bound the pause before a reconnection.
	// The lower one keeps the measured write gap exact to a few milliseconds.
	retryDelayMin = 2 * time.Millisecond
	retryDelayMax = 100 * time.Millisecond
	// stopGrace is what an attempt under way gets to end by itself after Run
	// was told to stop; then its connection is closed, the outcome unknown.
	stopGrace = 5 * time.Second
	// errReadOnly is ER_OPTION_PREVENTS_STATEMENT, here of read_only and super_read_only.
	errReadOnly = 1290
)

// Errors of a workload.
var (
	// ErrHistoryFull says that a writer has made as many attempts as it can
	// remember.
	ErrHistoryFull = errors.New("ledger: history is full")
	// ErrRefused says that the server rejects the workload itself (no such
	// table, access denied): trying again would not help.
	ErrRefused = errors.New("ledger: the server refuses the workload")
)

// Config of a Workload.
type Config struct {
	// DSNs are the read/write ports, over which the writers are spread; a
	// writer whose port does not answer, or leads to where nobody may write,
	// goes on to the next. At least one.
	DSNs []string
	// Writers is the number of concurrent writers; at least 1.
	Writers int
	// FirstWriter numbers the writers from here on, so that several workloads
	// can share one table.
	FirstWriter uint32
	// AttemptTimeout bounds one transaction and one connection; the
	// connection is closed afterwards. 0 stands for 60 s, twice what a router
	// holds a connection for.
	AttemptTimeout time.Duration
	// Pause is how long a writer pauses after a transaction, on average; 0 = not at all. SetPause
	// changes it.
	Pause  time.Duration
	Logger *slog.Logger
}

// Workload is a set of writers and what they were told.
type Workload struct {
	cfg     Config
	pools   []*sql.DB
	writers []*writer
	gap     gapMeter
	// spreads counts the calls of Spread; connected tells it that a writer has
	// connected.
	spreads   atomic.Uint32
	connected chan struct{}

	pause        atomic.Int64
	acknowledged atomic.Int64
	unknown      atomic.Int64
	failed       atomic.Int64
	reconnects   atomic.Int64
}

// Stats is a snapshot of a workload's counters. Acknowledged, Unknown and
// Failed count rows.
type Stats struct {
	Acknowledged int64
	Unknown      int64
	Failed       int64
	// Reconnects counts the connections made after each writer's first.
	Reconnects int64
}

// New returns a workload that has not started. It fails for a DSN that cannot
// be parsed.
func New(cfg Config) (*Workload, error) {
	if cfg.Writers < 1 || len(cfg.DSNs) == 0 {
		return nil, errors.New("ledger: a workload needs a writer and a DSN")
	}
	if cfg.AttemptTimeout == 0 {
		cfg.AttemptTimeout = time.Minute
	}
	w := &Workload{cfg: cfg, connected: make(chan struct{}, 1)}
	w.SetPause(cfg.Pause)
	for _, dsn := range cfg.DSNs {
		db, err := open(dsn)
		if err != nil {
			w.closePools()
			return nil, err
		}
		db.SetMaxIdleConns(-1) // a writer's Close must close
		w.pools = append(w.pools, db)
	}
	for i := range cfg.Writers {
		n := cfg.FirstWriter + uint32(i)
		w.writers = append(w.writers, &writer{
			load: w, number: n, nextSeq: 1,
			rng: rand.New(rand.NewPCG(uint64(n), 1)),
		})
		w.writers[i].port = w.writers[i].home()
	}
	return w, nil
}

// open returns a pool for dsn that neither logs nor interprets anything by
// itself.
func open(dsn string) (*sql.DB, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, fmt.Errorf("parse DSN: %w", err)
	}
	cfg.Logger = &mysql.NopLogger{}
	cfg.InterpolateParams = true // one round trip per statement
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("use DSN: %w", err)
	}
	return sql.OpenDB(connector), nil
}

// CreateTable creates the schema and the empty table through dsn.
func CreateTable(ctx context.Context, dsn string) error {
	db, err := open(dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	for _, stmt := range []string{
		"CREATE DATABASE IF NOT EXISTS " + Database,
		"CREATE TABLE IF NOT EXISTS " + Table + ` (
			id BIGINT NOT NULL PRIMARY KEY,
			writer INT NOT NULL,
			seq INT UNSIGNED NOT NULL,
			payload VARBINARY(255) NOT NULL,
			written DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)
		) ENGINE=InnoDB`,
	} {
		if _, err := db.ExecContext(ctx, stmt); err != nil {
			return fmt.Errorf("create the ledger table: %w", err)
		}
	}
	return nil
}

// Run writes until ctx is done and returns after every writer has ended. It returns nil
// if no writer failed for good. An attempt under way gets stopGrace to end. A
// Workload runs once.
func (w *Workload) Run(ctx context.Context) error {
	defer w.closePools()
	hard, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	w.gap.ack(time.Now())
	group, soft := errgroup.WithContext(ctx)
	context.AfterFunc(soft, func() { time.AfterFunc(stopGrace, cancel) })
	for _, wr := range w.writers {
		group.Go(func() error { return wr.run(soft, hard) })
	}
	return group.Wait()
}

func (w *Workload) closePools() {
	for _, db := range w.pools {
		_ = db.Close() // closes sockets; there is nothing to lose here
	}
}

// SetPause sets another pause for the writers, each from its next transaction on.
func (w *Workload) SetPause(p time.Duration) { w.pause.Store(int64(p)) }

// Stats returns the counters as they are now.
func (w *Workload) Stats() Stats {
	return Stats{
		Acknowledged: w.acknowledged.Load(),
		Unknown:      w.unknown.Load(),
		Failed:       w.failed.Load(),
		Reconnects:   w.reconnects.Load(),
	}
}

// ResetGap begins a new measurement of the write gap.
func (w *Workload) ResetGap() { w.gap.reset() }

// Gap returns the longest interval between consecutive acknowledged commits of
// all writers since the last ResetGap, the one still open included.
func (w *Workload) Gap() time.Duration { return w.gap.read(time.Now()) }

// Spread makes every writer connect again through its own port, after the attempt
// that it has under way, and returns when all have done so. It is needed because failures move writers to the
// next port, in the end perhaps all of them to one port.
func (w *Workload) Spread(ctx context.Context) error {
	want := w.spreads.Add(1)
	behind := func(wr *writer) bool { return wr.spread.Load() < want }
	for slices.ContainsFunc(w.writers, behind) {
		select {
		case <-w.connected:
		case <-ctx.Done():
			return fmt.Errorf("spread the writers over the ports: %w", ctx.Err())
		}
	}
	return nil
}

// History returns every attempt of every writer. Only after Run has returned.
func (w *Workload) History() []Attempt {
	var all []Attempt
	for _, wr := range w.writers {
		all = append(all, wr.history...)
	}
	return all
}

// writer is one connection's worth of work. Its own goroutine owns it.
type writer struct {
	load    *Workload
	number  uint32
	nextSeq uint32
	port    int // index of the pool it uses
	// sentHome is the value of Workload.spreads that last made the writer go back to its own port. spread is the value
	// when it connected.
	sentHome uint32
	spread   atomic.Uint32
	rng      *rand.Rand
	history  []Attempt
}

// run writes until soft is done; attempts under way last at most until hard is.
func (wr *writer) run(soft, hard context.Context) error {
	delay := retryDelayMin
	for first := true; soft.Err() == nil; first = false {
		if !first {
			wr.load.reconnects.Add(1)
			select {
			case <-soft.Done():
				return nil
			case <-time.After(delay):
			}
			delay = min(2*delay, retryDelayMax)
		}
		conn, err := wr.connect(soft)
		if err == nil {
			var acked int
			acked, err = wr.write(soft, hard, conn)
			_ = conn.Close() // its outcome is recorded already
			if acked > 0 {
				delay = retryDelayMin
			}
			if closed(err) {
				wr.nextPort()
			}
		}
		if permanent(err) {
			return err
		}
		wr.load.cfg.Logger.Debug("writer reconnects", "writer", wr.number, "error", err)
	}
	return nil
}

// connect opens a connection through the writer's port. If the port does not
// answer, the writer uses the next port for its next try.
func (wr *writer) connect(soft context.Context) (*sql.Conn, error) {
	ctx, cancel := context.WithTimeout(soft, wr.load.cfg.AttemptTimeout)
	defer cancel()
	spread := wr.load.spreads.Load()
	if spread != wr.sentHome {
		wr.sentHome, wr.port = spread, wr.home()
	}
	conn, err := wr.load.pools[wr.port].Conn(ctx)
	if err != nil {
		wr.nextPort()
		return nil, fmt.Errorf("connect: %w", classify(err))
	}
	wr.spread.Store(spread)
	select {
	case wr.load.connected <- struct{}{}:
	default: // the signal to look is there already
	}
	return conn, nil
}

func (wr *writer) nextPort() { wr.port = (wr.port + 1) % len(wr.load.pools) }

// closed tells whether the error says that a server takes no writes from anybody. That may last: a cluster that follows
// another one is closed.
func closed(err error) bool {
	refused, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && refused.Number == errReadOnly
}

// home is the port with which the writer begins.
func (wr *writer) home() int { return int(wr.number-wr.load.cfg.FirstWriter) % len(wr.load.pools) }

// write makes attempts on conn until one fails or soft is done, and returns
// how many were acknowledged.
func (wr *writer) write(soft, hard context.Context, conn *sql.Conn) (acked int, err error) {
	for soft.Err() == nil && wr.spread.Load() == wr.load.spreads.Load() {
		if len(wr.history) == attemptsMax {
			return acked, ErrHistoryFull
		}
		a := Attempt{Writer: wr.number, First: wr.nextSeq, Rows: 1}
		if wr.rng.IntN(4) == 0 { // every fourth is a transaction of several statements
			a.Rows = uint8(2 + wr.rng.IntN(rowsPerTransactionMax-1))
		}
		wr.nextSeq += uint32(a.Rows)
		wr.history = append(wr.history, a) // unknown until told otherwise
		a.Outcome, err = wr.attempt(hard, conn, a)
		wr.history[len(wr.history)-1] = a
		wr.load.count(a)
		if err != nil {
			return acked, err
		}
		acked++
		if p := wr.load.pause.Load(); p > 0 {
			select {
			case <-soft.Done():
			case <-time.After(time.Duration(wr.rng.Int64N(2 * p))):
			}
		}
	}
	return acked, nil
}

// count adds a finished attempt to the counters.
func (w *Workload) count(a Attempt) {
	switch a.Outcome {
	case Acknowledged:
		w.gap.ack(time.Now())
		w.acknowledged.Add(int64(a.Rows))
	case Failed:
		w.failed.Add(int64(a.Rows))
	default:
		w.unknown.Add(int64(a.Rows))
	}
}

// attempt runs one transaction. The outcome is unknown only if the deciding
// statement (the autocommitted INSERT, or COMMIT) may have reached the server:
// a transaction that broke before its COMMIT was sent is rolled back.
func (wr *writer) attempt(hard context.Context, conn *sql.Conn, a Attempt) (Outcome, error) {
	ctx, cancel := context.WithTimeout(hard, wr.load.cfg.AttemptTimeout)
	defer cancel()
	const insert = "INSERT INTO " + Table + " (id, writer, seq, payload) VALUES "
	if a.Rows == 1 {
		id := a.id(0)
		_, err := conn.ExecContext(ctx, insert+"(?, ?, ?, ?)", int64(id), id.Writer(), id.Seq(), id.Payload())
		return decided(err)
	}
	if _, err := conn.ExecContext(ctx, "BEGIN"); err != nil {
		return Failed, classify(err)
	}
	// The first row has a statement of its own, the others share one: so both shapes occur.
	for _, part := range [][2]int{{0, 1}, {1, int(a.Rows)}} {
		values, args := []string{}, []any{}
		for r := part[0]; r < part[1]; r++ {
			id := a.id(r)
			values = append(values, "(?, ?, ?, ?)")
			args = append(args, int64(id), id.Writer(), id.Seq(), id.Payload())
		}
		if _, err := conn.ExecContext(ctx, insert+strings.Join(values, ", "), args...); err != nil {
			return Failed, classify(err)
		}
	}
	_, err := conn.ExecContext(ctx, "COMMIT")
	return decided(err)
}

// decided returns the outcome that follows from the answer to a deciding statement.
func decided(err error) (Outcome, error) { return OutcomeOf(err), classify(err) }

// classify marks the errors that end a workload for good.
func classify(err error) error {
	var refused *mysql.MySQLError
	if errors.As(err, &refused) {
		switch refused.Number {
		case 1044, 1045, 1049, 1054, 1142, 1146, 1062:
			return fmt.Errorf("%w: %w", ErrRefused, err)
		}
	}
	return err
}

func permanent(err error) bool {
	return errors.Is(err, ErrRefused) || errors.Is(err, ErrHistoryFull)
}
