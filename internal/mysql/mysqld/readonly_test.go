package mysqld

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

// TestStatementsThatReadOnlyLetsPass: some statements of a DBA write to the binlog of a
// read-only server. They wait for an ACK like a commit, and while semi-sync is off they get OK
// without it. InnoDB does not store them, so a server that is killed has forgotten them, unless
// it has begun a new binlog since.
func TestStatementsThatReadOnlyLetsPass(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	p := start(t, s)
	for _, c := range []struct {
		statement string
		rotate    bool
		kept      bool
	}{
		{"FLUSH TABLES", false, false},
		{"FLUSH TABLES", true, true},
	} {
		done := passReadOnly(t, s, p, c.statement)
		if err := p.Admin().RestartAckReceiver(ctx(t)); !errors.Is(err, ErrWritesPending) {
			t.Fatalf("%s waits, and semi-sync was switched off and on: %v", c.statement, err)
		}
		if owned, err := p.Admin().InCommit(ctx(t)); err != nil || !owned {
			t.Fatalf("%s waits and is not seen in its commit: %v", c.statement, err)
		}
		before := executedBy(t, p)
		if err := p.Admin().exec(ctx(t), "switch off", "SET GLOBAL rpl_semi_sync_source_enabled = OFF"); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatalf("%s: %v", c.statement, err)
		}
		if owned, err := p.Admin().InCommit(ctx(t)); err != nil || owned {
			t.Fatalf("%s has ended and is still in its commit: %v", c.statement, err)
		}
		if executedBy(t, p) == before {
			t.Errorf("%s has OK and is not in gtid_executed", c.statement)
		}
		if c.rotate {
			if err := p.Admin().NextBinlog(ctx(t)); err != nil {
				t.Fatal(err)
			}
		}
		p.Kill()
		p = start(t, s)
		if kept := executedBy(t, p) != before; kept != c.kept {
			t.Errorf("%s, new binlog %t: it is known after a kill: %t, want %t", c.statement, c.rotate, kept, c.kept)
		}
	}
}

// passReadOnly runs a statement as the DBA on a read-only server, and returns once
// it waits for its ACK.
func passReadOnly(t *testing.T, s *Server, p *Process, statement string) (done chan error) {
	t.Helper()
	db := login(t, s, DBAUser, s.cfg.Secrets.DBA)
	done = make(chan error, 1)
	go func() {
		_, err := db.ExecContext(context.WithoutCancel(t.Context()), statement)
		done <- errors.Join(err, db.Close())
	}()
	eventually(t, statement+" waits for its ACK", func() (bool, error) {
		if len(done) > 0 {
			return false, fmt.Errorf("it has ended: %w", <-done)
		}
		semi, err := p.Admin().SemiSyncStatus(ctx(t))
		return semi.WaitSessions == 1, err
	})
	return done
}

