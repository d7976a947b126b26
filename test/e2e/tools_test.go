package e2e

import (
	"context"
	"crypto/tls"
	"database/sql"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/canal"
	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/quorate/quorate/internal/testkit/devcluster"
	"github.com/quorate/quorate/internal/testkit/ledger"
)

// TestTools: tools that capture changes use only the readers' port. While writers write they take a snapshot there,
// with its place in the log, and follow from that place, over a failover. One begins at the primary, which is killed
// with its agent, one at a replica; one goes by GTID, one by file and position. Each gets every row exactly once, in
// its snapshot or after it, in order.
func TestTools(t *testing.T) {
	beside(t)
	f := newReadersFixture(t)
	ctx := scenarioContext(t)
	primary := f.heal(t, ctx)
	f.toolAccount(t, ctx, primary)
	l := f.start(t, 4)
	l.awaitAcks(t, ctx, 100)
	tools := []*canalTool{
		f.canal(t, ctx, "at the primary, by GTID", primary, true),
		f.canal(t, ctx, "at the primary, by position", primary, false),
		f.canal(t, ctx, "at a replica, by GTID", next(primary), true),
		f.canal(t, ctx, "at a replica, by position", next(primary), false),
	}
	l.awaitAcks(t, ctx, 100)
	if err := f.KillBoth(primary); err != nil {
		t.Fatal(err)
	}
	now, err := f.WaitPrimary(ctx, primary)
	if err != nil {
		t.Fatal(err)
	}
	l.awaitAcks(t, ctx, 100)
	f.heal(t, ctx)
	l.stop(t)
	f.check(t, ctx)
	want := f.ledgerIDs(t, ctx, now)
	for _, tool := range tools {
		tool.finish(t, ctx, want)
	}
}

// toolAccount makes the account by which tools read data, as docs/readers.md says it.
func (f *readersFixture) toolAccount(t *testing.T, ctx context.Context, primary int) {
	t.Helper()
	for _, statement := range []string{
		"CREATE USER tool@localhost IDENTIFIED BY '" + strings.ReplaceAll(readerPassword, "'", "''") + "'",
		"GRANT SELECT, SHOW VIEW, SHOW DATABASES, LOCK TABLES, FLUSH_TABLES ON *.* TO tool@localhost",
	} {
		if _, err := f.local(t, primary).ExecContext(ctx, statement); err != nil {
			t.Fatalf("%.40s: %v", statement, err)
		}
	}
}

// changes has the rows of the ledger that a tool has got.
type changes struct {
	name string

	mu    sync.Mutex
	rows  []int64 // as they came
	first int     // how many of them are the snapshot's
	runs  int
}

// await waits until the tool has n rows.
func (c *changes) await(ctx context.Context, n int) error {
	return devcluster.Poll(ctx, fmt.Sprintf("%s has %d rows", c.name, n), func(context.Context) (bool, string, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.rows) >= n, fmt.Sprintf("%d, in %d runs", len(c.rows), c.runs), nil
	})
}

// check fails the test unless each row is there once, and each writer's rows are in the order in which it wrote them.
func (c *changes) check(t *testing.T, want []int64) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	last := map[int64]int64{}
	for _, id := range c.rows[c.first:] {
		writer := id >> 32
		if id <= last[writer] {
			t.Errorf("%s: row %d came behind row %d", c.name, id, last[writer])
		}
		last[writer] = id
	}
	t.Logf("%s: %d rows in the snapshot, %d behind it, in %d runs", c.name, c.first, len(c.rows)-c.first, c.runs)
	slices.Sort(c.rows)
	if !slices.Equal(c.rows, want) {
		t.Errorf("%s: %d rows, want %d", c.name, len(c.rows), len(want))
	}
}

// canalTool is a program with go-mysql's canal.
type canalTool struct {
	canal.DummyEventHandler
	changes
	byGTID bool
	f      *readersFixture
	cancel context.CancelFunc
	ended  chan error

	// With the rows, under their lock.
	place mysql.Position
	gtids mysql.GTIDSet
	// Of the transaction under way.
	gtid    mysql.GTIDSet
	pending []int64
}

