package mysqld

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/mysql/rows"
)

// TestDBAPrivileges checks on a real server that the operator's account can do an operator's
// work, but nothing that avoids or fakes an ACK.
func TestDBAPrivileges(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	start(t, s).Kill()
	p := start(t, s) // The second init file repeats what the first one did.
	open(t, p)
	// There is no tap here: let commits pass, to see what is allowed.
	if err := p.Admin().exec(ctx(t), "semi-sync off", "SET GLOBAL rpl_semi_sync_source_enabled = OFF"); err != nil {
		t.Fatal(err)
	}
	dba := login(t, s, DBAUser, s.cfg.Secrets.DBA)
	mustExec(t, dba,
		"CREATE DATABASE app",
		"CREATE TABLE app.t (a INT PRIMARY KEY)",
		"INSERT INTO app.t VALUES (1)",
		"CREATE FUNCTION app.f() RETURNS INT DETERMINISTIC RETURN 1",
		"CREATE USER app@'%' IDENTIFIED BY 'Aa1-app'",
		"GRANT SELECT, INSERT, UPDATE, DELETE ON app.* TO app@'%'",
		"CREATE ROLE reader", "GRANT SELECT ON *.* TO reader", "GRANT reader TO app@'%'",
		"CREATE DEFINER = app@'%' VIEW app.v AS SELECT * FROM app.t",
		"ALTER USER dba@localhost IDENTIFIED BY '"+s.cfg.Secrets.DBA+"'",
		"FLUSH TABLES", "FLUSH STATUS", "SHOW BINARY LOGS", "SELECT * FROM mysql.user", "SELECT 1 FROM performance_schema.threads LIMIT 1",
	)
	mustBeForbidden(t, dba, forbiddenToDBA()...)
	if grants, err := p.Admin().ScanGrants(ctx(t)); err != nil || len(grants) != 0 {
		t.Errorf("ScanGrants after what dba may do: %v, %v", grants, err)
	}
}

// mustBeForbidden executes statements that must be refused for lack of a privilege.
func mustBeForbidden(t *testing.T, db *sql.DB, queries ...string) {
	t.Helper()
	for _, q := range queries {
		_, err := db.ExecContext(ctx(t), q)
		server := (*mysql.MySQLError)(nil)
		if !errors.As(err, &server) || !slices.Contains([]uint16{1044, 1045, 1142, 1227, 1698, 3161, 1356}, server.Number) {
			t.Errorf("%s: %v, want access denied", q, err)
		}
	}
}

