package mysqlwire

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/binlog/binlogtest"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// sqlFeed serves a log to a reader with SQL, whose statements are executed in m.
func sqlFeed(t *testing.T, log ReaderSource, m *testMysqld) *Feed {
	t.Helper()
	cfg := readersConfig(log, Reader{User: "cdc", PasswordHash: HashPassword("cdc's secret"), SQL: true, Password: "cdc's secret"})
	cfg.Readers.SQL = func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "unix", m.socket) }
	feed, err := NewFeed(cfg)
	if err == nil {
		err = feed.Listen()
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- feed.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return feed
}

// TestReaderSQL: a reader with SQL reads mysqld's data at the port from which it reads the log. It is told the
// position that mysqld has reached in the log, and can change nothing.
func TestReaderSQL(t *testing.T) {
	f := newSQLFixture(t)
	t.Run("Data", f.data)
	t.Run("Gone", f.gone)
	t.Run("WritesNothing", f.writesNothing)
	t.Run("Variables", f.variables)
	t.Run("Place", f.place)
	t.Run("Dump", f.dump)
	t.Run("SemiSync", f.semiSync)
	t.Run("DumpWaits", f.dumpWaits)
}

// gone: a client that leaves while its statement waits for a lock leaves its place among the readers, too.
func (f *sqlFixture) gone(t *testing.T) {
	lock, err := f.m.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := lock.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
			t.Error(err)
		}
		_ = lock.Close()
	}()
	if _, err := lock.ExecContext(t.Context(), "LOCK TABLES d.t WRITE"); err != nil {
		t.Fatal(err)
	}
	before := f.feed.Stats().Connections
	for _, quits := range []bool{false, true} {
		r := dialFeed(t, f.feed).loginAs("cdc")
		if err := r.wire.command(append([]byte{comQuery}, "SELECT COUNT(*) FROM d.t"...)); err != nil {
			t.Fatal(err)
		}
		waitUntil(t, "mysqld waits for the lock", func() bool {
			return f.m.text(t, "SELECT COUNT(*) FROM performance_schema.processlist WHERE user = 'cdc' AND state LIKE 'Waiting for table%'") == "1"
		})
		if quits {
			if err := r.wire.command([]byte{comQuit}); err != nil {
				t.Fatal(err)
			}
		}
		_ = r.wire.conn.Close()
		waitUntil(t, "the place is free", func() bool { return f.feed.Stats().Connections == before })
		waitUntil(t, "its statement ends", func() bool {
			return f.m.text(t, "SELECT COUNT(*) FROM performance_schema.processlist WHERE user = 'cdc' AND state LIKE 'Waiting for table%'") == "0"
		})
	}
}

// semiSync: a replica with semi-sync switched on reads here without it. It once stopped for good, at its first event.
func (f *sqlFixture) semiSync(t *testing.T) {
	replica := startMysqld(t, 8, "--skip-log-bin", "--plugin-load-add=rpl_semi_sync_replica=semisync_replica.so", "--rpl-semi-sync-replica-enabled=1")
	replica.exec(t, fmt.Sprintf("CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT=%d, SOURCE_USER='cdc', SOURCE_PASSWORD='cdc''s secret', "+
		"SOURCE_SSL=0, GET_SOURCE_PUBLIC_KEY=1, SOURCE_AUTO_POSITION=1", f.feed.Addr().(*net.TCPAddr).Port), "START REPLICA IO_THREAD")
	var s map[string]string
	waitUntil(t, "the replica reads, or gives up", func() bool {
		s = replica.status(t, "SHOW REPLICA STATUS")
		return s["Retrieved_Gtid_Set"] != "" || s["Last_IO_Error"] != ""
	})
	if s["Retrieved_Gtid_Set"] == "" || s["Last_IO_Error"] != "" {
		t.Errorf("it has %q: %s", s["Retrieved_Gtid_Set"], s["Last_IO_Error"])
	}
}

// sqlFixture is a mysqld, a log with four transactions that it does not have, and a feed of both.
type sqlFixture struct {
	m    *testMysqld
	log  *readerLog
	w    *binlogtest.Writer
	feed *Feed
	// db is a reader's connection. places has the positions in front of the transactions and
	// behind the last one.
	db     *sql.DB
	places []uint64
}

