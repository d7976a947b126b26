package mysqld

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/rows"
)

// bypassing are statements that give an account u@'%' what no account may have, beside those with one privilege.
func bypassing() []string {
	return []string{
		"grant replication client, system_variables_admin, connection_admin, xa_recover_admin on *.* to u@'%'",
		"grant reload, process, lock tables on *.* to u", "GRANT ALL ON *.* TO u", "grant all privileges on *.* to u with grant option",
		"GRANT SELECT, INSERT, UPDATE, DELETE ON *.* TO u", "GRANT /* reload */ SELECT,RELOAD/**/ON/**/*.*/**/TO u", "/* x */ GRANT\n\tReplication\n slave ON *.* TO u -- x",
		"/*!80000 GRANT RELOAD ON *.* TO u */", "GRANT `SYSTEM_USER` ON *.* TO u", "GRANT RELOAD ON *.* TO u AS root@localhost", "GRANT RELOAD ON *.* TO u WITH GRANT OPTION",
		"GRANT INSERT ON mysql.* TO u", "GRANT SELECT, DROP ON `mysql` . * TO u", "GRANT ALL ON mysql.* TO u", "GRANT ALL ON mysql.user TO u",
		"GRANT DELETE ON TABLE mysql.gtid_executed TO u", "GRANT SELECT (user), UPDATE (super_priv, reload_priv) ON mysql.user TO u", "GRANT CREATE VIEW ON mysql.user TO u",
		"GRANT root@localhost TO u", "GRANT harmless, 'root'@'LOCALHOST' TO u WITH ADMIN OPTION", "GRANT 'mysql.sys'@`localhost` TO u",
	}
}

// harmless are statements that give nothing of that kind.
func harmless() []string {
	return []string{
		"GRANT SELECT, REPLICATION CLIENT, PROCESS, CONNECTION_ADMIN, XA_RECOVER_ADMIN ON *.* TO u WITH GRANT OPTION", "GRANT ALL ON app.* TO u", "GRANT ALL ON app.t TO u",
		"GRANT CREATE VIEW, CREATE USER, CREATE ROUTINE, DROP ROLE ON *.* TO u", "GRANT SELECT /*, RELOAD */ ON *.* TO u", "GRANT SELECT ON mysql.* TO u", "GRANT INSERT ON app.`mysql` TO u",
		"GRANT harmless, `reload` TO u", "GRANT INSERT (a) ON app.t TO u", "GRANT EXECUTE ON PROCEDURE app.p TO u", "GRANT SELECT ON *.* TO u AS root@localhost",
		"ALTER USER u IDENTIFIED BY 'GRANT RELOAD ON *.* to x'", "ALTER USER u COMMENT 'root@localhost UNLOCK'",
	}
}

