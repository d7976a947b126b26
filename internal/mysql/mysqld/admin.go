package mysqld

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
)

const (
	// adminConnectionsMax bounds the administrative sessions. The canary and the write gate keep one
	// each, one waits in WaitApplied, and the others serve the status and the feed. All stay open, so
	// that the agent has them when clients have taken every other connection.
	adminConnectionsMax = 6
	// waitAppliedSlice bounds one WAIT_FOR_EXECUTED_GTID_SET of WaitApplied.
	waitAppliedSlice = time.Second
	// sessionGonePoll is how often the write gate checks whether a session that it gave up has
	// ended.
	sessionGonePoll = 5 * time.Millisecond
)

// Error numbers of the server (share/messages_to_clients.txt).
const (
	errLockWaitTimeout = 1205 // ER_LOCK_WAIT_TIMEOUT
	errNoSuchThread    = 1094 // ER_NO_SUCH_THREAD
	errBadDB           = 1049 // ER_BAD_DB_ERROR
	errNoSuchTable     = 1146 // ER_NO_SUCH_TABLE
)

// ErrWritesPending: super_read_only could not be set in time, because sessions wait for an ACK
// or hold a lock. The caller must assume that writes are under way, and kill mysqld.
var ErrWritesPending = errors.New("writes are pending")

// ErrShutOut refuses to let events run while clients are shut out.
var ErrShutOut = errors.New("clients are shut out")

// Admin has the agent's sessions in its mysqld: those of quorate_admin on the Unix socket.
// Every session has sql_log_bin=0 before its first statement, because a logged statement would
// wait for an ACK that nobody gives, and would be errant on a replica. Methods are safe for
// concurrent use. They wrap the driver's errors.
type Admin struct {
	db *sql.DB
	// connector opens a session outside of the pool.
	connector driver.Connector

	// gate is the one session that changes super_read_only, so that an OFF which was given up
	// cannot take effect after a later ON. gateID is its id in the server, 0 if it was never
	// opened. gateID stays when the session breaks.
	mu     sync.Mutex
	gate   *sql.Conn
	gateID uint64
	// open says that OpenFor has succeeded, and no change that closes has begun since.
	open bool

	// shutOut says that ShutOut keeps clients out and events from running. doors is locked while that, maxConnections or
	// the event scheduler is changed.
	doors   sync.Mutex
	shutOut bool
}

// socketConfig is how an account connects to the server at a Unix socket. What the driver would print it also returns as an
// error.
func socketConfig(socket, user, password string) *mysql.Config {
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr = "unix", socket
	cfg.User, cfg.Passwd = user, password
	cfg.Logger = log.New(io.Discard, "", 0)
	return cfg
}

func openAdmin(socket, password string) *Admin {
	cfg := socketConfig(socket, AdminUser, password)
	cfg.InterpolateParams = true // CHANGE REPLICATION SOURCE cannot be prepared.
	cfg.Params = map[string]string{
		"sql_log_bin": "0",
		// The operator may set global limits that would end our waits, or refuse a statement
		// (max_join_size).
		"max_execution_time": "0", "lock_wait_timeout": "31536000", "sql_big_selects": "1",
		// The pool's idle sessions must survive whatever the operator sets.
		"wait_timeout": "31536000",
		// Global values that the operator sets must not change what our statements mean.
		"autocommit": "1", "sql_mode": "''",
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		panic(err) // cfg has constants only, and a password, for which any value is valid.
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(adminConnectionsMax)
	db.SetMaxIdleConns(adminConnectionsMax)
	return &Admin{db: db, connector: connector}
}

// close ends every session. The process has exited, so nothing blocks.
func (a *Admin) close() {
	a.mu.Lock()
	if a.gate != nil {
		_ = a.gate.Close()
		a.gate = nil
	}
	a.mu.Unlock()
	_ = a.db.Close()
}

func (a *Admin) ping(ctx context.Context) error { return a.db.PingContext(ctx) }

// warm opens every session of the pool, so that the agent has them before clients connect.
func (a *Admin) warm(ctx context.Context) error {
	var errs []error
	var conns []*sql.Conn
	for range adminConnectionsMax {
		conn, err := a.db.Conn(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("open admin session: %w", err))
			break
		}
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		errs = append(errs, conn.Close()) // back into the pool
	}
	return errors.Join(errs...)
}

// initializedBy returns the incarnation whose init file ran to its end last.
func (a *Admin) initializedBy(ctx context.Context) (uint64, error) {
	var n sql.NullInt64
	err := a.db.QueryRowContext(ctx, `SELECT attribute->>'$.incarnation'
		FROM information_schema.user_attributes WHERE user = ? AND host = 'localhost'`, AdminUser).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("read what the init file wrote: %w", err)
	}
	return uint64(n.Int64), nil
}

