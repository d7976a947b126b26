package drivers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// goSuite is that of go-sql-driver.
func (c *testCluster) goSuite(t *testing.T, by way) (all []result) {
	for _, port := range []struct {
		name, addrs string
		write       bool
	}{{"WRITE", by.write, true}, {"READ", by.read, false}} {
		g := goCases{c: c, addrs: strings.Split(port.addrs, ","), write: port.write, split: by.split}
		for _, one := range g.all() {
			ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
			r := result{name: port.name + " " + one.name}
			_, err := c.WaitAllReady(ctx) // the case before may have killed a node
			if err == nil {
				err = one.run(ctx, t)
			}
			if err != nil {
				r.err = err.Error()
			}
			cancel()
			all = append(all, r)
		}
	}
	return all
}

type goCases struct {
	c            *testCluster
	addrs        []string
	write, split bool
}

// dsn is of the port at one of its addresses.
func (g goCases) dsn(i int, settings string) string {
	user, password := g.c.Application()
	dsn := fmt.Sprintf("%s:%s@tcp(%s)/drivers?%s", user, password, g.addrs[i], settings)
	if g.split {
		dsn += "&timeout=2s"
		if !strings.Contains(settings, "tls=") {
			dsn += "&tls=skip-verify"
		}
	}
	return dsn
}

type goCase struct {
	name string
	run  func(context.Context, *testing.T) error
}

func (g goCases) all() []goCase {
	all := []goCase{
		{"plain", g.value("charset=utf8mb4", "SELECT CAST(1 + 1 AS CHAR)", "2")},
		{"tls", g.tls},
		{"wrong_password", g.wrongPassword},
		{"prepared", g.prepared},
		{"interpolated", g.value("interpolateParams=true", "SELECT CONCAT(?, '')", "it's", "it's")},
		{"charset", g.value("charset=utf8mb4", "SELECT text FROM data WHERE id = 1", "Zürich 日本 🐬")},
		{"large_result", g.largeResult},
		{"large_parameter", g.value("maxAllowedPacket=0", "SELECT CAST(LENGTH(?) AS CHAR)", "8000000", strings.Repeat("x", 8_000_000))},
		{"cancel", g.cancel},
		{"timeout", g.timeout},
		{"compressed", g.value("compress=true", "SELECT REPEAT('x', 100000)", strings.Repeat("x", 100_000))},
	}
	if !g.split { // MySQL Router forbids that where it shares connections
		all = append(all, goCase{"multi_statement", g.multi})
	}
	if g.write {
		all = append(all, goCase{"transaction", g.transaction}, goCase{"load_data", g.loadData})
	} else if !g.split { // its port for reads leads to the primary while it knows no replica
		all = append(all, goCase{"refused", g.refused})
	}
	return append(all, goCase{"switchover", g.goesOn("switchover")}, goCase{"failover", g.goesOn("kill")})
}

// db connects through each node in turn until one takes it, as docs/connect.md shows.
func (g goCases) db(t *testing.T, settings string) *sql.DB {
	return open(t, g.dsn(0, settings))
}

func (g goCases) value(settings, query, want string, args ...any) func(context.Context, *testing.T) error {
	return func(ctx context.Context, t *testing.T) error {
		var got string
		if err := g.db(t, settings).QueryRowContext(ctx, query, args...).Scan(&got); err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("%.80q, want %.80q", got, want)
		}
		return nil
	}
}

func (g goCases) tls(ctx context.Context, t *testing.T) error {
	var name, cipher string
	if err := g.db(t, "tls=skip-verify").QueryRowContext(ctx, "SHOW STATUS LIKE 'Ssl_cipher'").Scan(&name, &cipher); err != nil {
		return err
	}
	if cipher == "" {
		return errors.New("there is no TLS")
	}
	return nil
}

// fails wants a server's error.
func fails(err error, number uint16) error {
	if e := (*mysql.MySQLError)(nil); !errors.As(err, &e) || e.Number != number {
		return fmt.Errorf("%v, want error %d", err, number)
	}
	return nil
}

func (g goCases) wrongPassword(ctx context.Context, t *testing.T) error {
	cfg, err := mysql.ParseDSN(g.dsn(0, ""))
	if err != nil {
		return err
	}
	cfg.Passwd = "wrong"
	return fails(open(t, cfg.FormatDSN()).PingContext(ctx), 1045)
}

func (g goCases) prepared(ctx context.Context, t *testing.T) error {
	db := g.db(t, "parseTime=true")
	for range 50 {
		s, err := db.PrepareContext(ctx, "SELECT id, text, ?, ?, NOW(6) FROM data WHERE id = ?")
		if err != nil {
			return err
		}
		var id int64
		var text, a string
		var b float64
		var at time.Time
		if err := s.QueryRowContext(ctx, "it's", 1.5, 1).Scan(&id, &text, &a, &b, &at); err != nil {
			return err
		}
		if id != 1 || a != "it's" || b != 1.5 || at.IsZero() {
			return fmt.Errorf("%d %q %v %v", id, a, b, at)
		}
		if err := s.Close(); err != nil {
			return err
		}
	}
	return nil
}