// TestBypassesIsTheScan: of a real server's privileges, alone and together, Bypasses tells which GRANT lets ScanGrants
// find the account. A followed server's GRANT that only the scan found took the cluster down for good.
func TestBypassesIsTheScan(t *testing.T) {
	t.Parallel()
	p := start(t, newServer(t))
	a := p.Admin()
	do := func(statements ...string) {
		t.Helper()
		for _, q := range statements {
			if err := a.exec(ctx(t), q, q); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := a.SetSuperReadOnly(ctx(t), false, 0); err != nil {
		t.Fatal(err)
	}
	do("CREATE DATABASE app", "CREATE TABLE app.t (a INT)", "CREATE TABLE app.mysql (a INT)", "CREATE PROCEDURE app.p() SELECT 1", "CREATE ROLE harmless, `reload`")
	names, err := rows.Column[string](ctx(t), a.db, "SELECT privilege_type FROM information_schema.user_privileges WHERE grantee = CONCAT(QUOTE(?), '@', QUOTE('localhost'))", AdminUser)
	if err != nil || len(names) < 60 {
		t.Fatalf("%d privileges, %v", len(names), err)
	}
	statements := append(bypassing(), harmless()...)
	for _, name := range names {
		statements = append(statements, "GRANT "+name+" ON *.* TO u", "GRANT SELECT, "+strings.ToLower(name)+" ON *.* TO u")
	}
	for _, q := range statements {
		do("CREATE USER u IDENTIFIED BY 'Aa1-x'", q)
		found, err := a.ScanGrants(ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		if got := Bypasses(binlog.Query{Text: q}, false); got != (len(found) > 0) {
			t.Errorf("%s: %t, and the scan finds %v", q, got, found)
		}
		do("DROP USER u")
	}
	for _, q := range bypassing() {
		if !Bypasses(binlog.Query{Text: q}, false) {
			t.Errorf("%s: nothing is found", q)
		}
	}
}

// TestBypassesBeside: what gives an account too much without a GRANT, or without a schema's name, is found, too.
func TestBypassesBeside(t *testing.T) {
	for q, want := range map[string]bool{
		"CREATE USER u DEFAULT ROLE root@localhost": true, "create user root@localhost identified by 'x'": true,
		"RENAME USER root@localhost TO u": true, "ALTER USER 'root'@'localhost' ACCOUNT /**/ UNLOCK": true,
		"ALTER USER root@localhost IDENTIFIED BY 'x'": false, "CREATE USER u DEFAULT ROLE root": false, "ALTER USER u ACCOUNT UNLOCK": false,
		"REVOKE IF EXISTS INSERT ON mysql.* FROM u": true, "REVOKE root@localhost FROM u": true, "REVOKE ALL PRIVILEGES, GRANT OPTION FROM u": false,
		"DROP USER root@localhost": false, "INSERT INTO t VALUES ('GRANT RELOAD ON *.* TO u')": false, "": false, "GRANT": false, "GRANT '": false,
	} {
		if got := Bypasses(binlog.Query{Text: q}, false); got != want {
			t.Errorf("%s: %t", q, got)
		}
	}
	for schema, want := range map[string]bool{"mysql": true, "app": false, "": false} {
		for _, on := range []string{"*", "user", "TABLE user"} {
			if got := Bypasses(binlog.Query{Schema: schema, Text: "GRANT INSERT ON " + on + " TO u"}, false); got != want {
				t.Errorf("%s in %q: %t", on, schema, got)
			}
		}
	}
}

// TestAttaches: what an account says beside a list of privileges kills no primary. Any account could take one after
// another down with a comment.
func TestAttaches(t *testing.T) {
	for text, want := range map[string]bool{
		"GRANT REPLICATION SLAVE ON *.* TO r@'%'": true, "grant select, replication\n slave on *.* to r": true, "GRANT SUPER ON *.* TO r": true,
		"/* x */ GRANT ALL ON *.* TO r@'%' WITH GRANT OPTION": true, "GRANT ALL PRIVILEGES ON *.* TO r": true, "GRANT GROUP_REPLICATION_ADMIN ON *.* TO r": true,
		"/*!80000 GRANT `REPLICATION_SLAVE_ADMIN` ON */ *.* TO r": true, "GRANT ALL ON * . * TO r": true,
		"GRANT ALL ON app.* TO r": false, "GRANT REPLICATION CLIENT ON *.* TO r": false, "GRANT SELECT ON *.* TO r": false, "GRANT": false, "": false,
		"REVOKE REPLICATION SLAVE ON *.* FROM r": false, "REVOKE ALL PRIVILEGES, GRANT OPTION FROM r /* GRANT SUPER */": false,
		"SET DEFAULT ROLE NONE TO u /* GRANT SUPER */": false, "/* GRANT SUPER ON *.* TO u */ FLUSH PRIVILEGES": false, "DROP USER u -- GRANT ALL ON *.* TO u": false,
		"CREATE USER r IDENTIFIED BY 'GRANT REPLICATION SLAVE ON *.* TO x'": false, "CREATE USER bob COMMENT 'may not GRANT SUPER'": false,
		"GRANT SELECT ON `d`.* TO 'super'@'%'": false, "GRANT SELECT (`super`) ON `d`.`t` TO `u`@`%`": false, "GRANT 'SUPER' TO u": false, "GRANT SUPER TO u": false,
		"GRANT SELECT ON *.* TO 'u'@'%' AS 'super'@'%'": false,
	} {
		q := binlog.Query{Text: text}
		if got := Attaches(q); got != want {
			t.Errorf("%s: %t", text, got)
		}
		if want && !Bypasses(q, true) {
			t.Errorf("%s: a cluster that follows would execute it, and lose its primary", text)
		}
	}
}

// TestRestrictedAtSite: what dba grants everywhere is not given on the schema mysql, and its binlog says so. So another
// site's GRANT is not left out.
func TestRestrictedAtSite(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	p := start(t, s)
	openAlone(t, p)
	mustExec(t, login(t, s, DBAUser, s.cfg.Secrets.DBA), "CREATE USER u IDENTIFIED BY 'Aa1-x'", "GRANT SELECT, INSERT ON *.* TO u")
	type event struct {
		text string
	}
	var name string
	if err := p.Admin().query1(ctx(t), "binlog", "SELECT SUBSTRING_INDEX(@@log_bin_basename, '/', -1)", nil, &name); err != nil {
		t.Fatal(err)
	}
	all, err := rows.All(ctx(t), p.Admin().db, func(e *event) []any { var skip any; return []any{&skip, &skip, &skip, &skip, &skip, &e.text} }, "SHOW BINLOG EVENTS IN '"+name+".000001'")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(e event) bool { return strings.Contains(e.text, "GRANT SELECT") })
	if i < 0 {
		t.Fatal(fmt.Sprint("no GRANT in ", all))
	}
	q := binlog.Query{Text: all[i].text}
	t.Log(q.Text)
	if Bypasses(q, true) {
		t.Errorf("%s is left out at another site", q.Text)
	}
	if !Bypasses(q, false) {
		t.Errorf("%s is not left out", q.Text)
	}
}
