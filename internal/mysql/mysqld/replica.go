package mysqld

import (
	"context"
	"time"
)

// sourceRetries is SOURCE_RETRY_COUNT: at one try a second this is 68 years, so the replica
// never stops trying to reach its agent.
const sourceRetries = 1<<31 - 1

// ReplicaStatus is the state of the replication channel.
type ReplicaStatus struct {
	// Configured says that ConfigureReplication was called on this data directory.
	Configured bool
	// IORunning says that it is connected to the feed, IOConnecting that it tries to connect.
	IORunning, IOConnecting bool
	// SQLRunning says that the applier runs.
	SQLRunning bool
	// The last error of each side; 0 and "" = none. SQLErrno and SQLError are read only while
	// the applier does not run.
	IOErrno, SQLErrno int
	IOError, SQLError string
	// Retrieved is what the relay logs hold or held, Executed is gtid_executed.
	Retrieved, Executed string
	// WaitSessions is the number of sessions that wait for an ACK. Nobody acknowledges a replica,
	// so such a session waits until mysqld ends: see AckWaiter.
	WaitSessions int
}

// ConfigureReplication makes the agent's feed the source of the replica, and drops the earlier
// configuration and relay logs. Afterwards the replica is stopped.
func (a *Admin) ConfigureReplication(ctx context.Context, host string, port int) error {
	if err := a.StopReplica(ctx); err != nil {
		return err
	}
	if err := a.exec(ctx, "reset replica", "RESET REPLICA ALL"); err != nil {
		return err
	}
	// GTID_ONLY needs the two options before it. With relay_log_recovery it makes the replica
	// ask for the transactions that gtid_executed lacks, not for those that its relay logs
	// lack.
	return a.exec(ctx, "configure replication", `CHANGE REPLICATION SOURCE TO
		SOURCE_HOST = ?, SOURCE_PORT = ?, SOURCE_SSL = 0,
		SOURCE_AUTO_POSITION = 1, REQUIRE_ROW_FORMAT = 1, GTID_ONLY = 1,
		SOURCE_CONNECT_RETRY = 1, SOURCE_RETRY_COUNT = ?, SOURCE_HEARTBEAT_PERIOD = 1`,
		host, port, sourceRetries)
}

// StartReplica starts both replica threads. It gives the credentials for the feed here, so that
// mysqld keeps them in memory and not in its data.
func (a *Admin) StartReplica(ctx context.Context, user, password string) error {
	return a.exec(ctx, "start replica", "START REPLICA USER = ? PASSWORD = ?", user, password)
}

// StopReplica stops both replica threads, and waits for the applier to end the
// transactions in progress.
func (a *Admin) StopReplica(ctx context.Context) error {
	return a.exec(ctx, "stop replica", "STOP REPLICA")
}

// ReplicaStatus reads the state of the replication channel.
func (a *Admin) ReplicaStatus(ctx context.Context) (ReplicaStatus, error) {
	var s ReplicaStatus
	var io, applier string
	// The query always yields one row.
	err := a.query1(ctx, "replica status", `
		SELECT EXISTS (SELECT 1 FROM performance_schema.replication_connection_configuration WHERE channel_name = '' AND host <> ''),
			COALESCE(MAX(c.service_state), 'OFF'), COALESCE(MAX(c.last_error_number), 0),
			COALESCE(MAX(c.last_error_message), ''), COALESCE(MAX(c.received_transaction_set), ''),
			COALESCE((SELECT service_state FROM performance_schema.replication_applier_status WHERE channel_name = ''), 'OFF'),
			@@GLOBAL.gtid_executed,
			COALESCE((SELECT variable_value FROM performance_schema.global_status WHERE variable_name = 'Rpl_semi_sync_source_wait_sessions'), 0)
		FROM performance_schema.replication_connection_status c WHERE c.channel_name = ''`, nil,
		&s.Configured, &io, &s.IOErrno, &s.IOError, &s.Retrieved, &applier, &s.Executed, &s.WaitSessions)
	if err != nil {
		return ReplicaStatus{}, err
	}
	s.IORunning, s.IOConnecting, s.SQLRunning = io == "ON", io == "CONNECTING", applier == "ON"
	s.Retrieved, s.Executed = oneLine(s.Retrieved), oneLine(s.Executed)
	if s.SQLRunning {
		return s, nil
	}
	// The coordinator's error only points to a worker's, so a worker's comes first.
	err = a.query1(ctx, "applier errors", `
		SELECT COALESCE(MAX(n), 0), COALESCE(MAX(m), '') FROM (
			SELECT n, m FROM (
				SELECT 1 AS o, last_error_number AS n, last_error_message AS m
				FROM performance_schema.replication_applier_status_by_worker WHERE channel_name = '' AND last_error_number <> 0
				UNION ALL
				SELECT 2, last_error_number, last_error_message
				FROM performance_schema.replication_applier_status_by_coordinator WHERE channel_name = '' AND last_error_number <> 0
			) AS e ORDER BY o LIMIT 1) AS f`, nil, &s.SQLErrno, &s.SQLError)
	if err != nil {
		return ReplicaStatus{}, err
	}
	return s, nil
}

