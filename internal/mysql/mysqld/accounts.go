package mysqld

import (
	"fmt"
	"strings"

	"github.com/quorate/quorate/internal/mysql/install"
)

// The internal accounts, all of them @localhost: the Unix socket only.
const (
	AdminUser = "quorate_admin"
	TapUser   = "quorate_tap"
	DBAUser   = "dba"
)

// DBARole is granted to the accounts of people who administer databases. It has the privileges
// of dba, and those accounts may connect over the network. It is 'quorate_dba'@'%'.
const DBARole = "quorate_dba"

// dbaStatic are dba's static privileges. Missing on purpose:
//
//	SUPER, SHUTDOWN, RELOAD     stop the server or reset its binlog
//	REPLICATION SLAVE           any dump connection can ACK
//	FILE, CREATE TABLESPACE     files outside the data directory
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

// renderInit returns the init file of incarnation n: one statement a line, run by the server
// itself before it takes connections. Passwords need no escape, which was validated before.
func (c Config) renderInit(n uint64) string {
	s := c.Secrets
	at := func(name string) string { return "'" + name + "'@'localhost'" }
	admin, tap, dba, role := at(AdminUser), at(TapUser), at(DBAUser), "'"+DBARole+"'@'%'"
	dbaMay := strings.Join(append(dbaStatic(), dbaDynamic(c.Installation.Version)...), ", ")
	statements := []string{
		// This comes first: no statement may reach the binlog, where nobody would acknowledge
		// it.
		"SET SESSION sql_log_bin=0",
		"SET SESSION sql_mode=''",
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
		"ALTER USER "+dba+identifiedBy(s.DBA),
		"REVOKE ALL PRIVILEGES, GRANT OPTION FROM "+dba,
		"GRANT "+dbaMay+" ON *.* TO "+dba+" WITH GRANT OPTION",
		"REVOKE "+dbaNotOnGrantTables+" ON mysql.* FROM "+dba,
		"REVOKE "+dbaNotOnInstruments+" ON performance_schema.* FROM "+dba,
		// Not dropped either: accounts have it. It is on every server, because a
		// GRANT of it replicates.
		"CREATE ROLE IF NOT EXISTS "+role,
		"REVOKE ALL PRIVILEGES, GRANT OPTION FROM "+role,
		"GRANT "+dbaMay+" ON *.* TO "+role+" WITH GRANT OPTION",
		"REVOKE "+dbaNotOnGrantTables+" ON mysql.* FROM "+role,
		"REVOKE "+dbaNotOnInstruments+" ON performance_schema.* FROM "+role,
		// This comes last: it proves that every statement before it succeeded.
		fmt.Sprintf(`ALTER USER %s ATTRIBUTE '{"incarnation": %d}'`, admin, n))
	return strings.Join(statements, ";\n") + ";\n"
}
