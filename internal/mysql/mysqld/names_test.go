package mysqld

import (
	"database/sql"
	"strconv"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/google/go-cmp/cmp"
)

// TestOurNameElsewhere: a session is ours by both name and host of its account. A DBA can make
// quorate_admin@'127.0.0.1', and that is a client like others.
func TestOurNameElsewhere(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	p := start(t, s)
	a := openAlone(t, p)
	mustExec(t, login(t, s, DBAUser, s.cfg.Secrets.DBA),
		"CREATE USER quorate_admin@'127.0.0.1' IDENTIFIED BY 'Aa1-x', quorate_tap@'127.0.0.1' IDENTIFIED BY 'Aa1-x'",
		"CREATE DATABASE app", "CREATE TABLE app.t (a INT PRIMARY KEY)", "INSERT INTO app.t VALUES (1)",
		"GRANT SELECT, UPDATE ON app.* TO quorate_admin@'127.0.0.1'", "GRANT SELECT, UPDATE ON app.* TO quorate_tap@'127.0.0.1'",
		"CREATE DEFINER = quorate_later@'%' VIEW app.v AS SELECT 1")
	over := func(user string) *sql.Conn {
		cfg := mysql.NewConfig()
		cfg.User, cfg.Passwd, cfg.Net, cfg.Addr = user, "Aa1-x", "tcp", "127.0.0.1:"+strconv.Itoa(s.cfg.Port)
		cfg.TLSConfig = "skip-verify"
		connector, err := mysql.NewConnector(cfg)
		if err != nil {
			t.Fatal(err)
		}
		db := sql.OpenDB(connector)
		t.Cleanup(func() { _ = db.Close() })
		conn, err := db.Conn(ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	holder, waiter := over("quorate_admin"), over("quorate_tap")
	for _, q := range []string{"BEGIN", "UPDATE app.t SET a = 2"} {
		if _, err := holder.ExecContext(ctx(t), q); err != nil {
			t.Fatal(err)
		}
	}
	waited := make(chan error, 1)
	go func() {
		_, err := waiter.ExecContext(ctx(t), "UPDATE app.t SET a = 3")
		waited <- err
	}()
	if n, err := a.OpenTransactions(ctx(t)); err != nil || n < 1 {
		t.Errorf("%d open transactions, %v", n, err)
	}
	eventually(t, "the session that waits for a lock is ended", func() (bool, error) {
		n, err := a.EndLockWaiters(ctx(t))
		return n > 0, err
	})
	if err := <-waited; err == nil {
		t.Error("its statement went on")
	}
	names, err := a.ReservedNames(ctx(t))
	want := []string{"account 'quorate_admin'@'127.0.0.1'", "account 'quorate_tap'@'127.0.0.1'", "definer quorate_later@% of view app.v"}
	if diff := cmp.Diff(want, names); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if err := a.exec(ctx(t), "close writes", "SET GLOBAL super_read_only = ON"); err != nil {
		t.Fatal(err)
	}
	if err := a.exec(ctx(t), "semi-sync on", "SET GLOBAL rpl_semi_sync_source_enabled = ON"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.ShutOut(ctx(t)); err != nil {
		t.Fatal(err)
	}
	if err := holder.PingContext(ctx(t)); err == nil {
		t.Error("a session with a name of ours was not shut out")
	}
}

// TestWithheldFromBefore: an account that still has privileges which quorate gives to nobody is found, but is no
// reason to fence. Privileges of dba, the role and our own accounts do not count.
func TestWithheldFromBefore(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	p := start(t, s)
	open(t, p)
	a := p.Admin()
	if got, err := a.WithheldGrants(ctx(t)); err != nil || len(got) > 0 {
		t.Errorf("at first: %v, %v", got, err)
	}
	for _, q := range []string{
		"SET GLOBAL rpl_semi_sync_source_enabled = OFF", "CREATE USER b@'%', f@'%', m@'%', p@'%'",
		"GRANT BACKUP_ADMIN ON *.* TO b@'%'", "GRANT FILE ON *.* TO f@'%'", "GRANT UPDATE ON performance_schema.* TO p@'%'",
		"GRANT UPDATE ON performance_schema.setup_instruments TO p@'%'",
		"INSERT INTO mysql.proxies_priv (host, user, proxied_host, proxied_user) VALUES ('%', 'p', '%', 'f')", "GRANT SELECT, BINLOG_ENCRYPTION_ADMIN, AUDIT_ABORT_EXEMPT ON *.* TO m@'%'",
	} {
		if err := a.exec(ctx(t), "grant", q); err != nil {
			t.Fatal(err)
		}
	}
	got, err := a.WithheldGrants(ctx(t))
	want := []Grant{
		{"'b'@'%'", "BACKUP_ADMIN"}, {"'f'@'%'", "FILE"}, {"'m'@'%'", "BINLOG_ENCRYPTION_ADMIN"}, {"'p'@'%'", "PROXY"}, {"'p'@'%'", "write performance_schema"},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if got, err := a.ScanGrants(ctx(t)); err != nil || len(got) > 0 {
		t.Errorf("it would be fenced for %v, %v", got, err)
	}
	if err := a.exec(ctx(t), "grant more", "GRANT BACKUP_ADMIN ON *.* TO f@'%'"); err != nil {
		t.Fatal(err)
	}
	if got, err := a.WithheldGrants(ctx(t)); err != nil || len(got) != accountsMax {
		t.Errorf("not bounded: %v, %v", got, err)
	}
	// As docs/dba.md says: an account cannot revoke a privilege that it does not have.
	dba := login(t, s, DBAUser, s.cfg.Secrets.DBA)
	for _, q := range []string{"REVOKE FILE ON *.* FROM f@'%'", "REVOKE ALL PRIVILEGES, GRANT OPTION FROM f@'%'"} {
		if _, err := dba.ExecContext(ctx(t), q); err == nil {
			t.Errorf("docs/dba.md says that this is refused: %s", q)
		}
	}
	mustExec(t, dba, "DROP USER b@'%', f@'%', m@'%', p@'%'")
	if got, err := a.WithheldGrants(ctx(t)); err != nil || len(got) > 0 {
		t.Errorf("they still hold %v, %v", got, err)
	}
}

// TestLogsInWith: accounts are named by the plugin with which they log in: those that are not locked, and none if the
// server does not have the plugin.
func TestLogsInWith(t *testing.T) {
	t.Parallel()
	a := openAlone(t, start(t, newServer(t)))
	for _, q := range []string{
		"CREATE USER app@'%' IDENTIFIED WITH sha256_password BY 'secret'", "CREATE USER held IDENTIFIED WITH sha256_password BY 'secret' ACCOUNT LOCK",
		"CREATE USER gone IDENTIFIED BY 'secret'", "UPDATE mysql.user SET plugin = 'no_such_plugin' WHERE user = 'gone'",
	} {
		if err := a.exec(ctx(t), "prepare", q); err != nil {
			t.Fatal(err)
		}
	}
	for plugin, want := range map[string][]string{"sha256_password": {"'app'@'%'"}, "no_such_plugin": {}, NativePassword: {}} {
		if got, err := a.LogsInWith(ctx(t), plugin); err != nil || !cmp.Equal(got, want) {
			t.Errorf("%s: %q, %v, want %q", plugin, got, err, want)
		}
	}
}
