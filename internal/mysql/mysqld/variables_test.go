package mysqld

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/go-sql-driver/mysql"

	"github.com/quorate/quorate/internal/mysql/rows"
)

// hostileVariables are allowed settings of an operator that would affect quorate's own accounts
// or sessions, if these did not override them.
func hostileVariables() map[string]string {
	return map[string]string{
		// The accounts.
		"default_password_lifetime": "1", "password_history": "5", "password_reuse_interval": "365",
		"password_require_current": "ON", "authentication_policy": "sha256_password", "activate_all_roles_on_login": "ON",
		// Who may connect.
		"init_connect": "DO (SELECT COUNT(*) FROM mysql.func)", "max_user_connections": "1", "max_connections": "8",
		"require_secure_transport": "ON", "connection_memory_limit": "2097152", "global_connection_memory_tracking": "ON",
		"skip_show_database": "ON", "connect_timeout": "2", "protocol_compression_algorithms": "zstd,uncompressed",
		// For how long.
		"wait_timeout": "1", "interactive_timeout": "1", "net_read_timeout": "1", "net_write_timeout": "1",
		"lock_wait_timeout": "1", "max_execution_time": "1",
		// What a statement means.
		"autocommit": "OFF", "completion_type": "RELEASE", "transaction_isolation": "SERIALIZABLE",
		"sql_mode":                "ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH,ONLY_FULL_GROUP_BY,HIGH_NOT_PRECEDENCE,IGNORE_SPACE",
		"sql_require_primary_key": "ON", "max_join_size": "1",
		"group_concat_max_len": "4", "max_prepared_stmt_count": "0",
		"character_set_server": "latin1", "collation_server": "latin1_german1_ci",
		"lc_messages": "de_DE", "performance_schema_instrument": "%=OFF", "log_timestamps": "SYSTEM", "default_time_zone": "+05:30", "big_tables": "ON",
		"optimizer_switch": "derived_merge=off,semijoin=off,materialization=off", "div_precision_increment": "0",
		"session_track_gtids": "ALL_GTIDS", "session_track_state_change": "ON",
		"session_track_system_variables": "*", "explicit_defaults_for_timestamp": "OFF", "low_priority_updates": "ON",
	}
}

