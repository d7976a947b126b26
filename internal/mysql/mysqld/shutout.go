package mysqld

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/quorate/quorate/internal/mysql/rows"
)

const (
	// shutOutTimeout bounds ShutOut before a stop: the rollback of a session may take long.
	shutOutTimeout = 5 * time.Second
	// atSocket is true for a session through the Unix socket: with skip_name_resolve no other
	// session has this host. The user's name is not enough, because accounts with a name of
	// ours can be made at other hosts.
	atSocket = "COALESCE(processlist_host, '') = 'localhost'"
	// ourSession is true for a session that ShutOut does not end, agentSession for a session of
	// the agent itself, which no method of Admin ends.
	ourSession   = "(" + atSocket + " AND processlist_user IN ('" + AdminUser + "', '" + TapUser + "', '" + CloneUser + "'))"
	agentSession = "(" + atSocket + " AND processlist_user IN ('" + AdminUser + "', '" + TapUser + "'))"
	// sessionsWhere selects sessions for kill. The caller appends a condition.
	sessionsWhere = "SELECT processlist_id FROM performance_schema.threads WHERE processlist_id IS NOT NULL AND "
)

// ShutOut ends every session except quorate's own, and every event that runs. It keeps clients out until letIn is
// called, and leaves the event scheduler off. It returns once no such session is left: then nobody can run the
// statements any more that super_read_only lets pass (FLUSH TABLES, ANALYZE TABLE, XA PREPARE). The server must be
// read-only and no session may wait for an ACK: otherwise ShutOut returns ErrWritesPending. After an error the caller
// must kill mysqld. ShutOut waits for rollbacks of sessions, as long as ctx allows.
//
// The server accepts one connection more than max_connections, for an account with
// CONNECTION_ADMIN. The agent has more than two connections, so with max_connections=1 the
// server accepts none.
func (a *Admin) ShutOut(ctx context.Context) (letIn func(context.Context) error, err error) {
	if err := a.proveReadOnly(ctx); err != nil {
		return nil, err
	}
	before, err := a.shut(ctx)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(sessionGonePoll)
	defer tick.Stop()
	for {
		gone, err := a.endClients(ctx)
		if err == nil && gone {
			err = a.proveReadOnly(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("end the sessions of clients: %w", err)
		}
		if gone {
			return func(ctx context.Context) error {
				a.doors.Lock()
				defer a.doors.Unlock()
				a.shutOut = false
				return a.exec(ctx, "let clients in", "SET GLOBAL max_connections = ?", before)
			}, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("end the sessions of clients: %w", errors.Join(ErrWritesPending, ctx.Err()))
		}
	}
}

// shut keeps new clients out, and switches the event scheduler off, until clients are let in. It returns max_connections
// as it was before.
func (a *Admin) shut(ctx context.Context) (before uint64, err error) {
	a.doors.Lock()
	defer a.doors.Unlock()
	if err := a.query1(ctx, maxConnections, "SELECT @@GLOBAL.max_connections", nil, &before); err != nil {
		return 0, err
	}
	a.shutOut = true
	if err := a.exec(ctx, "keep clients out", "SET GLOBAL max_connections = 1"); err != nil {
		return 0, err
	}
	var scheduler string
	if err := a.query1(ctx, "event_scheduler", "SELECT @@GLOBAL.event_scheduler", nil, &scheduler); err != nil {
		return 0, err
	}
	if scheduler != "ON" { // DISABLED cannot be set
		return before, nil
	}
	return before, a.setScheduler(ctx, false)
}

// maxConnections is the variable by which shut keeps clients out.
const maxConnections = "max_connections"

// whileIn calls do, which sets some variables. While clients are kept out, it refuses maxConnections for now: that value
// would let them in, and it would be lost when they are let in.
func (a *Admin) whileIn(names iter.Seq[string], do func() error) error {
	for name := range names {
		if normalizeOption(name) == maxConnections {
			a.doors.Lock()
			defer a.doors.Unlock()
			if a.shutOut {
				return &RefusedError{Name: name, Why: "clients are kept out of this mysqld just now; it is tried again"}
			}
			break
		}
	}
	return do()
}

// endClients kills every session of a client and every event that runs. It returns true if there was none. A
// connection counts from its acceptance, before it is a session with a user.
func (a *Admin) endClients(ctx context.Context) (none bool, err error) {
	n, err := a.kill(ctx, "sessions of clients", sessionsWhere+`(connection_type IS NOT NULL OR name IN ('thread/sql/one_connection', 'thread/sql/event_worker')) AND NOT COALESCE(`+ourSession+`, FALSE)`)
	if err != nil {
		return false, err
	}
	var connections, ours int
	err = a.query1(ctx, "connections", `
		SELECT (SELECT variable_value FROM performance_schema.global_status WHERE variable_name = 'Threads_connected'),
			(SELECT COUNT(*) FROM performance_schema.threads WHERE connection_type IS NOT NULL AND `+ourSession+`)`,
		nil, &connections, &ours)
	return n == 0 && connections == ours && ours > 2, err
}

// kill kills the sessions that a query selects, and returns how many there were.
func (a *Admin) kill(ctx context.Context, what, query string, args ...any) (int, error) {
	ids, err := rows.Column[uint64](ctx, a.db, query, args...)
	if err != nil {
		return 0, fmt.Errorf("find %s: %w", what, err)
	}
	for _, id := range ids {
		if _, err := a.killSession(ctx, id); err != nil {
			return 0, err
		}
	}
	return len(ids), nil
}

// EndReaders kills every session that came over TCP from this host, as those of the read-only port do. It also kills
// all sessions that are logging in, because the server does not show yet where they come from. To close the
// connections is not enough: the server may be in one of several statements of a request, and looks at the connection
// only when it answers. A killed session begins no further statement (dispatch_command in sql_parse.cc,
// sp_head::execute). So when EndReaders returns, and the server is read-only, none of these sessions can write any
// more.
func (a *Admin) EndReaders(ctx context.Context) error {
	_, err := a.kill(ctx, "sessions of readers", sessionsWhere+`(connection_type IN ('TCP/IP', 'SSL/TLS') AND processlist_host IN ('localhost', '127.0.0.1', '::1')
		OR name = 'thread/sql/one_connection' AND processlist_user IS NULL)`)
	if err != nil {
		return fmt.Errorf("end sessions: %w", err)
	}
	return nil
}

// EndSessions kills every session of a user at the socket. To close its connection is not enough: the server looks at it only
// when it answers, and keeps the session's locks until then.
func (a *Admin) EndSessions(ctx context.Context, user string) error {
	_, err := a.kill(ctx, "sessions of "+user, sessionsWhere+atSocket+" AND processlist_user = ? AND NOT "+agentSession, user)
	return err
}
