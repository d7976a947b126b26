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

// DBARole is granted to the accounts of people who administer databases: it has
// what dba has, and comes in over the network with them. It is 'quorate_dba'@'%'.
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

// dbaDynamic are dba's dynamic privileges on a server of version v. It is a
// list of what is known to be harmless, not of what is known to be dangerous,
// so a privilege that a later server invents is not granted. SET_ANY_DEFINER
// and ROLE_ADMIN are harmless because every account that has more than dba also
// has SYSTEM_USER, and such an account can be neither definer nor role for one
// that has not. CONNECTION_ADMIN, for KILL, passes read_only but not
// super_read_only, which is what fences here; our own sessions it cannot kill.
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
		// The innovation releases before 8.4 gained these one by one; nobody
		// runs them in production, so dba goes without.
		return list
	}
	return append(list, "SET_USER_ID")
}

// dbaNotOnGrantTables are the privileges that dba holds everywhere but not in
// the schema mysql: writing there would be granting itself everything, and
// INSTALL PLUGIN and CREATE FUNCTION ... SONAME ask for INSERT there.
const dbaNotOnGrantTables = "INSERT, UPDATE, DELETE, CREATE, DROP, REFERENCES, INDEX, ALTER, CREATE TEMPORARY TABLES, " +
	"LOCK TABLES, CREATE VIEW, CREATE ROUTINE, ALTER ROUTINE, EVENT, TRIGGER"

// dbaNotOnInstruments are those that dba and the role do not hold in performance_schema: where
// an instrument or a consumer is switched off there, KillBlockers and its like see no
// locks. dba must not hold them either: who has the role can grant dba itself, as a role or as a definer.
const dbaNotOnInstruments = "INSERT, UPDATE, DELETE, DROP"

// accountLimits are those of an internal account. The policies for people's passwords
// (default_password_lifetime, password_history, password_reuse_interval) are not for
// them: quorate makes the passwords, and sets the same ones at each start. A number
// of connections takes the place of max_user_connections.
const accountLimits = " REQUIRE NONE WITH MAX_QUERIES_PER_HOUR 0 MAX_UPDATES_PER_HOUR 0 MAX_CONNECTIONS_PER_HOUR 0 " +
	"MAX_USER_CONNECTIONS 1000 PASSWORD EXPIRE NEVER PASSWORD HISTORY 0 PASSWORD REUSE INTERVAL 0 DAY " +
	"PASSWORD REQUIRE CURRENT OPTIONAL FAILED_LOGIN_ATTEMPTS 0 PASSWORD_LOCK_TIME 0 ACCOUNT UNLOCK"

// identifiedBy is how an internal account logs in, whatever authentication_policy says.
func identifiedBy(password string) string {
	return " IDENTIFIED WITH caching_sha2_password BY '" + password + "'"
}

// renderInit returns the init file of incarnation n: one statement a line, run
// by the server as itself before it takes connections. Passwords were validated
// to need no escape.
func (c Config) renderInit(n uint64) string {
	s := c.Secrets
	at := func(name string) string { return "'" + name + "'@'localhost'" }
	admin, tap, dba, role := at(AdminUser), at(TapUser), at(DBAUser), "'"+DBARole+"'@'%'"
	dbaMay := strings.Join(append(dbaStatic(), dbaDynamic(c.Installation.Version)...), ", ")
	statements := []string{
		// First: none of this may reach the binlog, where nobody could ACK it.
		"SET SESSION sql_log_bin=0",
		"SET SESSION sql_mode=''",
		// --initialize-insecure leaves it without a password. Nothing that is kept comes before: Survey.LockedRoot tells that a start came so far.
		"ALTER USER IF EXISTS " + at("root") + " IDENTIFIED BY '" + newPassword() + "' ACCOUNT LOCK",
		"DROP USER IF EXISTS " + admin,
		"CREATE USER " + admin + identifiedBy(s.Admin),
		"GRANT ALL ON *.* TO " + admin + " WITH GRANT OPTION",
		"DROP USER IF EXISTS " + tap,
		"CREATE USER " + tap + identifiedBy(s.Tap),
		// CONNECTION_ADMIN: it comes in although clients have every connection, and
		// no init_connect is run, which on a read-only server may fail.
		"GRANT REPLICATION SLAVE, SYSTEM_USER, CONNECTION_ADMIN ON *.* TO " + tap,
	}
	statements = append(statements, c.cloneStatements()...)
	statements = append(statements, c.routerStatements()...)
	statements = append(statements, c.followStatements()...)
	statements = append(statements,
		// Not dropped: routines name it as their definer, and roles are granted to it.
		"CREATE USER IF NOT EXISTS "+dba+identifiedBy(s.DBA),
		// Before dba's password is set, which is the same as ever.
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
		// Last: the proof that everything before it succeeded.
		fmt.Sprintf(`ALTER USER %s ATTRIBUTE '{"incarnation": %d}'`, admin, n))
	return strings.Join(statements, ";\n") + ";\n"
}