// TestDBARole: a person's account with the role can do what dba can, also over the network.
// What it grants to others opens no way around the ACK either.
func TestDBARole(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	start(t, s).Kill()
	p := start(t, s) // the second init file keeps who has the role
	openAlone(t, p)
	mustExec(t, login(t, s, DBAUser, s.cfg.Secrets.DBA),
		"CREATE USER ann@'%' IDENTIFIED BY 'Aa1-ann' DEFAULT ROLE quorate_dba", "CREATE DATABASE app", "CREATE TABLE app.t (a INT PRIMARY KEY)")
	ann := login(t, s, "ann", "Aa1-ann")
	mustExec(t, ann,
		"INSERT INTO app.t VALUES (1)", "ALTER TABLE app.t ADD b INT", "CREATE TRIGGER app.tr BEFORE INSERT ON app.t FOR EACH ROW SET NEW.b = 1",
		"CREATE USER bob@'%' IDENTIFIED BY 'Aa1-bob'", "GRANT ALL ON app.* TO bob@'%'",
		"GRANT SELECT, INSERT, UPDATE, DELETE, PROCESS, REPLICATION CLIENT ON *.* TO bob@'%' WITH GRANT OPTION",
		"CREATE USER carl@'%' IDENTIFIED BY 'Aa1-carl'", "GRANT quorate_dba TO carl@'%'", "SET DEFAULT ROLE ALL TO carl@'%'",
		"FLUSH TABLES", "SHOW BINARY LOG STATUS", "SHOW REPLICA STATUS",
	)
	mustBeForbidden(t, ann, append(forbiddenToDBA(),
		"GRANT ALL ON *.* TO bob@'%'", "GRANT RELOAD ON *.* TO bob@'%'", "INSERT INTO mysql.func VALUES ('f', 0, 'f.so', 'function')",
		"INSERT INTO mysql.role_edges VALUES ('localhost', 'root', '%', 'ann', 'N')", "GRANT SYSTEM_USER ON *.* TO quorate_dba",
	)...)
	// An account with the role can use dba as a role and as a definer, which gives it nothing
	// more.
	mustExec(t, ann, "CREATE USER dora@'%' IDENTIFIED BY 'Aa1-dora'", "GRANT dba@localhost, quorate_dba TO dora@'%' WITH ADMIN OPTION", "SET DEFAULT ROLE ALL TO dora@'%'",
		"CREATE DEFINER = dba@localhost PROCEDURE app.blind() UPDATE performance_schema.setup_instruments SET enabled = 'NO'")
	dora := login(t, s, "dora", "Aa1-dora")
	mustExec(t, dora, "SELECT * FROM mysql.user")
	mustBeForbidden(t, dora, append(forbiddenToDBA(), "CALL app.blind()")...)
	bob := login(t, s, "bob", "Aa1-bob")
	mustExec(t, bob, "INSERT INTO app.t VALUES (2, 2)", "GRANT INSERT ON *.* TO carl@'%'")
	mustBeForbidden(t, bob, "UPDATE performance_schema.setup_consumers SET enabled = 'NO'", "UPDATE mysql.user SET super_priv = 'Y' WHERE user = 'bob'", "INSERT INTO mysql.db (host, db, user) VALUES ('%', 'x', 'bob')")
	mustBeForbidden(t, login(t, s, "carl", "Aa1-carl"), forbiddenToDBA()...)
	if grants, err := p.Admin().ScanGrants(ctx(t)); err != nil || len(grants) != 0 {
		t.Errorf("ScanGrants after what the role may do: %v, %v", grants, err)
	}
	p.Kill()
	p = start(t, s)
	open(t, p)
	mustExec(t, login(t, s, "ann", "Aa1-ann"), "SELECT * FROM app.t", "SHOW BINARY LOGS")
}

// TestRefusedDBAIsSeen: where dba cannot log in, the command that would do so says why beforehand.
func TestRefusedDBAIsSeen(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	p := start(t, s)
	for _, c := range []struct{ change, want string }{
		{"DO 0", ""},
		{"ALTER USER dba@localhost ACCOUNT LOCK", "locked"},
		{"ALTER USER dba@localhost IDENTIFIED BY 'Aa1-another' ACCOUNT UNLOCK", "1045"},
		{"DROP USER dba@localhost", "1045"},
	} {
		if err := p.Admin().SetSuperReadOnly(ctx(t), false, time.Second); err != nil {
			t.Fatal(err)
		}
		if err := p.Admin().exec(ctx(t), c.change, c.change); err != nil {
			t.Fatal(err)
		}
		if err := s.RefusesDBA(ctx(t), s.cfg.Secrets.DBA); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.change, err)
		}
	}
	p.Kill()
	if err := s.RefusesDBA(ctx(t), s.cfg.Secrets.DBA); err != nil {
		t.Errorf("nobody answers: %v", err)
	}
}

