package mysqld

import "context"

// BinlogEnd returns the file in which the server's binlog ends, a base name without
// a path, and where there. What was written to it is before that, whether it waits
// for an ACK or not.
func (a *Admin) BinlogEnd(ctx context.Context) (file string, offset uint64, err error) {
	err = a.query1(ctx, "end of the binlog", `
		SELECT local->>'$.binary_log_file', local->>'$.binary_log_position' FROM performance_schema.log_status`,
		nil, &file, &offset)
	return file, offset, err
}

// EndLockWaiters ends the sessions of clients that wait for a lock, and returns how
// many. They are before their commit, so nothing of them is in the binlog; once the
// lock is let go they would write there.
func (a *Admin) EndLockWaiters(ctx context.Context) (int, error) {
	return a.kill(ctx, "sessions that wait for a lock", `
		SELECT t.processlist_id FROM performance_schema.threads t
		WHERE t.type = 'FOREGROUND' AND t.processlist_user IS NOT NULL AND NOT `+agentSession+`
			AND (t.thread_id IN (SELECT requesting_thread_id FROM performance_schema.data_lock_waits)
				OR t.thread_id IN (SELECT owner_thread_id FROM performance_schema.metadata_locks WHERE lock_status = 'PENDING'))`)
}