// query1 scans the one row of query.
func (a *Admin) query1(ctx context.Context, what, query string, args []any, dest ...any) error {
	if err := a.db.QueryRowContext(ctx, query, args...).Scan(dest...); err != nil {
		return fmt.Errorf("read %s: %w", what, err)
	}
	return nil
}

func (a *Admin) exec(ctx context.Context, what, query string, args ...any) error {
	if _, err := a.db.ExecContext(ctx, query, args...); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// GTIDExecuted returns @@gtid_executed without line breaks.
func (a *Admin) GTIDExecuted(ctx context.Context) (string, error) {
	var s string
	err := a.query1(ctx, "gtid_executed", "SELECT @@GLOBAL.gtid_executed", nil, &s)
	return oneLine(s), err
}

// ReplicaWorkers returns how many transactions an applier that is started now would apply at
// the same time.
func (a *Admin) ReplicaWorkers(ctx context.Context) (n int, err error) {
	err = a.query1(ctx, "replica_parallel_workers", "SELECT GREATEST(@@GLOBAL.replica_parallel_workers, 1)", nil, &n)
	return n, err
}

// ServerUUID returns @@server_uuid.
func (a *Admin) ServerUUID(ctx context.Context) (string, error) {
	var s string
	err := a.query1(ctx, "server_uuid", "SELECT @@server_uuid", nil, &s)
	return s, err
}

// HasSession tells whether connection id exists, in whatever state.
func (a *Admin) HasSession(ctx context.Context, id uint64) (bool, error) {
	var n int
	err := a.query1(ctx, "session", "SELECT COUNT(*) FROM performance_schema.threads WHERE processlist_id = ?", []any{id}, &n)
	return n > 0, err
}

// SetSuperReadOnly closes (on) or opens the server for writes. Closing waits for every commit
// in progress, at most lockWait (rounded up to whole seconds, at least 1 s) and at most as long
// as ctx. If that is not enough, it returns ErrWritesPending. Only a nil error proves that no
// session waits for an ACK.
//
// All changes go through one session, in order. A change that was given up
// because ctx ended may still happen in the server; the next call first ends
// that session and waits until it is gone, so the last call always wins.
func (a *Admin) SetSuperReadOnly(ctx context.Context, on bool, lockWait time.Duration) error {
	if !on {
		return a.OpenFor(ctx, Everybody, lockWait)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	set, _ := Nobody.set()
	a.open = false
	return a.change(ctx, set, true, lockWait)
}

// Writers says who may write to a server that an agent has opened.
type Writers int

// The Writers. SetSuperReadOnly OFF opens for Everybody.
const (
	Nobody    Writers = iota // super_read_only: not even the agent
	Admins                   // read_only: accounts with CONNECTION_ADMIN, such as the agent's
	Everybody                // every account that has the privilege
)

// set returns the statement, and whether it may take the right to write away from somebody.
func (w Writers) set() (statement string, closes bool) {
	switch w {
	case Everybody:
		return "SET GLOBAL super_read_only = OFF, GLOBAL read_only = OFF", false
	case Admins:
		return "SET GLOBAL read_only = ON, GLOBAL super_read_only = OFF", true
	}
	return "SET GLOBAL super_read_only = ON", true
}

// OpenFor opens a server that is super_read_only for the writers w. From then on LetWrite may change
// who may write.
func (a *Admin) OpenFor(ctx context.Context, w Writers, lockWait time.Duration) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open = false
	set, _ := w.set()
	err := a.change(ctx, set, false, lockWait)
	a.open = err == nil
	return err
}

// ErrNotOpen: the server is closed for writes, or is being closed.
var ErrNotOpen = errors.New("the server is not open for writes")

// LetWrite changes who may write to a server that OpenFor or SetSuperReadOnly OFF has opened. It waits, as
// SetSuperReadOnly does, for every commit of those who may not write any more. If the server is not open it returns
// ErrNotOpen, because the change would undo super_read_only=ON. It also returns ErrNotOpen if still returns false; it
// asks still when no other change can come in between.
func (a *Admin) LetWrite(ctx context.Context, w Writers, lockWait time.Duration, still func() bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.open || !still() {
		return ErrNotOpen
	}
	set, closes := w.set()
	return a.change(ctx, set, closes, lockWait)
}

// change runs set in the gate session; closes says that set may take the right to write away. The caller holds
// a.mu.
func (a *Admin) change(ctx context.Context, set string, closes bool, lockWait time.Duration) error {
	if err := a.openGate(ctx); err != nil {
		return fmt.Errorf("open session that sets super_read_only: %w", err)
	}
	seconds := max(1, int64(math.Ceil(lockWait.Seconds())))
	_, err := a.gate.ExecContext(ctx, "SET SESSION lock_wait_timeout = ?", seconds)
	if err == nil {
		_, err = a.gate.ExecContext(ctx, set)
	}
	if err == nil {
		return nil
	}
	server := (*mysql.MySQLError)(nil)
	if errors.As(err, &server) {
		if server.Number == errLockWaitTimeout {
			return fmt.Errorf("set super_read_only: %w: %w", ErrWritesPending, err)
		}
		return fmt.Errorf("set super_read_only: %w", err)
	}
	// The session is broken or was given up in the middle of the statement.
	_ = a.gate.Close()
	a.gate = nil
	if closes && ctx.Err() != nil {
		return fmt.Errorf("set super_read_only: %w: %w", ErrWritesPending, err)
	}
	return fmt.Errorf("set super_read_only: %w", err)
}

// openGate makes sure that there is a gate session. Before it opens a new one, it ends the last
// one in the server. The caller holds a.mu.
func (a *Admin) openGate(ctx context.Context) error {
	if a.gate != nil {
		err := a.gate.PingContext(ctx)
		if err == nil {
			return nil
		}
		_ = a.gate.Close()
		a.gate = nil
	}
	if err := a.endSession(ctx, a.gateID); err != nil {
		return err
	}
	conn, err := a.db.Conn(ctx)
	if err != nil {
		return err
	}
	var id uint64
	if err := conn.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&id); err != nil {
		return errors.Join(err, conn.Close())
	}
	a.gate, a.gateID = conn, id
	return nil
}