// TestVariablesReachNoInternalAccount starts a server with hostileVariables: they must affect
// the accounts, sessions and statements of everybody but quorate.
func TestVariablesReachNoInternalAccount(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	p := start(t, s) // a start before these settings: the accounts do not have them
	open(t, p)
	// Somebody has put the internal account dba under the password policies, too.
	const alter = "ALTER USER dba@localhost REQUIRE SSL PASSWORD HISTORY DEFAULT PASSWORD REUSE INTERVAL DEFAULT PASSWORD EXPIRE DEFAULT"
	if err := p.Admin().exec(ctx(t), alter, alter); err != nil {
		t.Fatal(err)
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
	for _, user := range []string{AdminUser, TapUser, CloneUser, RouterUser, FollowUser, DBAUser} {
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
		AdminUser: s.cfg.Secrets.Admin, CloneUser: s.cfg.Secrets.Clone(), RouterUser: s.cfg.Secrets.Router(), FollowUser: s.cfg.Secrets.Follow(), DBAUser: s.cfg.Secrets.DBA, TapUser: s.cfg.Secrets.Tap,
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

// takeEveryConnection opens sessions of an ordinary client until the server accepts no more.
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

// equalVariables are settings that each node could have for itself, but that must be equal on
// all nodes.
func equalVariables() []string {
	return []string{
		"lower_case_table_names", "innodb_page_size", "character_set_server", "collation_server", "innodb_strict_mode",
		"innodb_default_row_format", "default_table_encryption", "default_time_zone", "max_allowed_packet",
	}
}

// classes are how docs/variables.md sorts the server's variables and options.
const (
	classRefused = "refused" // the operator may not set it
	classChoice  = "choice"  // the operator may choose among values
	classOurs    = "ours"    // could affect quorate's accounts and sessions, but does not
	classEqual   = "equal"   // must be the same on all nodes
	classOther   = "others"  // the rule: the operator may set what is not named
)

// classOf sorts a variable by what the code does with it.
func classOf(name string) string {
	n := normalizeOption(name)
	_, hostile := hostileVariables()[name]
	switch {
	case n == "plugin_load_add", slices.ContainsFunc(guardedOfAnyVersion(), func(s setting) bool {
		return (s.among != nil || s.includes != "" || s.excludes != nil) && normalizeOption(s.name) == n
	}):
		return classChoice
	case guardedBy(name, "x") != "":
		return classRefused
	case slices.Contains(equalVariables(), name):
		return classEqual
	case hostile:
		return classOurs
	}
	return classOther
}

// TestEveryVariableIsClassified compares the list of all variables and options in
// testdata/variables with the server and the code. A new variable shows up as a difference:
// find out what it can do, put it where it belongs, and run with -rewrite. Some builds of a
// version lack a few variables.
func TestEveryVariableIsClassified(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	if v := s.cfg.Installation.Version; !v.AtLeast(9, 7, 0) {
		t.Skipf("the list is that of 9.7, not of %s", v)
	}
	p := start(t, s)
	names := map[string]bool{}
	variables, err := rows.Column[string](ctx(t), p.Admin().db, "SELECT variable_name FROM performance_schema.global_variables")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(variables, optionsOf(t, s)...) {
		names[name] = true
	}
	classes := map[string][]string{}
	for name := range names {
		classes[classOf(name)] = append(classes[classOf(name)], name)
	}
	datadriven.RunTest(t, "testdata/variables", func(t *testing.T, d *datadriven.TestData) string {
		listed := classes[d.Cmd]
		for _, name := range strings.Fields(d.Expected) {
			if !names[name] && classOf(name) == d.Cmd {
				listed = append(listed, name)
			}
		}
		slices.Sort(listed)
		return strings.Join(listed, "\n") + "\n"
	})
}

// optionsOf returns the options of the server that have a value.
func optionsOf(t *testing.T, s *Server) (names []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "my.cnf")
	if err := os.WriteFile(file, []byte("[mysqld]\n"+s.cfg.installationOptions()), 0o600); err != nil {
		t.Fatal(err)
	}
	argv := append(s.cfg.Installation.MysqldArgv(), "--defaults-file="+file, "--verbose", "--help")
	if os.Geteuid() == 0 {
		argv = append(argv, "--user=root")
	}
	out, err := exec.CommandContext(ctx(t), argv[0], argv[1:]...).Output()
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(out), "\n--------")
	table, _, ok2 := strings.Cut(table, "\n\n")
	if !ok || !ok2 {
		t.Fatalf("no table of options in %d bytes", len(out))
	}
	for _, line := range strings.Split(table, "\n")[1:] {
		name, _, _ := strings.Cut(line, " ")
		names = append(names, strings.ReplaceAll(name, "-", "_"))
	}
	if len(names) < 500 {
		t.Fatalf("%d options", len(names))
	}
	return names
}

// TestVariablesPage: docs/variables.md names, in its section, every variable that the operator
// cannot simply set, and no other.
func TestVariablesPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/variables.md")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	class := ""
	for line := range strings.Lines(string(page)) {
		if _, title, ok := strings.Cut(line, "## "); ok {
			class = map[string]string{
				"Set by quorate": classRefused, "Refused": classRefused, "A choice of a few": classChoice,
				"Kept from quorate's own accounts": classOurs, "The same on every node": classEqual,
			}[strings.TrimSpace(title)]
		}
		cells := strings.Split(line, "|")
		if class == "" || len(cells) < 3 {
			continue
		}
		for _, m := range regexp.MustCompile("`([a-z_0-9]+)`").FindAllStringSubmatch(cells[1], -1) {
			if got := classOf(m[1]); got != class {
				t.Errorf("docs/variables.md has %s under %s, it is %s", m[1], class, got)
			}
			named[normalizeOption(m[1])] = true
		}
	}
	must := slices.Concat(equalVariables(), slices.Collect(maps.Keys(hostileVariables())), slices.Collect(maps.Keys(ownedOptions())))
	for _, s := range guardedOfAnyVersion() {
		must = append(must, s.name)
	}
	for _, name := range must {
		if !named[normalizeOption(name)] {
			t.Errorf("docs/variables.md does not name %s", name)
		}
	}
}