// TestStartKeepsReplicatedGrants: a start resets what dba and the role have globally and on the server's own schemas,
// and leaves their replicated privileges on other schemas, tables and routines alone: a REVOKE of these replicates, too,
// and stops the applier of a server that lacks them.
func TestStartKeepsReplicatedGrants(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	p := start(t, s)
	accounts := []string{"dba@localhost", "quorate_dba"}
	grants := func() (all []string) {
		t.Helper()
		for _, account := range accounts {
			of, err := rows.Column[string](ctx(t), p.Admin().db, "SHOW GRANTS FOR "+account)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, of...)
		}
		return all
	}
	fresh := grants()
	open(t, p)
	for _, q := range []string{"CREATE DATABASE app", "CREATE TABLE app.t (a INT, b INT)", "CREATE PROCEDURE app.p() DO 1"} {
		if err := p.Admin().exec(ctx(t), q, q); err != nil {
			t.Fatal(err)
		}
	}
	for _, account := range accounts {
		for _, q := range []string{
			"REVOKE SELECT, CREATE USER, FLUSH_TABLES ON *.* FROM ", "REVOKE GRANT OPTION ON *.* FROM ", "REVOKE INSERT ON app.* FROM ",
			"GRANT SELECT ON *.* TO ", "REVOKE SELECT ON mysql.* FROM ", "REVOKE SELECT ON performance_schema.* FROM ",
		} {
			if err := p.Admin().exec(ctx(t), q, q+account); err != nil {
				t.Fatal(err)
			}
		}
		for _, q := range []string{
			"GRANT SUPER, RELOAD, FILE, REPLICATION SLAVE ON *.* TO ", "GRANT SYSTEM_USER, BINLOG_ADMIN ON *.* TO ",
			"GRANT INSERT, UPDATE, DROP ON mysql.* TO ", "GRANT UPDATE ON performance_schema.* TO ",
			"GRANT FILE, SHUTDOWN, CREATE TABLESPACE ON *.* TO ", "GRANT DELETE ON mysql.gtid_executed TO ", "GRANT UPDATE (super_priv) ON mysql.user TO ",
			"GRANT SELECT ON app.t TO ", "GRANT SELECT, DELETE ON app.* TO ", "GRANT UPDATE (b) ON app.t TO ", "GRANT EXECUTE ON PROCEDURE app.p TO ",
		} {
			if err := p.Admin().exec(ctx(t), q, q+account); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.Kill()
	p = start(t, s)
	open(t, p)
	if found, err := p.Admin().ScanGrants(ctx(t)); err != nil || len(found) != 0 {
		t.Errorf("ScanGrants: %v, %v", found, err)
	}
	for _, account := range accounts {
		for _, q := range []string{
			"REVOKE SELECT ON app.t FROM ", "REVOKE UPDATE (b) ON app.t FROM ", "REVOKE SELECT, DELETE ON app.* FROM ", "REVOKE EXECUTE ON PROCEDURE app.p FROM ",
		} {
			if err := p.Admin().exec(ctx(t), q, q+account); err != nil {
				t.Error(err)
			}
		}
	}
	if diff := cmp.Diff(fresh, grants()); diff != "" {
		t.Errorf("privileges (-fresh +now):\n%s", diff)
	}
}

func forbiddenToDBA() []string {
	return []string{
		"SHUTDOWN", "RESTART",
		"SET GLOBAL rpl_semi_sync_source_enabled = OFF", "SET GLOBAL rpl_semi_sync_source_timeout = 1",
		"SET PERSIST max_connections = 3", "SET GLOBAL super_read_only = OFF",
		"SET SESSION xa_detach_on_prepare = OFF", "SET SESSION sql_log_bin = 0", "SET SESSION binlog_format = STATEMENT",
		"SET SESSION gtid_next = 'aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1'",
		"RESET BINARY LOGS AND GTIDS", "PURGE BINARY LOGS BEFORE NOW()", "FLUSH LOGS", "FLUSH BINARY LOGS",
		"STOP REPLICA", "CHANGE REPLICATION SOURCE TO SOURCE_HOST = 'x'", "CLONE INSTANCE FROM a@b:1 IDENTIFIED BY ''",
		"ALTER INSTANCE DISABLE INNODB REDO_LOG", "INSTALL PLUGIN x SONAME 'semisync_replica.so'",
		"UNINSTALL PLUGIN rpl_semi_sync_source", "INSTALL COMPONENT 'file://component_validate_password'",
		"CREATE TABLE app.m (a INT) ENGINE = MyISAM",
		"GRANT REPLICATION SLAVE ON *.* TO app@'%'", "GRANT SUPER ON *.* TO dba@localhost",
		"GRANT root@localhost TO dba@localhost", "GRANT quorate_tap@localhost TO dba@localhost",
		"GRANT `mysql.session`@localhost TO dba@localhost", "GRANT PROXY ON root@localhost TO dba@localhost",
		"ALTER USER quorate_tap@localhost IDENTIFIED BY 'x'", "DROP USER quorate_tap@localhost",
		"RENAME USER quorate_admin@localhost TO x@localhost", "ALTER USER root@localhost ACCOUNT UNLOCK",
		"SET PASSWORD FOR quorate_admin@localhost = 'x'",
		"CREATE DEFINER = root@localhost PROCEDURE app.p() SET GLOBAL super_read_only = ON",
		"CREATE DEFINER = `mysql.session`@localhost EVENT app.e ON SCHEDULE EVERY 1 SECOND DO SET GLOBAL max_connections = 1",
		"CLONE LOCAL DATA DIRECTORY = '/tmp/quorate-clone-local'", "LOCK INSTANCE FOR BACKUP",
		"UPDATE mysql.user SET super_priv = 'Y' WHERE user = 'dba'", "DELETE FROM mysql.global_grants",
		"INSERT INTO mysql.role_edges VALUES ('localhost', 'root', 'localhost', 'dba', 'N')",
		"UPDATE performance_schema.setup_instruments SET enabled = 'NO' WHERE name LIKE 'wait/lock/metadata%'",
		"UPDATE performance_schema.setup_consumers SET enabled = 'NO'", "DELETE FROM performance_schema.setup_actors",
		"UPDATE performance_schema.threads SET instrumented = 'NO'", "TRUNCATE performance_schema.setup_objects",
		"GRANT UPDATE ON performance_schema.* TO dba@localhost",
		"DROP TABLE mysql.user", "GRANT INSERT ON mysql.* TO dba@localhost", "GRANT UPDATE ON mysql.user TO dba@localhost",
	}
}

// TestPasswordsAreReset: whatever mysql.user has (another node's content, after a CLONE), a
// start gives the accounts this node's passwords again.
func TestPasswordsAreReset(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	start(t, s).Kill()
	s.cfg.Secrets = Secrets{
		Admin: "Aa1-other-admin-0123", Tap: "Aa1-other-tap-012345",
		DBA: "Aa1-other-dba-012345",
	}
	p := start(t, s)
	for user, password := range map[string]string{TapUser: s.cfg.Secrets.Tap, DBAUser: s.cfg.Secrets.DBA} {
		if err := login(t, s, user, password).PingContext(ctx(t)); err != nil {
			t.Errorf("login as %s: %v", user, err)
		}
	}
	for user, password := range map[string]string{DBAUser: testSecrets().DBA, "root": ""} {
		if err := login(t, s, user, password).PingContext(ctx(t)); err == nil {
			t.Errorf("login as %s with the old password succeeded", user)
		}
	}
	// The internal accounts exist for the socket only, never over TCP.
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.Net, cfg.Addr = DBAUser, s.cfg.Secrets.DBA, "tcp", "127.0.0.1:"+strconv.Itoa(s.cfg.Port)
	cfg.TLSConfig = "skip-verify"
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	defer func() { _ = db.Close() }()
	server := (*mysql.MySQLError)(nil)
	if err := db.PingContext(ctx(t)); !errors.As(err, &server) {
		t.Errorf("login as dba over TCP: %v, want a refusal by the server", err)
	}
	if set, err := p.Admin().GTIDExecuted(ctx(t)); err != nil || set != "" {
		t.Errorf("the init files left GTIDs: %q, %v", set, err)
	}
}

// seesEachDrift makes one change after the other, and undoes it: CheckGuarded sees each,
// although it reads less once all was well.
func seesEachDrift(t *testing.T, p *Process) {
	t.Helper()
	for _, c := range []struct{ name, drift, back string }{
		{"", "DO 0", "DO 0"},
		{"binlog_order_commits", "SET GLOBAL binlog_order_commits = OFF", "SET GLOBAL binlog_order_commits = ON"},
		{"max_binlog_size", "SET GLOBAL max_binlog_size = 4096", "SET GLOBAL max_binlog_size = 134217728"},
		{"binlog_checksum", "SET GLOBAL binlog_checksum = NONE", "SET GLOBAL binlog_checksum = CRC32"},
		{"offline_mode", "SET GLOBAL offline_mode = ON", "SET GLOBAL offline_mode = OFF"},
		{"status Innodb_redo_log_enabled", "ALTER INSTANCE DISABLE INNODB REDO_LOG", "ALTER INSTANCE ENABLE INNODB REDO_LOG"},
	} {
		if drift, err := p.CheckGuarded(ctx(t)); err != nil || len(drift) != 0 || !p.guarded.Load() {
			t.Fatalf("before %s: %v, %v", c.name, drift, err)
		}
		if err := p.Admin().exec(ctx(t), c.drift, c.drift); err != nil {
			t.Fatal(err)
		}
		same, err := p.Admin().guardedAsWanted(ctx(t), map[string]string{"log_bin": "ON"}, p.server.cfg.guardedSettings(p.options))
		if err != nil || same != (c.name == "") {
			t.Errorf("%s: as wanted: %t, %v", c.drift, same, err)
		}
		if drift, err := p.CheckGuarded(ctx(t)); c.name != "" && (err != nil || len(drift) != 1 || drift[0].Name != c.name) {
			t.Errorf("%s: %v, %v", c.drift, drift, err)
		}
		if err := p.Admin().exec(ctx(t), c.back, c.back); err != nil {
			t.Fatal(err)
		}
	}
	digests := 0
	err := p.Admin().query1(ctx(t), "digests", `SELECT COUNT(*) FROM performance_schema.events_statements_summary_by_digest
		WHERE digest_text LIKE 'SELECT ( SELECT COUNT ( * ) FROM `+"`performance_schema` . `global_status`%'", nil, &digests)
	if err != nil || digests != 2 { // of CheckGuarded, and of this test
		t.Errorf("the looks are %d different statements, %v", digests, err)
	}
}

// tooMuch gives accounts privileges that only quorate's own may have, and gives two accounts
// privileges that are allowed.
func tooMuch() []string {
	return []string{
		"CREATE USER foreign_replica IDENTIFIED BY 'Aa1-x'", "GRANT REPLICATION SLAVE ON *.* TO foreign_replica",
		"CREATE USER writer IDENTIFIED BY 'Aa1-x'", "GRANT INSERT ON mysql.* TO writer",
		"CREATE USER deleter IDENTIFIED BY 'Aa1-x'", "GRANT DELETE ON mysql.* TO deleter",
		"CREATE USER dropper IDENTIFIED BY 'Aa1-x'", "GRANT DROP ON *.* TO dropper",
		"CREATE USER held IDENTIFIED BY 'Aa1-x'", "GRANT INSERT, DELETE, DROP, ALTER, CREATE ON *.* TO held",
		"REVOKE INSERT, DELETE, DROP, ALTER, CREATE ON mysql.* FROM held",
		"CREATE USER halfheld IDENTIFIED BY 'Aa1-x'", "GRANT INSERT, DELETE, ALTER ON *.* TO halfheld", "REVOKE INSERT, ALTER ON mysql.* FROM halfheld",
		"CREATE USER tabled IDENTIFIED BY 'Aa1-x'", "GRANT DELETE ON mysql.gtid_executed TO tabled",
		"CREATE USER columned IDENTIFIED BY 'Aa1-x'", "GRANT UPDATE (super_priv) ON mysql.user TO columned",
		"CREATE USER roled IDENTIFIED BY 'Aa1-x'", "GRANT root@localhost TO roled",
		"CREATE USER variable IDENTIFIED BY 'Aa1-x'", "GRANT SYSTEM_VARIABLES_ADMIN, CONNECTION_ADMIN ON *.* TO variable",
		"CREATE USER harmless IDENTIFIED BY 'Aa1-x'", "GRANT SELECT, REPLICATION CLIENT ON *.* TO harmless",
		"ALTER USER root@localhost ACCOUNT UNLOCK",
	}
}

// givesUp: mysqld ends a look at the accounts that took too long. With 100 000 accounts each poll would leave one behind.
func givesUp(t *testing.T, a *Admin) {
	t.Helper()
	short, cancel := context.WithTimeout(ctx(t), 200*time.Millisecond)
	defer cancel()
	if _, err := a.grants(short, "SELECT 'u' AS user, 'h' AS host, BENCHMARK(1000000000000, SHA2('x', 256)) AS p", ""); err == nil {
		t.Fatal("the look ended in time")
	}
	ended, cancel := context.WithTimeout(ctx(t), 20*time.Second)
	defer cancel()
	for left := 1; left > 0; {
		if err := a.query1(ended, "looks", "SELECT COUNT(*) FROM performance_schema.threads WHERE processlist_info LIKE '%BENCHMARK(%' AND thread_id <> PS_CURRENT_THREAD_ID()", nil, &left); err != nil {
			t.Fatal("the look goes on: ", err)
		}
	}
}

func TestDriftAndGrantsAreSeen(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	p := start(t, s)
	a := p.Admin()
	// Our own sessions may do all this, and the binlog gets none of it.
	if err := a.SetSuperReadOnly(ctx(t), false, time.Second); err != nil {
		t.Fatal(err)
	}
	seesEachDrift(t, p)
	for _, q := range append(tooMuch(), "SET GLOBAL rpl_semi_sync_source_enabled = OFF", "SET GLOBAL binlog_order_commits = OFF",
		"SET GLOBAL innodb_flush_log_at_trx_commit = 1") {
		if err := a.exec(ctx(t), q, q); err != nil {
			t.Fatal(err)
		}
	}
	drift, err := p.CheckGuarded(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	want := []Drift{
		{"binlog_order_commits", "ON", "OFF"},
		{"innodb_flush_log_at_trx_commit", "2", "1"},
		{"rpl_semi_sync_source_enabled", "ON", "OFF"},
		{"status Rpl_semi_sync_source_status", "ON", "OFF"},
	}
	if diff := cmp.Diff(want, drift); diff != "" {
		t.Errorf("drift (-want +got):\n%s", diff)
	}
	givesUp(t, a)
	grants, err := a.ScanGrants(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []Grant{
		{"'foreign_replica'@'%'", "REPLICATION SLAVE"},
		{"'roled'@'%'", "role root"},
		{"'root'@'localhost'", "unlocked"},
		{"'root'@'localhost'", "REPLICATION SLAVE"},
		{"'variable'@'%'", "SYSTEM_VARIABLES_ADMIN"},
		{"'writer'@'%'", "write mysql.*"},
		{"'deleter'@'%'", "write mysql.*"},
		{"'dropper'@'%'", "write mysql.*"},
		{"'halfheld'@'%'", "write mysql.*"},
		{"'tabled'@'%'", "write mysql.*"},
		{"'columned'@'%'", "write mysql.*"},
	} {
		if !slices.Contains(grants, w) {
			t.Errorf("ScanGrants misses %v", w)
		}
	}
	for _, g := range grants {
		if !slices.Contains([]string{"'foreign_replica'@'%'", "'deleter'@'%'", "'dropper'@'%'", "'halfheld'@'%'", "'roled'@'%'", "'root'@'localhost'", "'variable'@'%'", "'writer'@'%'", "'tabled'@'%'", "'columned'@'%'"}, g.Account) {
			t.Errorf("ScanGrants reports %v", g)
		}
	}
	silentTap(t, s)
	eventually(t, "the dump session is listed", func() (bool, error) {
		status, err := a.PrimaryStatus(ctx(t))
		return slices.Equal(status.Dumps, []string{TapUser}), err
	})
}

// TestEveryPrivilegeIsExplained: docs/dba.md names every privilege of the server that the
// operator's account does not have, with the reason.
func TestEveryPrivilegeIsExplained(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/dba.md")
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t)
	p := start(t, s)
	rows, err := p.Admin().db.QueryContext(ctx(t), "SHOW PRIVILEGES")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	has := append(dbaStatic(), dbaDynamic(s.cfg.Installation.Version)...)
	has = append(has, "USAGE", "GRANT OPTION")
	n := 0
	for rows.Next() {
		var name, where, comment string
		if err := rows.Scan(&name, &where, &comment); err != nil {
			t.Fatal(err)
		}
		name = strings.ToUpper(name)
		if n++; !slices.Contains(has, name) && !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/dba.md does not say why %s is withheld", name)
		}
	}
	if err := rows.Err(); err != nil || n < 40 {
		t.Errorf("%d privileges, %v", n, err)
	}
}