// canal takes a snapshot at node i, and follows from there. Whenever the connection breaks, it goes on at the next node.
func (f *readersFixture) canal(t *testing.T, ctx context.Context, name string, i int, byGTID bool) *canalTool {
	t.Helper()
	c := &canalTool{changes: changes{name: name}, byGTID: byGTID, f: f, ended: make(chan error, 1)}
	if err := c.snapshot(t, ctx, i); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	ctx, c.cancel = context.WithCancel(ctx)
	go func() {
		for ; ctx.Err() == nil; i = next(i) {
			if err := c.run(ctx, i); err != nil {
				t.Logf("%s: %v", name, err)
			}
		}
		c.ended <- nil
	}()
	t.Cleanup(c.cancel)
	return c
}

// snapshot takes a snapshot as mysqldump --single-transaction --source-data and Debezium do.
func (c *canalTool) snapshot(t *testing.T, ctx context.Context, i int) error {
	db := openDSN(t, fmt.Sprintf("tool:%s@tcp(%s)/%s?tls=skip-verify", readerPassword, c.f.addrs[i], ledger.Database), nil)
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	for _, statement := range []string{"FLUSH TABLES WITH READ LOCK", "START TRANSACTION WITH CONSISTENT SNAPSHOT"} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	var do, ignore, set, name, create string
	if err := conn.QueryRowContext(ctx, "SHOW BINARY LOG STATUS").Scan(&c.place.Name, &c.place.Pos, &do, &ignore, &set); err != nil {
		return err
	}
	if c.gtids, err = mysql.ParseMysqlGTIDSet(set); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, "UNLOCK TABLES"); err != nil {
		return err
	}
	if err := conn.QueryRowContext(ctx, "SHOW CREATE TABLE "+ledger.Table).Scan(&name, &create); err != nil {
		return err
	}
	c.rows, err = c.read(ctx, conn)
	c.first = len(c.rows)
	return err
}

func (c *canalTool) read(ctx context.Context, conn *sql.Conn) (ids []int64, err error) {
	rows, err := conn.QueryContext(ctx, "SELECT id FROM "+ledger.Table)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// run follows at node i until the connection breaks.
func (c *canalTool) run(ctx context.Context, i int) error {
	cfg := canal.NewDefaultConfig()
	cfg.Addr, cfg.User, cfg.Password = c.f.addrs[i], "tool", readerPassword
	cfg.TLSConfig = &tls.Config{InsecureSkipVerify: true}
	cfg.ServerID = 7000 + uint32(len(c.name))
	cfg.Dump.ExecutionPath = ""
	cfg.MaxReconnectAttempts, cfg.HeartbeatPeriod, cfg.ReadTimeout = 1, 200*time.Millisecond, 5*time.Second
	cfg.IncludeTableRegex = []string{".*\\.ledger"}
	cfg.Logger = slog.New(slog.DiscardHandler)
	follower, err := canal.NewCanal(cfg)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, follower.Close)
	defer stop()
	c.mu.Lock()
	c.runs++
	c.pending, c.gtid = nil, nil
	place, gtids := c.place, c.gtids.Clone()
	c.mu.Unlock()
	follower.SetEventHandler(c)
	defer follower.Close()
	if c.byGTID {
		return follower.StartFromGTID(gtids)
	}
	return follower.RunFrom(place)
}

// OnGTID and the next methods implement canal.EventHandler.
func (c *canalTool) OnGTID(_ *replication.EventHeader, e mysql.BinlogGTIDEvent) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = nil
	c.gtid, err = e.GTIDNext()
	return err
}

func (c *canalTool) OnRow(e *canal.RowsEvent) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, row := range e.Rows {
		if id, ok := row[0].(int64); ok && e.Action == canal.InsertAction {
			c.pending = append(c.pending, id)
		} else {
			return fmt.Errorf("%s of %v", e.Action, row)
		}
	}
	return nil
}

func (c *canalTool) OnXID(_ *replication.EventHeader, at mysql.Position) error { return c.take(at) }

func (c *canalTool) OnDDL(_ *replication.EventHeader, at mysql.Position, _ *replication.QueryEvent) error {
	return c.take(at)
}

// take notes a whole transaction. at is the place after it.
func (c *canalTool) take(at mysql.Position) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rows = append(c.rows, c.pending...)
	c.pending, c.place = nil, at
	return c.gtids.Update(c.gtid.String())
}

func (c *canalTool) finish(t *testing.T, ctx context.Context, want []int64) {
	t.Helper()
	err := c.await(ctx, len(want))
	c.cancel()
	<-c.ended
	if err != nil {
		t.Error(err)
	}
	c.check(t, want)
}