func executedBy(t *testing.T, p *Process) string {
	t.Helper()
	set, err := p.Admin().GTIDExecuted(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// The effect of a statement on a server with super_read_only.
const (
	refused = "refused"
	logged  = "passes, with a GTID"
	silent  = "passes, without a trace in the binlog"
)

type readOnlyCase struct{ want, statements string }

func readOnlyCases() []readOnlyCase {
	return []readOnlyCase{
		{refused, "INSERT INTO d.t VALUES (3)"},
		{refused, "DELETE FROM d.t WHERE a = 77"},
		{refused, "BEGIN; SELECT * FROM d.t FOR UPDATE"},
		{refused, "CREATE TABLE IF NOT EXISTS d.t (a INT)"},
		{refused, "DROP TABLE IF EXISTS d.missing"},
		{refused, "DROP USER IF EXISTS nobody"},
		{refused, "SET PASSWORD = 'Aa1-x'"},
		{refused, "ALTER TABLE d.u ENGINE = InnoDB"},
		{refused, "ANALYZE TABLE d.u"},
		{refused, "OPTIMIZE TABLE d.u"},
		{logged, "FLUSH TABLES"},
		{logged, "FLUSH PRIVILEGES"},
		{logged, "FLUSH STATUS"},
		{logged, "FLUSH USER_RESOURCES"},
		{logged, "FLUSH OPTIMIZER_COSTS"},
		{logged, "ANALYZE TABLE d.u UPDATE HISTOGRAM ON a"},
		{logged, "REPAIR TABLE d.u"},
		{logged, "XA PREPARE 'idle'"},
		{logged, "XA ROLLBACK 'idle'"},
		{logged, "XA COMMIT 'commit'"},
		{logged, "XA ROLLBACK 'rollback'"},
		{silent, "FLUSH LOCAL TABLES"},
		{silent, "CREATE TEMPORARY TABLE d.tmp (a INT); INSERT INTO d.tmp VALUES (1)"},
		{silent, "LOCK TABLES d.u READ"},
		{silent, "FLUSH TABLES WITH READ LOCK"},
		{silent, "XA START 'empty'; XA END 'empty'; XA PREPARE 'empty'"},
		{silent, "XA COMMIT 'empty'"},
	}
}

// TestWhatReadOnlyLetsPass is the table of docs/dba.md: what a DBA's statement does on a server
// with super_read_only. Semi-sync is off here, so that a statement that passes also ends.
func TestWhatReadOnlyLetsPass(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/dba.md")
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t)
	p := start(t, s)
	a := openAlone(t, p)
	mustExec(t, dbaSession(t, s), "CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY)", "CREATE TABLE d.u (a INT PRIMARY KEY)")
	for i, x := range []string{"commit", "rollback"} {
		mustExec(t, dbaSession(t, s), "XA START '"+x+"'", fmt.Sprintf("INSERT INTO d.t VALUES (%d)", i), "XA END '"+x+"'", "XA PREPARE '"+x+"'")
	}
	idle := dbaSession(t, s)
	mustExec(t, idle, "XA START 'idle'", "INSERT INTO d.t VALUES (10)", "XA END 'idle'")
	if err := a.SetSuperReadOnly(ctx(t), true, deadline); err != nil {
		t.Fatal(err)
	}
	for _, c := range readOnlyCases() {
		session := dbaSession(t, s)
		if strings.HasPrefix(c.statements, "XA PREPARE") {
			session = idle
		}
		before, got := executedBy(t, p), silent
		err := execAll(t, session, strings.Split(c.statements, "; "))
		switch server := (*mysql.MySQLError)(nil); {
		case errors.As(err, &server) && server.Number == 1290:
			got = refused
		case err != nil:
			got = err.Error()
		case executedBy(t, p) != before:
			got = logged
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.statements, got, c.want)
		}
		_ = session.Close()
		words := strings.Fields(c.statements)
		if name := strings.Join(words[:2], " "); got == logged && !strings.Contains(string(page), "`"+name) {
			t.Errorf("docs/dba.md does not say that read-only lets %s pass", name)
		}
	}
}

// dbaSession is one session of the DBA.
func dbaSession(t *testing.T, s *Server) *sql.DB {
	t.Helper()
	db := login(t, s, DBAUser, s.cfg.Secrets.DBA)
	db.SetMaxOpenConns(1)
	return db
}

func execAll(t *testing.T, session *sql.DB, statements []string) error {
	t.Helper()
	for _, q := range statements {
		if _, err := session.ExecContext(ctx(t), q); err != nil {
			return err
		}
	}
	return nil
}

