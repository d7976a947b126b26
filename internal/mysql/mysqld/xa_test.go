package mysqld

import (
	"database/sql"
	"errors"
	"testing"
)

// TestRollbackXA: a prepared XA transaction of a client is rolled back with a GTID, whatever
// its XID is. Afterwards the session writes no binlog any more.
func TestRollbackXA(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	p := start(t, s)
	a := openAlone(t, p)
	client := login(t, s, DBAUser, s.cfg.Secrets.DBA)
	client.SetMaxOpenConns(1)
	mustExec(t, client, "CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY)",
		`XA START X'0027','b\\',7`, "INSERT INTO d.t VALUES (1)", `XA END X'0027','b\\',7`, `XA PREPARE X'0027','b\\',7`)
	before := executed(t, client)
	if err := a.RollbackXA(ctx(t), "\x00'", "b"); !errors.Is(err, ErrNoXA) {
		t.Fatalf("another one is rolled back: %v", err)
	}
	if err := a.RollbackXA(ctx(t), "\x00'", `b\`); err != nil {
		t.Fatal(err)
	}
	if n, err := a.PendingXA(ctx(t)); err != nil || n != 0 {
		t.Fatalf("%d prepared, %v", n, err)
	}
	after := executed(t, client)
	if after == before {
		t.Fatalf("the rollback has no GTID: %s", after)
	}
	if err := a.RollbackXA(ctx(t), "\x00'", `b\`); !errors.Is(err, ErrNoXA) {
		t.Fatalf("a second time: %v", err)
	}
	for range adminConnectionsMax - 2 { // without canary and gate; one of them has rolled back
		conn, err := a.db.Conn(ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		var on bool
		if err := conn.QueryRowContext(ctx(t), "SELECT @@SESSION.sql_log_bin").Scan(&on); err != nil || on {
			t.Fatalf("an administrative session writes the binlog: %t, %v", on, err)
		}
	}
}

// TestXAHasNoSession: XA PREPARE must detach the transaction from its session, or the agent
// could not end it: no log would be purged as long as the client likes.
func TestXAHasNoSession(t *testing.T) {
	t.Parallel()
	if guardedBy("xa-detach-on-prepare", "OFF") == "" {
		t.Error("the operator may set it")
	}
	s := newServer(t)
	p := start(t, s)
	a := openAlone(t, p)
	mustExec(t, login(t, s, DBAUser, s.cfg.Secrets.DBA), "CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY)",
		"CREATE USER app@'%' IDENTIFIED BY 'Aa1-app'", "GRANT ALL ON d.* TO app@'%'")
	prepare := func() *sql.DB {
		t.Helper()
		app := login(t, s, "app", "Aa1-app")
		app.SetMaxOpenConns(1) // a session that stays
		mustExec(t, app, "DO 0")
		mustBeForbidden(t, app, "SET SESSION xa_detach_on_prepare = OFF")
		mustExec(t, app, "XA START 'x'", "INSERT INTO d.t VALUES (1)", "XA END 'x'", "XA PREPARE 'x'")
		return app
	}
	prepare()
	if err := a.RollbackXA(ctx(t), "x", ""); err != nil {
		t.Errorf("its session lives, and it cannot be ended: %v", err)
	}
	if err := a.exec(ctx(t), "keep it in the session", "SET GLOBAL xa_detach_on_prepare = OFF"); err != nil {
		t.Fatal(err)
	}
	app := prepare()
	if err := a.RollbackXA(ctx(t), "x", ""); err == nil {
		t.Error("it can be ended all the same: the operator may set what he likes")
	}
	mustExec(t, app, "XA ROLLBACK 'x'")
}
