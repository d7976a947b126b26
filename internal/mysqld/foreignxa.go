package mysqld

import (
	"context"
	"fmt"
)

// EndXA ends the sessions of clients that are in an XA transaction, prepared or not,
// and returns how many: super_read_only does not stop their XA PREPARE. It does not
// wait until they are gone.
func (a *Admin) EndXA(ctx context.Context) (int, error) {
	rows, err := a.db.QueryContext(ctx, `SELECT t.processlist_id
		FROM performance_schema.events_transactions_current e JOIN performance_schema.threads t USING (thread_id)
		WHERE e.state = 'ACTIVE' AND e.xa_state IS NOT NULL AND t.connection_type IS NOT NULL
			AND COALESCE(t.processlist_user, '') NOT IN (`+ourUsers+`)`)
	if err != nil {
		return 0, fmt.Errorf("find XA transactions: %w", err)
	}
	ids, err := collect[uint64](rows)
	if err != nil {
		return 0, fmt.Errorf("find XA transactions: %w", err)
	}
	for _, id := range ids {
		if _, err := a.killSession(ctx, id); err != nil {
			return 0, err
		}
	}
	return len(ids), nil
}

// xaStatements counts XA statements since the server's start, failed ones, too.
type xaStatements struct {
	// ends are XA COMMIT and XA ROLLBACK, starts are XA START: of everybody.
	ends, starts int64
	// Of these, the statement instruments of the Performance Schema have seen as many
	// of the applier (it runs as the account that started it), and of everybody.
	applierEnds, applierStarts, seenStarts int64
}

// foreign tells whether a client may have ended, since before, what the applier had
// prepared. A client's end in a stored program has no instrument, and whoever switches
// instruments off hides the applier's: both make it say yes.
func (x xaStatements) foreign(before xaStatements) bool {
	prepared := x.applierStarts > before.applierStarts || x.seenStarts != x.starts
	return prepared && x.ends-x.applierEnds > before.ends-before.applierEnds
}

func (a *Admin) xaStatements(ctx context.Context) (x xaStatements, err error) {
	rows, err := a.db.QueryContext(ctx, `SHOW GLOBAL STATUS WHERE variable_name IN ('Com_xa_start', 'Com_xa_commit', 'Com_xa_rollback')`)
	if err != nil {
		return x, fmt.Errorf("count XA statements: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		var n int64
		if err := rows.Scan(&name, &n); err != nil {
			return x, fmt.Errorf("count XA statements: %w", err)
		}
		if name == "Com_xa_start" {
			x.starts = n
		} else {
			x.ends += n
		}
	}
	if err := rows.Err(); err != nil {
		return x, fmt.Errorf("count XA statements: %w", err)
	}
	err = a.query1(ctx, "the applier's XA statements", `
		SELECT COALESCE(SUM(IF(user = ? AND event_name <> 'statement/sql/xa_start', count_star, 0)), 0),
			COALESCE(SUM(IF(user = ? AND event_name = 'statement/sql/xa_start', count_star, 0)), 0),
			COALESCE(SUM(IF(event_name = 'statement/sql/xa_start', count_star, 0)), 0)
		FROM performance_schema.events_statements_summary_by_user_by_event_name
		WHERE event_name IN ('statement/sql/xa_start', 'statement/sql/xa_commit', 'statement/sql/xa_rollback')`,
		[]any{AdminUser, AdminUser}, &x.applierEnds, &x.applierStarts, &x.seenStarts)
	return x, err
}

// BeginReplica notes that the server is a replica from now on, with no XA transaction
// prepared: what clients have ended before was not the applier's. It need not be called
// for a server that was never anything else.
func (p *Process) BeginReplica(ctx context.Context) error {
	n, err := p.admin.PendingXA(ctx)
	if err != nil {
		return err
	}
	if n > 0 {
		return fmt.Errorf("prepared XA transactions must end first: there are %d", n)
	}
	x, err := p.admin.xaStatements(ctx)
	if err != nil {
		return err
	}
	p.xaBefore.Store(&x)
	return nil
}

// ForeignXA tells whether a client may have ended an XA transaction that the applier
// had prepared. Read-only does not stop that, nothing of it is in a binlog, and it
// leaves no GTID: the server is no copy of the others any more. One that starts again
// prepares anew what was rolled back, and fails to where it was committed.
func (p *Process) ForeignXA(ctx context.Context) (bool, error) {
	var before xaStatements
	if x := p.xaBefore.Load(); x != nil {
		before = *x
	}
	now, err := p.admin.xaStatements(ctx)
	return err == nil && now.foreign(before), err
}
