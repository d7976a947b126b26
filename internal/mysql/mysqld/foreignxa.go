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

// xaStatements counts XA statements since the server's start, failed ones, too.
type xaStatements struct {
	// ends are XA COMMIT and XA ROLLBACK, starts are XA START: of everybody.
	ends, starts int64
	// commits are the XA COMMIT alone, as applierCommits are below.
	commits int64
	// Of these, the statement instruments of the Performance Schema have seen as many
	// of the applier (it runs as the account that started it, at localhost: anybody who may
	// make accounts can make one of that name at another host), and of everybody.
	applierEnds, applierStarts, seenStarts int64
	applierCommits                         int64
}

// foreign tells whether a client may have ended, since before, what the applier had
// prepared. A client's end in a stored program has no instrument, and whoever switches
// instruments off hides the applier's: both make it say yes.
func (x xaStatements) foreign(before xaStatements) bool {
	prepared := x.applierStarts > before.applierStarts || x.seenStarts != x.starts
	return prepared && x.ends-x.applierEnds > before.ends-before.applierEnds
}

// foreignCommit tells whether a client may have said XA COMMIT since before, of
// whatever. It is never wrongly false: see xaStatements.
func (x xaStatements) foreignCommit(before xaStatements) bool {
	return x.commits-x.applierCommits > before.commits-before.applierCommits
}

// xaStatements counts. The instruments are read first, and count a statement once it
// has ended: what the applier does meanwhile looks like a client's, never the reverse.
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

// countXA counts the statements of everybody, which costs less than the applier's.
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
	p.xaNoneOf.Store(nil)
	return nil
}

// ForeignXA tells whether a client may have ended an XA transaction that the applier
// had prepared. Read-only does not stop that, nothing of it is in a binlog, and it
// leaves no GTID: the server is no copy of the others any more. One that starts again
// prepares anew what was rolled back. It does so where it was committed, too, often
// without an error, and hides that its data differ: see ForeignXACommit.
func (p *Process) ForeignXA(ctx context.Context) (bool, error) {
	before, now, err := p.xaSince(ctx)
	return err == nil && now.foreign(before), err
}

// ForeignXACommit tells whether a client may have said XA COMMIT since this server
// became a replica. Whether it was of what the applier had prepared, the log and
// Admin.PreparedXA tell: a client's own is no harm. While the applier is at one, it may
// be that. It is asked at each poll of a replica: while nobody says XA COMMIT, only that
// is looked at.
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

// NoteForeignXA notes durably that a client has committed what the applier had prepared:
// the data differ from the others', and a start would hide that. The note goes with
// the data.
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
