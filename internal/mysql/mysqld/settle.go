package mysqld

import "context"

// BinlogEnd returns the end of the server's binlog: the file's base name and the offset.
// Everything that was written to the binlog is before it, also transactions that wait for an
// ACK.
func (a *Admin) BinlogEnd(ctx context.Context) (file string, offset uint64, err error) {
	err = a.query1(ctx, "end of the binlog", `
		SELECT local->>'$.binary_log_file', local->>'$.binary_log_position' FROM performance_schema.log_status`,
		nil, &file, &offset)
	return file, offset, err
}

// EndLockWaiters ends the sessions of clients that wait for a lock, and returns how many. They
// have not begun their commit, so the binlog has nothing of them; if they got the lock, they
// would write to it.
func (a *Admin) EndLockWaiters(ctx context.Context) (int, error) {
	return a.kill(ctx, "sessions that wait for a lock", `
		SELECT t.processlist_id FROM performance_schema.threads t
		WHERE t.type = 'FOREGROUND' AND t.processlist_user IS NOT NULL AND NOT `+agentSession+`
			AND (t.thread_id IN (SELECT requesting_thread_id FROM performance_schema.data_lock_waits)
				OR t.thread_id IN (SELECT owner_thread_id FROM performance_schema.metadata_locks WHERE lock_status = 'PENDING'))`)
}