// WaitApplied waits until gtid_executed contains set, or until ctx ends. It does not notice
// that the applier has stopped; see ReplicaStatus.
func (a *Admin) WaitApplied(ctx context.Context, set string) error {
	for {
		if applied, err := a.AppliedWithin(ctx, set, waitAppliedSlice); err != nil || applied {
			return err
		}
	}
}

// AppliedWithin waits until gtid_executed contains set, at most for d, and tells whether it
// does.
func (a *Admin) AppliedWithin(ctx context.Context, set string, d time.Duration) (bool, error) {
	var timedOut bool
	err := a.query1(ctx, "applied transactions", "SELECT WAIT_FOR_EXECUTED_GTID_SET(?, ?)",
		[]any{set, d.Seconds()}, &timedOut)
	return err == nil && !timedOut, err
}

// ApplyWork returns a number that changes while the applier works inside of a transaction: it
// adds up the row operations of its threads and the progress of a DDL. While the applier waits
// for a lock, the number does not change.
func (a *Admin) ApplyWork(ctx context.Context) (work int64, err error) {
	err = a.query1(ctx, "the applier's work", `
		SELECT CAST(COALESCE((
			SELECT SUM(s.variable_value) FROM performance_schema.threads t
			STRAIGHT_JOIN performance_schema.status_by_thread s ON s.thread_id = t.thread_id
			WHERE t.name IN `+applierThreads+` AND s.variable_name LIKE 'Handler%'), 0)
		+ COALESCE((
			SELECT SUM(e.work_completed) FROM performance_schema.threads t
			JOIN performance_schema.events_stages_current e ON e.thread_id = t.thread_id
			WHERE t.name IN `+applierThreads+` OR t.name = 'thread/innodb/ddl_thread'), 0) AS SIGNED)`, nil, &work)
	return work, err
}

// applierThreads are the applier's threads, as performance_schema names them.
const applierThreads = `('thread/sql/replica_worker', 'thread/sql/replica_sql', 'thread/sql/slave_worker', 'thread/sql/slave_sql')`

// AddPurged declares the transactions of set done without running them: transactions of the
// log's prefix that changed nothing (the prefix rule). set must not overlap gtid_executed. The
// caller must have checked every one of them.
func (a *Admin) AddPurged(ctx context.Context, set string) error {
	return a.exec(ctx, "add to gtid_purged", "SET GLOBAL gtid_purged = ?", "+"+set)
}

// AckWaiter returns the account of a session that waits for an ACK, and its statement without
// the values in it; both are "" if there is none. A statement that read-only does not stop
// (FLUSH STATUS, ANALYZE TABLE … UPDATE HISTOGRAM) goes into the binlog of a replica and waits
// there, inside of its group commit: the applier's commits wait behind it. A KILL of the session
// ends neither wait.
func (a *Admin) AckWaiter(ctx context.Context) (account, statement string, err error) {
	err = a.query1(ctx, "session that waits for an ACK", `
		SELECT COALESCE(MAX(w.account), ''), COALESCE(MAX(w.statement), '') FROM (
			SELECT CONCAT(QUOTE(t.processlist_user), '@', QUOTE(t.processlist_host)) AS account, e.digest_text AS statement
			FROM performance_schema.threads t
			LEFT JOIN performance_schema.events_statements_current e ON e.thread_id = t.thread_id AND e.end_event_id IS NULL
			WHERE t.processlist_state LIKE 'Waiting for semi-sync ACK from %' AND t.processlist_user IS NOT NULL
			ORDER BY t.processlist_time DESC, e.event_id DESC LIMIT 1) AS w`, nil, &account, &statement)
	return account, statement, err
}

// KillBlockers ends the client sessions that hold a lock for which an applier thread waits, a
// metadata lock (a long query under a committed ALTER, FLUSH TABLES WITH READ LOCK, LOCK
// INSTANCE) or a row lock, and returns how many it ended.
func (a *Admin) KillBlockers(ctx context.Context) (int, error) {
	// It does not wait for their end: a rollback may be needed to free a lock.
	return a.kill(ctx, "sessions that block the applier", `
		WITH applier AS (
			SELECT thread_id FROM performance_schema.threads WHERE name IN `+applierThreads+`
		), blocker AS (
			SELECT g.owner_thread_id AS thread_id
			FROM performance_schema.metadata_locks w
			JOIN performance_schema.metadata_locks g ON g.object_type = w.object_type
				AND g.object_schema <=> w.object_schema AND g.object_name <=> w.object_name
				AND g.owner_thread_id <> w.owner_thread_id AND g.lock_status = 'GRANTED'
			WHERE w.lock_status = 'PENDING' AND w.owner_thread_id IN (SELECT thread_id FROM applier)
			UNION
			SELECT blocking_thread_id FROM performance_schema.data_lock_waits
			WHERE requesting_thread_id IN (SELECT thread_id FROM applier)
		)
		SELECT t.processlist_id FROM performance_schema.threads t JOIN blocker b ON b.thread_id = t.thread_id
		WHERE t.type = 'FOREGROUND' AND t.processlist_id IS NOT NULL AND t.processlist_user IS NOT NULL
			AND t.thread_id NOT IN (SELECT thread_id FROM applier)
			AND NOT `+agentSession)
}
