package mysqld

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/quorate/quorate/internal/mysql/rows"
)

// Session is a session of a client.
type Session struct {
	ID      uint64
	User    string
	Seconds int64 // since its statement began
}

// String describes the session for people.
func (s Session) String() string {
	return fmt.Sprintf("session %d of %s, for %d s", s.ID, s.User, s.Seconds)
}

// SlowWriters returns the sessions whose statement writes and has run for at least than. To
// close writes, the server must wait for such a statement, and all other writers then wait,
// too.
func (a *Admin) SlowWriters(ctx context.Context, than time.Duration) ([]Session, error) {
	all, err := rows.All(ctx, a.db, func(s *Session) []any { return []any{&s.ID, &s.User, &s.Seconds} }, `
		SELECT t.processlist_id, t.processlist_user, t.processlist_time
		FROM performance_schema.metadata_locks l JOIN performance_schema.threads t ON t.thread_id = l.owner_thread_id
		WHERE l.object_type IN ('GLOBAL', 'COMMIT') AND l.lock_type = 'INTENTION_EXCLUSIVE' AND l.lock_status = 'GRANTED'
			AND t.processlist_user IS NOT NULL AND t.processlist_time >= ? AND NOT `+agentSession+`
		GROUP BY 1, 2, 3 ORDER BY 3 DESC LIMIT 10`, int64(math.Ceil(than.Seconds())))
	if err != nil {
		return nil, fmt.Errorf("list statements that write: %w", err)
	}
	return all, nil
}

// OpenTransactions returns how many sessions of clients are in a transaction that writes or
// locks rows. Such a transaction holds metadata locks on its tables. (A query of innodb_trx
// fails while a statement has bytes that are no text.)
func (a *Admin) OpenTransactions(ctx context.Context) (int, error) {
	var n int
	err := a.query1(ctx, "open transactions", `SELECT COUNT(*) FROM performance_schema.threads t WHERE t.type = 'FOREGROUND'
		AND t.processlist_user IS NOT NULL AND NOT `+agentSession+`
		AND t.name NOT IN `+applierThreads+`
		AND EXISTS (SELECT 1 FROM performance_schema.metadata_locks l WHERE l.owner_thread_id = t.thread_id
			AND l.object_type = 'TABLE' AND l.lock_duration = 'TRANSACTION' AND l.lock_status = 'GRANTED' AND l.lock_type <> 'SHARED_READ')`,
		nil, &n)
	return n, err
}

// Answering returns for how many client sessions over TCP mysqld has not yet written the answer
// to the newest command. Afterwards mysqld shows them as "Sleep".
func (a *Admin) Answering(ctx context.Context) (int, error) {
	var n int
	err := a.query1(ctx, "sessions in a statement", `SELECT COUNT(*) FROM performance_schema.threads
		WHERE connection_type IN ('TCP/IP', 'SSL/TLS') AND processlist_command NOT IN ('Sleep', 'Connect')
			AND processlist_user IS NOT NULL AND NOT `+ourSession, nil, &n)
	return n, err
}

// RestartAckReceiver ends the thread that reads ACKs and starts a new one. A thread that has
// had a replica looks for new replicas only once a second (Ack_receiver::run), so the first ACK
// of a later tap could be read a second late. The caller must have shut all clients out
// (ShutOut), and no tap may be connected: nobody may commit while semi-sync is off.
func (a *Admin) RestartAckReceiver(ctx context.Context) error {
	if err := a.proveReadOnly(ctx); err != nil {
		return err
	}
	return errors.Join(a.exec(ctx, "switch semi-sync off", "SET GLOBAL rpl_semi_sync_source_enabled = OFF"),
		a.exec(ctx, "switch semi-sync on", "SET GLOBAL rpl_semi_sync_source_enabled = ON"))
}

// InCommit tells whether a statement is in its commit: it owns a GTID that is not in
// gtid_executed yet.
func (a *Admin) InCommit(ctx context.Context) (bool, error) {
	var owned string
	err := a.query1(ctx, "gtid_owned", "SELECT @@GLOBAL.gtid_owned", nil, &owned)
	return owned != "", err
}

// NextBinlog makes the server begin a new binlog file, so that the next tap reads nothing that
// an earlier epoch has written. LOCAL keeps the statement itself out of the binlog.
func (a *Admin) NextBinlog(ctx context.Context) error {
	return a.exec(ctx, "begin a new binlog file", "FLUSH LOCAL BINARY LOGS")
}
