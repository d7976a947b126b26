package mysqld

import (
	"context"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/rows"
)

// ErrNoXA is returned for an XA transaction that is not prepared.
var ErrNoXA = errors.New("no such XA transaction is prepared")

// xid is the identifier of a prepared XA transaction, as XA RECOVER shows it.
type xid struct {
	format       int64
	gtrid, bqual string
}

// sql returns the xid in the form that statements take.
func (x xid) sql() string { return fmt.Sprintf("X'%x',X'%x',%d", x.gtrid, x.bqual, x.format) }

// PendingXA returns how many XA transactions are prepared and not ended.
func (a *Admin) PendingXA(ctx context.Context) (int, error) {
	all, err := preparedXA(ctx, a.db)
	return len(all), err
}

// PreparedXA returns the XA transactions that are prepared and not ended, of clients and of the
// applier.
func (a *Admin) PreparedXA(ctx context.Context) (map[binlog.XID]bool, error) {
	all, err := preparedXA(ctx, a.db)
	if err != nil {
		return nil, err
	}
	found := map[binlog.XID]bool{}
	for _, x := range all {
		found[binlog.XID{GTRID: x.gtrid, BQUAL: x.bqual}] = true
	}
	return found, nil
}

func preparedXA(ctx context.Context, db rows.Querier) (all []xid, err error) {
	type row struct {
		format       int64
		gtrid, bqual int
		data         string
	}
	found, err := rows.All(ctx, db, func(r *row) []any { return []any{&r.format, &r.gtrid, &r.bqual, &r.data} }, "XA RECOVER CONVERT XID")
	if err != nil {
		return nil, fmt.Errorf("list prepared XA transactions: %w", err)
	}
	for _, r := range found {
		data, err := hex.DecodeString(strings.TrimPrefix(r.data, "0x"))
		if err != nil || r.gtrid < 0 || r.bqual < 0 || len(data) != r.gtrid+r.bqual {
			return nil, fmt.Errorf("list prepared XA transactions: XID %q of %d and %d bytes", r.data, r.gtrid, r.bqual)
		}
		all = append(all, xid{r.format, string(data[:r.gtrid]), string(data[r.gtrid:])})
	}
	return all, nil
}

// RollbackXA rolls a prepared XA transaction back. Like a client's statement it is binlogged
// and waits for its ACK, so the server must be open for writes. It returns ErrNoXA if the
// transaction is not prepared (any more).
func (a *Admin) RollbackXA(ctx context.Context, gtrid, bqual string) (err error) {
	conn, err := a.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("open session that rolls back: %w", err)
	}
	defer func() {
		// The pool's sessions must not write to the binlog.
		if _, off := conn.ExecContext(ctx, "SET SESSION sql_log_bin = OFF"); off != nil {
			_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // the pool drops it
		}
		_ = conn.Close()
	}()
	all, err := preparedXA(ctx, conn)
	if err != nil {
		return err
	}
	// The format does not identify the transaction, but XA ROLLBACK needs the right one.
	for _, x := range all {
		if x.gtrid != gtrid || x.bqual != bqual {
			continue
		}
		if _, err := conn.ExecContext(ctx, "SET SESSION sql_log_bin = ON"); err != nil {
			return fmt.Errorf("switch the session's binlog on: %w", err)
		}
		if _, err := conn.ExecContext(ctx, "XA ROLLBACK "+x.sql()); err != nil {
			return fmt.Errorf("roll back a prepared XA transaction: %w", err)
		}
		return nil
	}
	return ErrNoXA
}