func newSQLFixture(t *testing.T) *sqlFixture {
	t.Helper()
	m := startMysqld(t, 7, "--skip-log-bin", "--read-only=OFF", "--plugin-load-add=rpl_semi_sync_source=semisync_source.so")
	m.exec(t, "CREATE USER cdc@localhost IDENTIFIED BY 'cdc''s secret'", "GRANT ALL ON d.* TO cdc@localhost", "GRANT FLUSH_TABLES, PROCESS ON *.* TO cdc@localhost",
		"CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, b LONGBLOB)", "INSERT INTO d.t VALUES (1, REPEAT('x', 20000000)), (2, NULL)")
	w := binlogtest.New("q.000001")
	format := w.FormatDescription(1)
	log := newReaderLog(Piece{Index: 2, FormatDescription: format})
	places := []uint64{uint64(4 + len(format))}
	for i := range 4 {
		events := binlogtest.Join(w.Rows(10)...)
		log.add(Piece{Index: uint64(2 + i), Events: events})
		places = append(places, places[i]+uint64(len(events)))
	}
	feed := sqlFeed(t, log, m)
	driver := mysql.NewConfig()
	driver.User, driver.Passwd, driver.Net, driver.Addr, driver.DBName = "cdc", "cdc's secret", "tcp", feed.Addr().String(), "d"
	driver.Logger, driver.MaxAllowedPacket = &mysql.NopLogger{}, 0
	connector, err := mysql.NewConnector(driver)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return &sqlFixture{m, log, w, feed, db, places}
}

func (f *sqlFixture) data(t *testing.T) {
	var id, length, n int
	for _, args := range [][]any{nil, {1}} { // as text, and prepared
		query := "SELECT id, LENGTH(b) FROM t WHERE id = 1"
		if args != nil {
			query = "SELECT id, LENGTH(b) FROM t WHERE id = ?"
		}
		if err := f.db.QueryRowContext(t.Context(), query, args...).Scan(&id, &length); err != nil || id != 1 || length != 20_000_000 {
			t.Errorf("%s: %d, %d, %v", query, id, length, err)
		}
	}
	var blob []byte
	if err := f.db.QueryRowContext(t.Context(), "SELECT b FROM t WHERE id = 1").Scan(&blob); err != nil || len(blob) != 20_000_000 || strings.Trim(string(blob), "x") != "" {
		t.Errorf("%d bytes, %v", len(blob), err)
	}
	if err := f.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM t").Scan(&n); err != nil || n != 2 {
		t.Errorf("%d rows, %v", n, err)
	}
	if _, err := f.db.ExecContext(t.Context(), "SELECT * FROM nothing"); err == nil || !strings.Contains(err.Error(), "1146") {
		t.Error(err)
	}
}

func (f *sqlFixture) writesNothing(t *testing.T) {
	for _, statement := range []string{"INSERT INTO t VALUES (3, NULL)", "TRUNCATE t", "SET SESSION transaction_read_only = OFF", "FLUSH TABLES"} {
		if _, err := f.db.ExecContext(t.Context(), statement); err == nil || !strings.Contains(err.Error(), "1290") {
			t.Errorf("%s: %v", statement, err)
		}
	}
	f.m.exec(t, "SET GLOBAL log_bin_trust_function_creators = ON", "CREATE FUNCTION d.f() RETURNS INT BEGIN INSERT INTO d.t VALUES (9, NULL); RETURN 1; END")
	if _, err := f.db.ExecContext(t.Context(), "SELECT f()"); err == nil || !strings.Contains(err.Error(), "1792") {
		t.Error(err)
	}
	r := dialFeed(t, f.feed).loginAs("cdc")
	if got := r.query("SELECT 1"); got != "1" {
		t.Error(got)
	}
	if err := r.wire.command([]byte{comResetConnection}); err != nil || r.wire.expectOK() != nil {
		t.Fatal(err)
	}
	if got := r.query("SELECT d.f()"); !strings.Contains(got, "1792") {
		t.Errorf("after a reset: %s", got)
	}
}

func (f *sqlFixture) variables(t *testing.T) {
	r := dialFeed(t, f.feed).loginAs("cdc")
	for ask, want := range map[string]string{
		"SELECT @@global.server_id": "1600000001",
		"SELECT @@server_uuid":      feedUUID,
		"SELECT CONCAT(@@log_bin, @@global.log_slave_updates, @@server_id)": "111600000001",
		"SELECT @@global.gtid_purged":                                       "",
		"SET @master_binlog_checksum = @@global.binlog_checksum":            "OK",
		"SELECT @master_binlog_checksum":                                    "CRC32",
	} {
		if got := r.query(ask); got != want {
			t.Errorf("%s: %q, want %q", ask, got, want)
		}
	}
	var name, value string
	for variable, want := range map[string]string{"log_bin": "ON", "server_uuid": feedUUID, "port": f.m.text(t, "SELECT @@port")} {
		if err := f.db.QueryRowContext(t.Context(), "SHOW GLOBAL VARIABLES LIKE '"+variable+"'").Scan(&name, &value); err != nil || value != want {
			t.Errorf("%s = %s, %v, want %s", name, value, err, want)
		}
	}
	rows, err := f.db.QueryContext(t.Context(), "SHOW GRANTS")
	if err != nil {
		t.Fatal(err)
	}
	var grants []string
	for rows.Next() {
		if err := rows.Scan(&value); err != nil {
			t.Fatal(err)
		}
		grants = append(grants, value)
	}
	if err := rows.Err(); err != nil || len(grants) < 3 || !strings.Contains(grants[len(grants)-1], "REPLICATION SLAVE") {
		t.Errorf("%q, %v", grants, err)
	}
}

