package mysqld

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/quorate/quorate/internal/mysql/install"
)

// The internal accounts, all of them @localhost: the Unix socket only.
const (
	AdminUser = "quorate_admin"
	TapUser   = "quorate_tap"
	DBAUser   = "dba"
)

// dbaLoginTimeout bounds RefusesDBA.
const dbaLoginTimeout = 2 * time.Second

// DBARole is granted to the accounts of people who administer databases. It has the privileges
// of dba, and those accounts may connect over the network. It is 'quorate_dba'@'%'.
const DBARole = "quorate_dba"

// dbaWithheld are the static privileges that dba does not have:
//
//	SUPER, SHUTDOWN, RELOAD     stop the server or reset its binlog
//	REPLICATION SLAVE           any dump connection can ACK
//	FILE, CREATE TABLESPACE     files outside the data directory
const dbaWithheld = "SUPER, SHUTDOWN, RELOAD, REPLICATION SLAVE, FILE, CREATE TABLESPACE"

// dbaStatic are dba's static privileges: all except dbaWithheld.
func dbaStatic() []string {
	return []string{
		"SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "REFERENCES", "INDEX", "ALTER",
		"SHOW DATABASES", "CREATE TEMPORARY TABLES", "LOCK TABLES", "EXECUTE", "CREATE VIEW", "SHOW VIEW",
		"CREATE ROUTINE", "ALTER ROUTINE", "CREATE USER", "EVENT", "TRIGGER", "CREATE ROLE", "DROP ROLE",
		"PROCESS", "REPLICATION CLIENT",
	}
}

// dbaDynamic are dba's dynamic privileges on a server of version v. It lists privileges that
// are known to be harmless, so a privilege that a later server adds is not granted.
// SET_ANY_DEFINER and ROLE_ADMIN are harmless: every account that has more than dba also has
// SYSTEM_USER, and an account without SYSTEM_USER can use such an account neither as a definer
// nor as a role. CONNECTION_ADMIN, for KILL, passes read_only but not super_read_only, which is
// our fence; with it dba cannot kill our own sessions.
func dbaDynamic(v install.Version) []string {
	list := []string{
		"APPLICATION_PASSWORD_ADMIN", "CONNECTION_ADMIN", "FLUSH_OPTIMIZER_COSTS", "FLUSH_STATUS",
		"FLUSH_TABLES", "FLUSH_USER_RESOURCES", "PASSWORDLESS_USER_ADMIN", "ROLE_ADMIN", "SHOW_ROUTINE",
		"XA_RECOVER_ADMIN",
	}
	if v.AtLeast(8, 4, 0) {
		return append(list, "ALLOW_NONEXISTENT_DEFINER", "FLUSH_PRIVILEGES", "SET_ANY_DEFINER")
	}
	if v.AtLeast(8, 1, 0) {
		// The innovation releases before 8.4 got these privileges one by one. Nobody runs those
		// releases in production, so dba does not get them there.
		return list
	}
	return append(list, "SET_USER_ID")
}

// dbaNotOnGrantTables are the privileges that dba holds everywhere but not in the schema mysql:
// by writing there, dba could grant itself everything. INSTALL PLUGIN and CREATE FUNCTION ...
// SONAME need INSERT there, too.
const dbaNotOnGrantTables = "INSERT, UPDATE, DELETE, CREATE, DROP, REFERENCES, INDEX, ALTER, CREATE TEMPORARY TABLES, " +
	"LOCK TABLES, CREATE VIEW, CREATE ROUTINE, ALTER ROUTINE, EVENT, TRIGGER"

// dbaNotOnInstruments are the privileges that dba and the role do not hold in performance_schema: with
// them, somebody could switch off an instrument or a consumer that KillBlockers and others need to see
// locks. The role alone is not enough: an account with the role can use dba as a role or as a definer.
const dbaNotOnInstruments = "INSERT, UPDATE, DELETE, DROP"

// accountLimits are the limits of an internal account. The policies for people's passwords
// (default_password_lifetime, password_history, password_reuse_interval) do not hold for it:
// quorate makes its password, and sets the same one at each start. MAX_USER_CONNECTIONS
// overrides max_user_connections.
const accountLimits = " REQUIRE NONE WITH MAX_QUERIES_PER_HOUR 0 MAX_UPDATES_PER_HOUR 0 MAX_CONNECTIONS_PER_HOUR 0 " +
	"MAX_USER_CONNECTIONS 1000 PASSWORD EXPIRE NEVER PASSWORD HISTORY 0 PASSWORD REUSE INTERVAL 0 DAY " +
	"PASSWORD REQUIRE CURRENT OPTIONAL FAILED_LOGIN_ATTEMPTS 0 PASSWORD_LOCK_TIME 0 ACCOUNT UNLOCK"

// identifiedBy is how an internal account logs in, whatever authentication_policy says.
func identifiedBy(password string) string {
	return " IDENTIFIED WITH caching_sha2_password BY '" + password + "'"
}

