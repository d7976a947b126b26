package mysqld

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/rows"
)

// EndXA ends the sessions of clients that are in an XA transaction, prepared or not,
// and returns how many: super_read_only does not stop their XA PREPARE. It does not
// wait until they are gone.
func (a *Admin) EndXA(ctx context.Context) (int, error) {
	return a.kill(ctx, "XA transactions", `SELECT t.processlist_id
		FROM performance_schema.events_transactions_current e JOIN performance_schema.threads t USING (thread_id)
		WHERE e.state = 'ACTIVE' AND e.xa_state IS NOT NULL AND t.connection_type IS NOT NULL
			AND NOT COALESCE(`+ourSession+`, FALSE)`)
}

// xaStatements counts XA statements since the server's start, including those that failed.
type xaStatements struct {
	// ends counts XA COMMIT and XA ROLLBACK, starts counts XA START, of all sessions.
	ends, starts int64
	// commits counts XA COMMIT alone, of all sessions.
	commits int64
	// The same counts as the statement instruments of the Performance Schema have them: the
	// applier's (it runs as the account that started it, at localhost; accounts of that name at
	// other hosts do not count), and seenStarts, of all sessions.
	applierEnds, applierStarts, seenStarts int64
	applierCommits                         int64
}

// foreign tells whether a client may have ended, since before, an XA transaction that the
// applier had prepared. The instruments do not see XA statements in a stored program, and see
// none while somebody has switched them off: in both cases foreign returns true.
func (x xaStatements) foreign(before xaStatements) bool {
	prepared := x.applierStarts > before.applierStarts || x.seenStarts != x.starts
	return prepared && x.ends-x.applierEnds > before.ends-before.applierEnds
}

// foreignCommit tells whether a client may have run XA COMMIT since before, on any transaction.
// It is never wrongly false: see Admin.xaStatements.
func (x xaStatements) foreignCommit(before xaStatements) bool {
	return x.commits-x.applierCommits > before.commits-before.applierCommits
}

// xaStatements counts. It reads the instruments first, and they count a statement only when it
// has ended. So a statement that the applier runs meanwhile looks like a client's, never the
// reverse.
func (a *Admin) xaStatements(ctx context.Context) (x xaStatements, err error) {
	if err := a.query1(ctx, "the applier's XA statements", `
		SELECT COALESCE(SUM(IF(user = ? AND host = 'localhost' AND event_name <> 'statement/sql/xa_start', count_star, 0)), 0),
			COALESCE(SUM(IF(user = ? AND host = 'localhost' AND event_name = 'statement/sql/xa_commit', count_star, 0)), 0),
			COALESCE(SUM(IF(user = ? AND host = 'localhost' AND event_name = 'statement/sql/xa_start', count_star, 0)), 0),
			COALESCE(SUM(IF(event_name = 'statement/sql/xa_start', count_star, 0)), 0)
		FROM performance_schema.events_statements_summary_by_account_by_event_name
		WHERE event_name IN ('statement/sql/xa_start', 'statement/sql/xa_commit', 'statement/sql/xa_rollback')`,
		[]any{AdminUser, AdminUser, AdminUser}, &x.applierEnds, &x.applierCommits, &x.applierStarts, &x.seenStarts); err != nil {
		return x, err
	}
	return x, a.countXA(ctx, &x)
}

// countXA counts the statements of all sessions, which costs less than to count the applier's.
func (a *Admin) countXA(ctx context.Context, x *xaStatements) error {
	counted, err := rows.Map[int64](ctx, a.db, `SHOW GLOBAL STATUS WHERE variable_name IN ('Com_xa_start', 'Com_xa_commit', 'Com_xa_rollback')`)
	if err != nil {
		return fmt.Errorf("count XA statements: %w", err)
	}
	for name, n := range counted {
		switch strings.ToLower(name) {
		case "com_xa_start":
			x.starts = n
		case "com_xa_commit":
			x.commits = n
			fallthrough
		default:
			x.ends += n
		}
	}
	return nil
}

// BeginReplica notes that the server is a replica from now on, and fails if an XA transaction
// is prepared. So XA transactions that clients ended before were not the applier's. It need not
// be called for a server that was a replica from its start.
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
	p.xaNoneOf.Store(nil)
	return nil
}

// ForeignXA tells whether a client may have ended an XA transaction that the applier had
// prepared. Read-only does not stop that, no binlog has it, and it leaves no GTID: the server
// is no longer a copy of the others. After a restart, the applier prepares the transaction
// again. That repairs a rollback. After a commit it often gives no error either, and then hides
// that the data differ: see ForeignXACommit.
func (p *Process) ForeignXA(ctx context.Context) (bool, error) {
	before, now, err := p.xaSince(ctx)
	return err == nil && now.foreign(before), err
}

// ForeignXACommit tells whether a client may have run XA COMMIT since this server became a
// replica. The log and Admin.PreparedXA tell whether the applier had prepared that transaction;
// a commit of a client's own does no harm. It may also return true while the applier itself
// runs an XA COMMIT. Each poll of a replica calls it: while the count of XA COMMIT does not
// change, it reads only that count.
func (p *Process) ForeignXACommit(ctx context.Context) (bool, error) {
	if known := p.xaNoneOf.Load(); known != nil {
		var now xaStatements
		if err := p.admin.countXA(ctx, &now); err != nil || now.commits == *known {
			return false, err
		}
	}
	before, now, err := p.xaSince(ctx)
	if err != nil || now.foreignCommit(before) {
		return err == nil, err
	}
	p.xaNoneOf.Store(&now.commits)
	return false, nil
}

func (p *Process) xaSince(ctx context.Context) (before, now xaStatements, err error) {
	if x := p.xaBefore.Load(); x != nil {
		before = *x
	}
	now, err = p.admin.xaStatements(ctx)
	return before, now, err
}

// NoteForeignXA notes durably that a client has committed an XA transaction that the applier
// had prepared. The data differ from those of the other nodes, and a restart would hide that.
// The note stays beside the data.
func (s *Server) NoteForeignXA() error {
	if err := vfs.Replace(vfs.As(s.fs, 0o600, nil), s.paths.foreignXA, []byte("a client committed XA transactions on this replica\n")); err != nil {
		return fmt.Errorf("note that a client committed XA transactions: %w", err)
	}
	return nil
}

// ForeignXANoted tells whether NoteForeignXA was called for these data.
func (s *Server) ForeignXANoted() (bool, error) {
	_, err := s.fs.Stat(s.paths.foreignXA)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