// TestShutOut: from ShutOut on, only quorate can do anything, until clients are let in again.
// That holds for old and new sessions.
func TestShutOut(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	p := start(t, s)
	a := p.Admin()
	open(t, p)
	if _, err := a.ShutOut(ctx(t)); !errors.Is(err, ErrWritesPending) {
		t.Fatalf("clients are shut out of a writable server: %v", err)
	}
	silentTap(t, s)
	there := dbaSession(t, s)
	mustExec(t, there, "XA START 'x'", "SELECT 1", "XA END 'x'")
	if err := a.SetSuperReadOnly(ctx(t), true, deadline); err != nil {
		t.Fatal(err)
	}
	letIn, err := a.ShutOut(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := there.ExecContext(ctx(t), "XA PREPARE 'x'"); err == nil {
		t.Error("a session that was there goes on")
	}
	for range 3 { // an account with CONNECTION_ADMIN
		server := (*mysql.MySQLError)(nil)
		if err := login(t, s, DBAUser, s.cfg.Secrets.DBA).PingContext(ctx(t)); !errors.As(err, &server) || server.Number != 1040 {
			t.Errorf("a client comes in: %v", err)
		}
	}
	if err := a.RestartAckReceiver(ctx(t)); err != nil {
		t.Fatal(err)
	}
	_, _, tried := a.TryGlobals(ctx(t), map[string]string{maxConnections: "77"})
	for what, err := range map[string]error{"set": a.SetGlobal(ctx(t), maxConnections, "77"), "reset": a.ResetGlobal(ctx(t), "max-connections"), "try": tried} {
		if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Final() {
			t.Errorf("%s of %s, which keeps clients out: %v", what, maxConnections, err)
		}
	}
	if err := letIn(ctx(t)); err != nil {
		t.Fatal(err)
	}
	if err := login(t, s, DBAUser, s.cfg.Secrets.DBA).PingContext(ctx(t)); err != nil {
		t.Errorf("after clients were let in: %v", err)
	}
	if err := a.SetGlobal(ctx(t), maxConnections, "77"); err != nil {
		t.Errorf("set %s again: %v", maxConnections, err)
	}
	done := passReadOnly(t, s, p, "FLUSH TABLES")
	if _, err := a.ShutOut(ctx(t)); !errors.Is(err, ErrWritesPending) {
		t.Errorf("FLUSH TABLES waits for its ACK, and clients are shut out: %v", err)
	}
	p.Kill()
	<-done
}

// openWithoutACK returns an open server whose commits do not wait for an ACK.
func openWithoutACK(t *testing.T) (*Server, *Admin) {
	t.Helper()
	s := newServer(t)
	p := start(t, s)
	openAlone(t, p)
	return s, p.Admin()
}

// TestShutOutEndsEvents: a running event is no client, but could write like one (ANALYZE TABLE). It is ended, and no
// other begins.
func TestShutOutEndsEvents(t *testing.T) {
	t.Parallel()
	s, a := openWithoutACK(t)
	mustExec(t, dbaSession(t, s), "CREATE DATABASE d", "CREATE EVENT d.long ON SCHEDULE EVERY 1 SECOND DO DO SLEEP(1000)")
	if err := a.SetScheduler(ctx(t), true); err != nil {
		t.Fatal(err)
	}
	running := func() (n int) {
		t.Helper()
		err := a.query1(ctx(t), "events", "SELECT COUNT(*) FROM performance_schema.threads WHERE name LIKE 'thread/sql/event%'", nil, &n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for running() < 2 { // the scheduler, and an event
		time.Sleep(10 * time.Millisecond)
	}
	if err := a.SetSuperReadOnly(ctx(t), true, deadline); err != nil {
		t.Fatal(err)
	}
	letIn, err := a.ShutOut(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if n := running(); n != 0 {
		t.Errorf("clients are shut out, and %d threads of events run", n)
	}
	if err := a.SetScheduler(ctx(t), true); !errors.Is(err, ErrShutOut) { // a caller that has checked before comes too late
		t.Errorf("events are to run again: %v", err)
	}
	if err := letIn(ctx(t)); err != nil {
		t.Fatal(err)
	}
	if err := a.SetScheduler(ctx(t), true); err != nil {
		t.Errorf("clients are let in, and events may not run: %v", err)
	}
}

// TestEndReadersInLogin: a client that has a greeting but has not logged in has no host yet, and is ended, too. The
// agent's own sessions stay.
func TestEndReadersInLogin(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	p := start(t, s)
	if err := p.Admin().exec(ctx(t), "let logins take long", "SET GLOBAL connect_timeout = 3600"); err != nil {
		t.Fatal(err)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx(t), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.cfg.Port)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(deadline / 4))
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatalf("no greeting: %v", err)
	}
	if err := p.Admin().EndReaders(ctx(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a client in its login goes on")
	}
	if err := p.Admin().EndReaders(ctx(t)); err != nil {
		t.Errorf("the agent has no session: %v", err)
	}
}

// TestEndSessions: a reader with SQL has locked all tables, and its connection is closed while its statement runs. The server
// would keep the lock to the end of the statement.
func TestEndSessions(t *testing.T) {
	t.Parallel()
	s, a := openWithoutACK(t)
	dba := dbaSession(t, s)
	mustExec(t, dba, "CREATE USER cdc@localhost IDENTIFIED BY 'Aa1-cdc'", "GRANT FLUSH_TABLES ON *.* TO cdc@localhost")
	reader := login(t, s, "cdc", "Aa1-cdc")
	reader.SetMaxOpenConns(1)
	mustExec(t, reader, "FLUSH TABLES WITH READ LOCK")
	leaving, leave := context.WithCancel(ctx(t))
	left := make(chan error, 1)
	go func() {
		_, err := reader.ExecContext(leaving, "DO BENCHMARK(1000000000000, SHA2('a', 512))")
		left <- err
	}()
	sessions := func(want int) func() (bool, error) {
		return func() (bool, error) {
			var n int
			err := a.query1(ctx(t), "sessions", "SELECT COUNT(*) FROM performance_schema.processlist WHERE user = 'cdc' AND info LIKE 'DO%'", nil, &n)
			return n == want, err
		}
	}
	eventually(t, "the statement runs", sessions(1))
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if still, err := sessions(1)(); err != nil || !still {
		t.Fatalf("the server has noticed that the connection is closed: %v", err)
	}
	if err := a.EndSessions(ctx(t), "cdc"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the session ends", sessions(0))
	mustExec(t, dba, "CREATE DATABASE d")
	if err := a.EndSessions(ctx(t), AdminUser); err != nil {
		t.Errorf("the agent has ended its own session: %v", err)
	}
}

// TestShutOutWaitsForRollback: ShutOut waits until a session has rolled back, however long that
// takes. Only the caller's ctx bounds it.
func TestShutOutWaitsForRollback(t *testing.T) {
	t.Parallel()
	s, a := openWithoutACK(t)
	mustExec(t, dbaSession(t, s), "CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY, b CHAR(100))")
	mustExec(t, dbaSession(t, s), "SET cte_max_recursion_depth = 1000000", "BEGIN", `INSERT INTO d.t
		WITH RECURSIVE n (a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n WHERE a < 30000) SELECT a, a FROM n`)
	if err := a.SetSuperReadOnly(ctx(t), true, deadline); err != nil {
		t.Fatal(err)
	}
	if _, err := a.ShutOut(ctx(t)); err != nil {
		t.Fatal(err)
	}
	var left int
	if err := a.query1(ctx(t), "transactions", "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_rows_modified > 0", nil, &left); err != nil {
		t.Fatal(err)
	}
	if left != 0 {
		t.Errorf("clients are shut out, and %d sessions are still rolling back", left)
	}
}

// TestReplicaBinlogForgets: where the applier binlogs, semi-sync is off until EnableSemiSync.
// Only memory and the binlog know of a FLUSH TABLES then. So a promotion that finds it kills
// the process, and the node is not errant afterwards.
func TestReplicaBinlogForgets(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	p := startWith(t, s, StartOptions{ReplicaBinlog: true})
	before := executedBy(t, p)
	mustExec(t, dbaSession(t, s), "FLUSH TABLES")
	if executedBy(t, p) == before {
		t.Fatal("FLUSH TABLES has OK and is not in gtid_executed")
	}
	p.Kill()
	if p = start(t, s); executedBy(t, p) != before {
		t.Errorf("it is known after a kill: %s", executedBy(t, p))
	}
}