// dbaStatements give the account user@host the privileges of dba, and take away all others that it has globally, and its
// writes on the schemas mysql and performance_schema. Its privileges on other schemas, on tables and on routines stay:
// GRANT and REVOKE of those replicate, and a REVOKE of a privilege that only this server has taken away would stop its
// applier. REVOKE ALL PRIVILEGES ON *.* would take them, too, because of partial_revokes.
func (c Config) dbaStatements(user, host string) []string {
	may := strings.Join(append(dbaStatic(), dbaDynamic(c.Installation.Version)...), ", ")
	account := "'" + user + "'@'" + host + "'"
	of := " WHERE host = '" + host + "' AND user = '" + user + "'"
	const ofServer = " AND db IN ('mysql', 'performance_schema')"
	return []string{
		"UPDATE mysql.user SET user_attributes = JSON_REMOVE(user_attributes, '$.Restrictions')" + of,
		"DELETE FROM mysql.global_grants" + of,
		"DELETE FROM mysql.db" + of + ofServer,
		"DELETE FROM mysql.tables_priv" + of + ofServer + " AND table_priv NOT IN ('', 'Select')",
		"DELETE FROM mysql.columns_priv" + of + ofServer + " AND column_priv <> 'Select'",
		"FLUSH PRIVILEGES",
		"REVOKE " + dbaWithheld + " ON *.* FROM " + account,
		"GRANT " + may + " ON *.* TO " + account + " WITH GRANT OPTION",
		"REVOKE " + dbaNotOnGrantTables + " ON mysql.* FROM " + account,
		"REVOKE " + dbaNotOnInstruments + " ON performance_schema.* FROM " + account,
	}
}

// renderInit returns the init file of incarnation n: one statement a line, run by the server
// itself before it takes connections. Passwords need no escape, which was validated before.
func (c Config) renderInit(n uint64) string {
	s := c.Secrets
	at := func(name string) string { return "'" + name + "'@'localhost'" }
	admin, tap, dba, role := at(AdminUser), at(TapUser), at(DBAUser), "'"+DBARole+"'@'%'"
	statements := []string{
		// This comes first: no statement may reach the binlog, where nobody would acknowledge
		// it.
		"SET SESSION sql_log_bin=0",
		"SET SESSION sql_mode='', autocommit=1, sql_safe_updates=0",
		// --initialize-insecure leaves it without a password. It is the first change that lasts: Survey.LockedRoot shows by it that a start came this far.
		"ALTER USER IF EXISTS " + at("root") + " IDENTIFIED BY '" + newPassword() + "' ACCOUNT LOCK",
		"DROP USER IF EXISTS " + admin,
		"CREATE USER " + admin + identifiedBy(s.Admin),
		"GRANT ALL ON *.* TO " + admin + " WITH GRANT OPTION",
		"DROP USER IF EXISTS " + tap,
		"CREATE USER " + tap + identifiedBy(s.Tap),
		// CONNECTION_ADMIN: it can connect although clients have every connection, and the
		// server does not run init_connect, which may fail on a read-only server.
		"GRANT REPLICATION SLAVE, SYSTEM_USER, CONNECTION_ADMIN ON *.* TO " + tap,
	}
	statements = append(statements, c.cloneStatements()...)
	statements = append(statements, c.routerStatements()...)
	statements = append(statements, c.followStatements()...)
	statements = append(statements,
		// Not dropped: routines name it as their definer, and roles are granted to it.
		"CREATE USER IF NOT EXISTS "+dba+identifiedBy(s.DBA),
		// Before dba's password is set: it is the same as before, which a password policy could
		// refuse.
		"ALTER USER "+strings.Join([]string{admin, tap, at(CloneUser), at(RouterUser), at(FollowUser), dba}, ", ")+accountLimits,
		"ALTER USER "+dba+identifiedBy(s.DBA))
	statements = append(statements, c.dbaStatements(DBAUser, "localhost")...)
	statements = append(statements,
		// Not dropped either: accounts have it. It is on every server, because a
		// GRANT of it replicates.
		"CREATE ROLE IF NOT EXISTS "+role)
	statements = append(statements, c.dbaStatements(DBARole, "%")...)
	statements = append(statements,
		// This comes last: it proves that every statement before it succeeded.
		fmt.Sprintf(`ALTER USER %s ATTRIBUTE '{"incarnation": %d}'`, admin, n))
	return strings.Join(statements, ";\n") + ";\n"
}

// RefusesDBA returns the error with which the running server refuses the login of dba because of its password, or
// because the account is locked or missing. It returns nil where dba can log in, and where that is not known.
func (s *Server) RefusesDBA(ctx context.Context, password string) error {
	const denied, locked = 1045, 3118 // ER_ACCESS_DENIED_ERROR, ER_ACCOUNT_HAS_BEEN_LOCKED
	ctx, cancel := context.WithTimeout(ctx, dbaLoginTimeout)
	defer cancel()
	connector, err := mysql.NewConnector(socketConfig(s.Socket(), DBAUser, password))
	if err != nil {
		return nil
	}
	db := sql.OpenDB(connector)
	defer func() { _ = db.Close() }()
	err = db.PingContext(ctx)
	if server := (*mysql.MySQLError)(nil); errors.As(err, &server) && slices.Contains([]uint16{denied, locked}, server.Number) {
		return fmt.Errorf("mysqld refuses the login of %s@localhost: %w", DBAUser, err)
	}
	return nil
}
