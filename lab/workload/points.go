package workload

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/quorate/quorate/lab/peers"
)

// The names of the workloads of Points in plans.
const (
	PointSelectName = "point_select"
	PointUpdateName = "point_update"
)

// Points reads or writes one row of sysbench's tables by its key in each transaction. A statement does so little that
// the figures show the cost of what is between client and server. Every connection has TLS: without it MySQL Router's
// port that splits reads from writes sends everything to the primary.
type Points struct {
	Sysbench
	Dial   Dial
	Writes bool
}

// Run runs the load. Threads are spread over the endpoints.
func (p Points) Run(ctx context.Context, at []peers.Endpoint, l Load) (Sample, error) {
	return runTerminals(ctx, l.Script, at, l, p.open, func(m *terminal) {
		m.step = func(ctx context.Context) error { return p.step(ctx, m) }
	})
}

func (p Points) open(e peers.Endpoint) (*sql.DB, error) { return openTLS(p.Dial, e, "skip-verify") }

// step is one transaction. If it fails, its connection is closed.
func (p Points) step(ctx context.Context, m *terminal) error {
	err := p.connected(ctx, m)
	table, id := m.between(1, p.Tables), m.between(1, p.Rows)
	switch {
	case err != nil:
	case p.Writes:
		err = m.exec(ctx, fmt.Sprintf("UPDATE sbtest%d SET k = k + 1 WHERE id = ?", table), id)
	default:
		var c string
		err = m.row(ctx, fmt.Sprintf("SELECT c FROM sbtest%d WHERE id = ?", table), []any{id}, &c)
	}
	if err != nil && m.conn != nil {
		m.disconnect()
		m.reconnects++
	}
	return err
}

// connected opens a connection, if there is none. A session must begin with a read: docs/router.md says why.
func (p Points) connected(ctx context.Context, m *terminal) error {
	if m.conn != nil {
		return nil
	}
	if err := m.connect(ctx); err != nil {
		return err
	}
	var one int
	return m.row(ctx, "SELECT 1", nil, &one)
}