// endSession kills session id in the server and waits until it has ended. id 0 means no
// session.
func (a *Admin) endSession(ctx context.Context, id uint64) error {
	if id == 0 {
		return nil
	}
	tick := time.NewTicker(sessionGonePoll)
	defer tick.Stop()
	for {
		if gone, err := a.killSession(ctx, id); gone || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// killSession tells session id to end, and reports whether it was gone already.
func (a *Admin) killSession(ctx context.Context, id uint64) (gone bool, err error) {
	_, err = a.db.ExecContext(ctx, "KILL ?", id)
	server := (*mysql.MySQLError)(nil)
	if errors.As(err, &server) && server.Number == errNoSuchThread {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("kill session %d: %w", id, err)
	}
	return false, nil
}

// proveReadOnly returns nil only if the server says that it is super_read_only
// and that no session waits for an ACK.
func (a *Admin) proveReadOnly(ctx context.Context) error {
	var readOnly bool
	if err := a.query1(ctx, "super_read_only", "SELECT @@GLOBAL.super_read_only", nil, &readOnly); err != nil {
		return err
	}
	semi, err := a.SemiSyncStatus(ctx)
	if err != nil {
		return err
	}
	if !readOnly || semi.WaitSessions != 0 {
		return fmt.Errorf("%w: super_read_only is %t, %d sessions wait for an ACK", ErrWritesPending, readOnly, semi.WaitSessions)
	}
	return nil
}

// Flushed is the result of FlushExecuted.
type Flushed struct {
	// Executed is gtid_executed, before the flush.
	Executed string
	// XA says that some transactions of Executed may be XA transactions that are prepared and
	// not ended. It does not see those that a replica rolled back when it started.
	XA bool
}

// FlushExecuted reads gtid_executed and then makes every engine commit up to now durable. A
// durable mark is made of the result. All statements run in one session, so that all of the
// result is about one incarnation.
func (a *Admin) FlushExecuted(ctx context.Context) (f Flushed, err error) {
	conn, err := a.db.Conn(ctx)
	if err != nil {
		return Flushed{}, fmt.Errorf("open session that flushes: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.QueryRowContext(ctx, "SELECT @@GLOBAL.gtid_executed").Scan(&f.Executed); err != nil {
		return Flushed{}, fmt.Errorf("read gtid_executed: %w", err)
	}
	f.Executed = oneLine(f.Executed)
	if f.XA, err = usesXA(ctx, conn); err != nil {
		return Flushed{}, err
	}
	// This syncs InnoDB's redo log, whatever innodb_flush_log_at_trx_commit says
	// (innobase_flush_logs in storage/innobase/handler/ha_innodb.cc).
	if _, err := conn.ExecContext(ctx, "FLUSH LOCAL ENGINE LOGS"); err != nil {
		return Flushed{}, fmt.Errorf("flush engine logs: %w", err)
	}
	return f, nil
}

// usesXA tells whether an XA transaction was begun since the server started, by a
// client or the applier, or is prepared from before. XA RECOVER alone would be too
// late: it shows a transaction after its GTID is in gtid_executed.
func usesXA(ctx context.Context, conn *sql.Conn) (bool, error) {
	var name string
	var begun int64
	if err := conn.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Com_xa_start'").Scan(&name, &begun); err != nil {
		return false, fmt.Errorf("count XA transactions: %w", err)
	}
	if begun > 0 {
		return true, nil
	}
	prepared, err := preparedXA(ctx, conn)
	return len(prepared) > 0, err
}

// oneLine removes the line breaks that the server puts into a GTID set.
func oneLine(set string) string { return strings.ReplaceAll(set, "\n", "") }