func (f *sqlFixture) place(t *testing.T) {
	conn, err := f.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.ExecContext(t.Context(), "FLUSH TABLES WITH READ LOCK"); err != nil { // else it waits for what mysqld lacks
		t.Fatal(err)
	}
	for n := range f.places {
		if n > 0 {
			f.m.exec(t, fmt.Sprintf("SET GLOBAL gtid_purged = '+%s'", binlogtest.GTID(uint64(n))))
		}
		var file, do, ignore, set string
		var offset uint64
		if err := conn.QueryRowContext(t.Context(), "SHOW BINARY LOG STATUS").Scan(&file, &offset, &do, &ignore, &set); err != nil {
			t.Fatal(err)
		}
		want := &gtid.Set{}
		for i := range n {
			want.Add(binlogtest.GTID(uint64(i + 1)))
		}
		wantAt := f.places[n]
		if n == 0 {
			wantAt = 4 // in front of all
		}
		if file != fileName(false, 2) || offset != wantAt || set != want.String() {
			t.Errorf("mysqld has %s: %s, %d, %s, want %d of %v", want, file, offset, set, wantAt, f.places)
		}
	}
}

func (f *sqlFixture) dump(t *testing.T) {
	r := dialFeed(t, f.feed).loginAs("cdc")
	if got := r.query("SELECT COUNT(*) FROM d.t"); got != "2" {
		t.Fatal(got)
	}
	all, err := r.byFile(fileName(false, 2), uint32(f.places[3]), flagNonBlock).events(100)
	if err != errEOF || !slices.Equal([]uint64{f.places[4]}, []uint64{all[len(all)-1].End}) {
		t.Errorf("%d events, %v", len(all), err)
	}
}

// dumpWaits: a reader with SQL gets no transaction that this mysqld has not applied; it gets heartbeats
// instead.
func (f *sqlFixture) dumpWaits(t *testing.T) {
	f.log.add(Piece{Index: 6, Events: binlogtest.Join(f.w.Rows(10)...)})
	r := dialFeed(t, f.feed).loginAs("cdc").dump("b", 20*time.Millisecond, 0)
	var seen []binlog.Type
	for len(seen) < 1000 && (len(seen) == 0 || seen[len(seen)-1] != binlog.TypeHeartbeat) {
		event, err := r.next()
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, event.Type())
	}
	n := 0
	for _, kind := range seen {
		if kind == binlog.TypeGTID {
			n++
		}
	}
	if n != 4 {
		t.Errorf("%d transactions before the first heartbeat, want the 4 that mysqld has: %v", n, seen)
	}
	f.m.exec(t, fmt.Sprintf("SET GLOBAL gtid_purged = '+%s'", binlogtest.GTID(5)))
	for kind := binlog.TypeHeartbeat; kind != binlog.TypeGTID; {
		event, err := r.next()
		if err != nil {
			t.Fatal(err)
		}
		kind = event.Type()
	}
}

// TestReaderSQLWithoutMysqld: without mysqld a reader with SQL still gets the log, and an error for its statements.
func TestReaderSQLWithoutMysqld(t *testing.T) {
	log := samples(t)
	feed := sqlFeed(t, log, &testMysqld{socket: t.TempDir() + "/none"})
	r := dialFeed(t, feed).loginAs("cdc")
	if got := r.query("SELECT @@global.server_uuid"); got != feedUUID {
		t.Error(got)
	}
	if got := r.query("SELECT 1"); !strings.Contains(got, "this node's mysqld cannot be asked") {
		t.Error(got)
	}
	if all, err := dialFeed(t, feed).loginAs("cdc").byFile("", 4, flagNonBlock).events(100); err != errEOF || len(all) == 0 {
		t.Errorf("%d events, %v", len(all), err)
	}
}
