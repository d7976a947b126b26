package mysqld

import (
	"errors"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// hostileVariables are settings of an operator that are allowed, and that would hit
// quorate's own accounts or sessions if those did not say otherwise.
func hostileVariables() map[string]string {
	return map[string]string{
		// The accounts.
		"default_password_lifetime": "1", "password_history": "5", "password_reuse_interval": "365",
		"password_require_current": "ON", "authentication_policy": "sha256_password", "activate_all_roles_on_login": "ON",
		// Who may connect.
		"init_connect": "DO (SELECT COUNT(*) FROM mysql.func)", "max_user_connections": "1", "max_connections": "8",
		"require_secure_transport": "ON", "connection_memory_limit": "2097152", "global_connection_memory_tracking": "ON",
		"skip_show_database": "ON", "connect_timeout": "2",
		// For how long.
		"wait_timeout": "1", "interactive_timeout": "1", "net_read_timeout": "1", "net_write_timeout": "1",
		"lock_wait_timeout": "1", "max_execution_time": "1",
		// What a statement means.
		"autocommit": "OFF", "completion_type": "RELEASE", "transaction_isolation": "SERIALIZABLE",
		"sql_mode":                "ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH,ONLY_FULL_GROUP_BY,HIGH_NOT_PRECEDENCE,IGNORE_SPACE",
		"sql_require_primary_key": "ON", "max_join_size": "1",
		"group_concat_max_len": "4", "max_prepared_stmt_count": "0",
		"character_set_server": "latin1", "collation_server": "latin1_german1_ci",
		"lc_messages": "de_DE", "log_timestamps": "SYSTEM", "default_time_zone": "+05:30", "big_tables": "ON",
		"optimizer_switch": "derived_merge=off,semijoin=off,materialization=off", "div_precision_increment": "0",
		"default_storage_engine": "MyISAM", "session_track_gtids": "ALL_GTIDS", "session_track_state_change": "ON",
		"session_track_system_variables": "*", "explicit_defaults_for_timestamp": "OFF", "low_priority_updates": "ON",
	}
}

// TestVariablesReachNoInternalAccount starts a server on which the operator has set
// what is allowed and hits accounts, sessions and statements of everybody but quorate.
func TestVariablesReachNoInternalAccount(t *testing.T) {
	s := newServer(t)
	p := start(t, s) // of before: its accounts know none of that
	open(t, p)
	for _, q := range []string{ // and somebody meant them for it, too
		"ALTER USER dba@localhost REQUIRE SSL PASSWORD HISTORY DEFAULT PASSWORD REUSE INTERVAL DEFAULT PASSWORD EXPIRE DEFAULT",
	} {
		if err := p.Admin().exec(ctx(t), q, q); err != nil {
			t.Fatal(err)
		}
	}
	p.Kill()
	delete(s.cfg.Variables, "max_connections")
	for name, value := range hostileVariables() {
		s.cfg.Variables[name] = value
	}
	start(t, s).Kill() // writes the history of passwords
	p = start(t, s)
	a := p.Admin()
	if drift, err := p.CheckGuarded(ctx(t)); err != nil || len(drift) != 0 {
		t.Fatalf("drift %v, %v", drift, err)
	}
	if grants, err := a.ScanGrants(ctx(t)); err != nil || len(grants) != 0 {
		t.Errorf("ScanGrants: %v, %v", grants, err)
	}
	for _, user := range []string{AdminUser, TapUser, CloneUser, DBAUser} {
		var last string
		if err := a.query1(ctx(t), "account", `SELECT CONCAT_WS(' ', plugin, password_expired, password_lifetime, password_reuse_history,
			password_reuse_time, password_require_current, max_questions, max_updates, max_connections, ssl_type, account_locked)
			FROM mysql.user WHERE user = ?`, []any{user}, &last); err != nil || last != "caching_sha2_password N 0 0 0 N 0 0 0  N" {
			t.Errorf("%s: %q, %v", user, last, err)
		}
	}
	open(t, p)
	// Three days later.
	for _, q := range []string{
		"CREATE USER client IDENTIFIED WITH caching_sha2_password BY 'Aa1-client' WITH MAX_USER_CONNECTIONS 100 PASSWORD EXPIRE NEVER",
		"GRANT SELECT ON mysql.func TO client", // only it may what init_connect does
		"UPDATE mysql.user SET password_last_changed = NOW() - INTERVAL 3 DAY WHERE user <> ''", "FLUSH LOCAL PRIVILEGES",
	} {
		if err := a.exec(ctx(t), q, q); err != nil {
			t.Fatal(err)
		}
	}
	takeEveryConnection(t, s, "client", "Aa1-client")
	awaitSlot := func() { // the one beyond max_connections
		t.Helper()
		eventually(t, "a connection is free", func() (bool, error) {
			var n int
			err := a.query1(ctx(t), "sessions", "SELECT COUNT(*) FROM performance_schema.threads WHERE name = 'thread/sql/one_connection'", nil, &n)
			return n <= 8, err
		})
	}
	for user, password := range map[string]string{
		AdminUser: s.cfg.Secrets.Admin, CloneUser: s.cfg.Secrets.Clone(), DBAUser: s.cfg.Secrets.DBA, TapUser: s.cfg.Secrets.Tap,
	} {
		awaitSlot()
		db := login(t, s, user, password)
		if err := db.PingContext(ctx(t)); err != nil {
			t.Errorf("login as %s: %v", user, err)
		}
		_ = db.Close()
	}
	awaitSlot()
	silentTap(t, s)
	eventually(t, "the tap is counted", func() (bool, error) {
		semi, err := a.SemiSyncStatus(ctx(t))
		return semi.Clients == 1, err
	})
}

// takeEveryConnection logs an ordinary client in until the server takes it no more.
func takeEveryConnection(t *testing.T, s *Server, user, password string) {
	t.Helper()
	db := login(t, s, user, password)
	for n := 0; ; n++ {
		conn, err := db.Conn(ctx(t))
		if err != nil {
			if server := (*mysql.MySQLError)(nil); n == 0 || !errors.As(err, &server) || server.Number != 1040 {
				t.Fatalf("client %d: %v", n, err)
			}
			return
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
}