func (g goCases) largeResult(ctx context.Context, t *testing.T) error {
	rows, err := g.db(t, "").QueryContext(ctx, "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT REPEAT('x', 20000) FROM n")
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	sum := 0
	for rows.Next() {
		var text sql.RawBytes
		if err := rows.Scan(&text); err != nil {
			return err
		}
		sum += len(text)
	}
	if sum != 20_000_000 {
		return fmt.Errorf("%d bytes", sum)
	}
	return rows.Err()
}

func (g goCases) multi(ctx context.Context, t *testing.T) error {
	rows, err := g.db(t, "multiStatements=true").QueryContext(ctx, "SELECT 1; SELECT 2")
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	if !rows.Next() || !rows.NextResultSet() || !rows.Next() {
		return errors.New("there are not two results")
	}
	return rows.Err()
}

func (g goCases) cancel(ctx context.Context, t *testing.T) error {
	db := g.db(t, "")
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if _, err := db.ExecContext(short, "DO SLEEP(20)"); !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("cancelled: %w", err)
	}
	return db.PingContext(ctx)
}

func (g goCases) timeout(ctx context.Context, t *testing.T) error {
	db := g.db(t, "readTimeout=500ms")
	began := time.Now()
	if _, err := db.ExecContext(ctx, "DO SLEEP(20)"); err == nil || time.Since(began) > 15*time.Second {
		return fmt.Errorf("%v after %v", err, time.Since(began))
	}
	return db.PingContext(ctx)
}

func (g goCases) refused(ctx context.Context, t *testing.T) error {
	_, err := g.db(t, "").ExecContext(ctx, "INSERT INTO data VALUES (99, 'no')")
	return fails(err, 1290)
}

func (g goCases) count(ctx context.Context, db *sql.DB, where string, want int) error {
	var n int
	if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM data WHERE "+where).Scan(&n); err != nil {
		return err
	}
	if n != want {
		return fmt.Errorf("%d rows where %s, want %d", n, where, want)
	}
	return nil
}

func (g goCases) transaction(ctx context.Context, t *testing.T) error {
	db := g.db(t, "")
	for _, end := range []struct {
		do   func(*sql.Tx) error
		rows int
	}{{(*sql.Tx).Rollback, 0}, {(*sql.Tx).Commit, 1}} {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO data VALUES (11001, ?)", "a"); err != nil {
			return err
		}
		if err := errors.Join(end.do(tx), g.count(ctx, db, "id = 11001", end.rows)); err != nil {
			return err
		}
	}
	return nil
}

func (g goCases) loadData(ctx context.Context, t *testing.T) error {
	var text strings.Builder
	for n := range 1000 {
		fmt.Fprintf(&text, "%d,row\n", 12001+n)
	}
	mysql.RegisterReaderHandler("rows", func() io.Reader { return strings.NewReader(text.String()) })
	defer mysql.DeregisterReaderHandler("rows")
	db := g.db(t, "")
	if _, err := db.ExecContext(ctx, "LOAD DATA LOCAL INFILE 'Reader::rows' INTO TABLE data FIELDS TERMINATED BY ','"); err != nil {
		return err
	}
	return g.count(ctx, db, "id BETWEEN 12001 AND 13000", 1000)
}

// goesOn is what docs/connect.md says: a pool whose connections live for a minute, a loop over the hosts, what had no
// OK is repeated.
func (g goCases) goesOn(what string) func(context.Context, *testing.T) error {
	return func(ctx context.Context, t *testing.T) error {
		var pools []*sql.DB
		for i := range g.addrs {
			db := open(t, g.dsn(i, "timeout=5s&readTimeout=40s&writeTimeout=10s"))
			db.SetConnMaxLifetime(time.Minute)
			db.SetMaxOpenConns(4)
			pools = append(pools, db)
		}
		if err := pools[0].PingContext(ctx); err != nil {
			return err
		}
		resp, err := http.Get(g.c.control + "/" + what)
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", what, resp.Status)
		}
		for n := 0; ; n++ {
			err := g.once(ctx, pools[n%len(pools)], what)
			if err == nil {
				return nil
			}
			if ctx.Err() != nil {
				return err
			}
		}
	}
}

func (g goCases) once(ctx context.Context, db *sql.DB, what string) error {
	if g.write {
		if _, err := db.ExecContext(ctx, "REPLACE INTO data VALUES (14001, ?)", what); err != nil {
			return err
		}
	}
	var readOnly bool
	if err := db.QueryRowContext(ctx, "SELECT @@super_read_only").Scan(&readOnly); err != nil {
		return err
	}
	if readOnly == g.write && !g.split {
		return fmt.Errorf("super_read_only is %t", readOnly)
	}
	return g.count(ctx, db, "id = 1", 1)
}
