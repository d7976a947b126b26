package mysqld

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLiterals(t *testing.T) {
	for value, want := range map[string][]string{
		"500": {"500", "?"}, "-1": {"-1", "?"}, "0.5": {"0.5", "?"}, "1G": {"1073741824", "?"}, "16m": {"16777216", "?"}, "15E": {"17293822569102704640", "?"},
		"16E": {"?"}, "ON": {"?"}, "": {"?"}, "1.5G": {"?"}, "+05:30": {"?"}, "1; DROP": {"?"}, "0x10": {"?"},
	} {
		if diff := cmp.Diff(want, literals(value)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", value, diff)
		}
	}
}

// TestCheckGlobal: it refuses what the guard refuses in a node's configuration, and variables that
// must not have one value on all nodes.
func TestCheckGlobal(t *testing.T) {
	for name, want := range map[string]error{
		"max_connections": nil, "sql_mode": nil, "innodb_buffer_pool_size": nil, "init_connect": nil, "innodb_log_writer_threads": nil,
		// InnoDB would write the text of clients to the error log, which the agent reads.
		"innodb_print_all_deadlocks": ErrGuarded, "innodb_status_output": ErrGuarded, "innodb_status_output_locks": ErrGuarded,
		"sync_binlog": ErrGuarded, "super_read_only": ErrGuarded, "rpl_semi_sync_source_timeout": ErrGuarded, "server_id": ErrGuarded, "read_only": ErrGuarded,
		"lower_case_table_names": ErrConfig, "innodb_page_size": ErrConfig, "general_log_file": ErrConfig, "slow_query_log_file": ErrConfig,
		"ssl_ca": ErrConfig, "admin_ssl_key": ErrConfig, "ssl_capath": ErrConfig, "innodb_tmpdir": ErrConfig, "innodb_doublewrite_dir": ErrConfig,
		"innodb_data_file_path": ErrConfig, "innodb_buffer_pool_filename": ErrConfig, "innodb_redo_log_archive_dirs": ErrConfig, "innodb_buffer_pool_in_core_file": nil, "validate_password.length": ErrConfig, "not a name": ErrConfig,
		"time_zone": ErrConfig, "default_time_zone": ErrConfig,
	} {
		if err := CheckGlobal(name, "1"); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
}

// TestCheckGlobals: two names of one variable have one value.
func TestCheckGlobals(t *testing.T) {
	has := map[string]string{"slave_parallel_workers": "4", "max_connections": "5"}
	for _, c := range []struct {
		set, has map[string]string
		want     error
	}{
		{map[string]string{"max_connections": "6", "sql_mode": "ANSI"}, has, nil},
		{map[string]string{"replica_parallel_workers": "8"}, has, ErrConfig},
		{map[string]string{"replica_parallel_workers": "8"}, nil, nil},
		{map[string]string{"replica_parallel_workers": "8", "slave_parallel_workers": "4"}, nil, ErrConfig},
		{map[string]string{"sync_binlog": "1"}, nil, ErrGuarded},
	} {
		if err := CheckGlobals(c.set, c.has); !errors.Is(err, c.want) {
			t.Errorf("%v: %v, want %v", c.set, err, c.want)
		}
	}
}

// TestCompressionIsNoDuty: the server must accept sessions that are not compressed, because
// quorate's are not.
func TestCompressionIsNoDuty(t *testing.T) {
	const name = "protocol_compression_algorithms"
	for value, want := range map[string]error{
		"uncompressed": nil, "zstd,uncompressed": nil, "zlib, UNCOMPRESSED": nil, "zstd": ErrGuarded, "zlib,zstd": ErrGuarded, "": ErrGuarded, "not_uncompressed": ErrGuarded,
	} {
		if err := CheckVariables(map[string]string{name: value}); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", value, err, want)
		}
	}
}

func TestOwn(t *testing.T) {
	variables := map[string]string{"loose-Max-Connections": "5", "slave_parallel_workers": "8"}
	for name, want := range map[string]string{
		"max_connections": "5 true true", "replica_parallel_workers": "8 true true", "replica_net_timeout": "10 false true", "sql_mode": " false false",
	} {
		value, operator, known := Own(variables, name)
		if got := strings.Join([]string{value, boolText(operator), boolText(known)}, " "); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func boolText(b bool) string {
	if b {
		return "true"
	}
	return "false"
}

// TestRenderOfCluster: the cluster's variables override the node's own, guarded ones override
// them, and a server that does not know one of them still starts.
func TestRenderOfCluster(t *testing.T) {
	c, err := goldenConfig("9.7.4")
	if err != nil {
		t.Fatal(err)
	}
	c.Variables = map[string]string{"max_connections": "200"}
	text := c.render(1, false, StartOptions{Variables: map[string]string{"max_connections": "500", "sync_binlog": "1"}})
	before := -1
	for _, line := range []string{"max_connections=200\n", "loose_max_connections=500\n", "loose_sync_binlog=1\n", "\nsync_binlog=0\n"} {
		at := strings.Index(text, line)
		if at < before || at < 0 {
			t.Errorf("%q is at %d, behind %d", line, at, before)
		}
		before = at
	}
	s := New(c)
	if _, err := s.Start(t.Context(), StartOptions{Variables: map[string]string{"sync_binlog": "1"}}); !errors.Is(err, ErrGuarded) {
		t.Errorf("a guarded one: %v", err)
	}
}

// TestGlobals lets a real server try values, take them, and start with a variable that it does
// not know.
func TestGlobals(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	p, err := s.Start(ctx(t), StartOptions{Variables: map[string]string{"long_query_time": "7", "of_a_newer_server": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	if err := p.Ready(ctx(t)); err != nil {
		t.Fatal(err)
	}
	a := p.Admin()
	value := func(name string) (v string) {
		t.Helper()
		if err := a.query1(ctx(t), name, "SELECT @@GLOBAL."+name, nil, &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	if got := value("long_query_time"); got != "7.000000" && got != "7" {
		t.Errorf("it was started with long_query_time %s", got)
	}
	before := map[string]string{"max_connections": value("max_connections"), "sql_mode": value("sql_mode"), "join_buffer_size": value("join_buffer_size"), "optimizer_switch": value("optimizer_switch")}
	good := map[string]string{
		"max_connections": "321", "sql_mode": "STRICT_TRANS_TABLES", "join_buffer_size": "1M", "optimizer_switch": "derived_merge=off",
		"slow_query_log": "ON", "innodb_read_io_threads": "5", "init_connect": "",
	}
	atStart, made, err := a.TryGlobals(ctx(t), good)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"innodb_read_io_threads"}, atStart); diff != "" {
		t.Errorf("at a start only (-want +got):\n%s", diff)
	}
	if _, is := made["optimizer_switch"]; !is || len(made) != 1 {
		t.Errorf("shown otherwise: %v", made)
	}
	for name, want := range before {
		if got := value(name); got != want {
			t.Errorf("%s was not put back: %s, want %s", name, got, want)
		}
	}
	for name, words := range map[string]string{
		"max_connections": "can't be set to the value of '0'", "no_such_variable": "Unknown system variable", "sql_mode": "can't be set to the value of",
	} {
		bad := map[string]string{"join_buffer_size": "2M", name: map[bool]string{true: "0", false: "NONSENSE"}[name == "max_connections"]}
		_, _, err := a.TryGlobals(ctx(t), bad)
		if refused := (*RefusedError)(nil); !errors.As(err, &refused) || refused.Name != name || !strings.Contains(refused.Why, words) {
			t.Errorf("%s: %v", name, err)
		}
		if got := value("join_buffer_size"); got != before["join_buffer_size"] {
			t.Errorf("after %s was refused join_buffer_size is %s", name, got)
		}
	}
	if err := a.SetGlobal(ctx(t), "max_connections", "123"); err != nil || value("max_connections") != "123" {
		t.Errorf("max_connections is %s, %v", value("max_connections"), err)
	}
	if err := a.ResetGlobal(ctx(t), "max_connections"); err != nil || value("max_connections") != "151" {
		t.Errorf("max_connections is %s, %v", value("max_connections"), err)
	}
	if err := a.SetGlobal(ctx(t), "innodb_read_io_threads", "5"); !errors.Is(err, ErrAtStart) {
		t.Errorf("read-only: %v", err)
	}
	if drift, err := p.CheckGuarded(ctx(t)); err != nil || len(drift) > 0 {
		t.Errorf("drift %v, %v", drift, err)
	}
}

// TestGlobalsNotTried: the buffer pool is not resized for a try: a resize takes a while, and
// cannot be undone meanwhile.
func TestGlobalsNotTried(t *testing.T) {
	t.Parallel()
	p := start(t, newServer(t))
	a := p.Admin()
	const status = "SELECT CONCAT(@@GLOBAL.innodb_buffer_pool_size, ' ', variable_value) FROM performance_schema.global_status WHERE variable_name = 'Innodb_buffer_pool_resize_status'"
	var before, after string
	if err := a.query1(ctx(t), "before", status, nil, &before); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.TryGlobals(ctx(t), map[string]string{"innodb_buffer_pool_size": "128M", "max_connections": "77"}); err != nil {
		t.Fatal(err)
	}
	if err := a.query1(ctx(t), "after", status, nil, &after); err != nil || after != before {
		t.Errorf("%q, was %q, %v", after, before, err)
	}
	var refused *RefusedError
	if _, _, err := a.TryGlobals(ctx(t), map[string]string{"timestamp": "1"}); !errors.As(err, &refused) || refused.Final() {
		t.Errorf("a session's variable: %v", err)
	}
	if err := a.KnowGlobals(ctx(t), map[string]string{"max_connections": "1", "loose_max_connections": "1"}); !errors.As(err, &refused) || refused.Name != "loose_max_connections" || !refused.Final() {
		t.Errorf("no name of a variable: %v", err)
	}
}

// TestGlobalsPutBack: a value that cannot be put back does not count as a refusal of the
// operator's value.
func TestGlobalsPutBack(t *testing.T) {
	t.Parallel()
	a := start(t, newServer(t)).Admin()
	conn, err := a.db.Conn(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	try := trial{admin: a, conn: conn, made: map[string]string{}, had: map[string]sql.NullString{
		"max_connections": {String: "77", Valid: true}, "sql_mode": {String: "NONSENSE", Valid: true},
	}}
	err = try.putBack(ctx(t))
	left, is := errors.AsType[*PutBackError](err)
	if _, refused := errors.AsType[*RefusedError](err); !is || refused || len(left.Names) != 1 || left.Names[0] != "sql_mode" {
		t.Errorf("%v", err)
	}
	var n int
	if err := a.query1(ctx(t), "the other one", "SELECT @@GLOBAL.max_connections", nil, &n); err != nil || n != 77 {
		t.Errorf("max_connections is %d, %v", n, err)
	}
}

// TestGlobalsKeepTheDoorOpen: a value with which quorate could not log in counts as refused. A start
// with such a value ends, so that the agent can start the server without it.
func TestGlobalsKeepTheDoorOpen(t *testing.T) {
	t.Parallel()
	const name, value = "protocol_compression_algorithms", "zstd"
	s := newServer(t)
	p := start(t, s)
	_, _, err := p.Admin().TryGlobals(ctx(t), map[string]string{name: value})
	if refused := (*RefusedError)(nil); !errors.As(err, &refused) || refused.Name != name || !strings.Contains(refused.Why, "could not log in") {
		t.Errorf("tried: %v", err)
	}
	if _, is := errors.AsType[*PutBackError](err); is {
		t.Errorf("tried: %v", err)
	}
	if err := login(t, s, AdminUser, s.cfg.Secrets.Admin).PingContext(ctx(t)); err != nil {
		t.Errorf("it was not put back: %v", err)
	}
	p.Kill()
	p, err = startPast(ctx(t), s, name+"="+value)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	if err := p.Ready(ctx(t)); !errors.Is(err, ErrUnusable) {
		t.Errorf("ready: %v", err)
	}
}

// TestInitConnectIsTried: a text of init_connect with which every client would lose its connection is refused. The trial
// changes nothing.
func TestInitConnectIsTried(t *testing.T) {
	t.Parallel()
	p := start(t, newServer(t))
	open(t, p)
	a := p.Admin()
	for value, ok := range map[string]bool{
		"garbage":                                               false,
		"SET autocommit=0; garbage":                             false,
		"SET sql_mode='NONSENSE'":                               false,
		"SET NAMES utf8mb4; SET sql_mode='ANSI';":               true,
		"SET @a='x;y'; DO 1 /* ; */;SELECT 'it''s;'":            true,
		"DO (SELECT COUNT(*) FROM mysql.func)":                  true,
		"CREATE DATABASE tried; SET @@GLOBAL.max_connections=3": true,
		"SELECT 1 FROM no.table":                                false,
	} {
		_, _, err := a.TryGlobals(ctx(t), map[string]string{"init_connect": value})
		if refused, is := errors.AsType[*RefusedError](err); ok != (err == nil) || !ok && (!is || refused.Name != "init_connect") {
			t.Errorf("%s: %v", value, err)
		}
	}
	var had string
	if err := a.query1(ctx(t), "what was tried", "SELECT CONCAT(@@GLOBAL.init_connect, @@GLOBAL.max_connections <> 3, COUNT(*)) FROM information_schema.schemata WHERE schema_name = 'tried'",
		nil, &had); err != nil || had != "10" {
		t.Errorf("%q, %v", had, err)
	}
}

// TestDisabledEngineIsNoDefault: an engine that quorate disables cannot be the default engine.
func TestDisabledEngineIsNoDefault(t *testing.T) {
	for _, name := range []string{"default_storage_engine", "default-tmp-storage-engine"} {
		for value, ok := range map[string]bool{"MyISAM": false, "memory": false, "HEAP": false, "InnoDB": true, "ndbcluster": true} {
			if err := checkVariable(name, value); ok != (err == nil) {
				t.Errorf("%s=%s: %v", name, value, err)
			}
		}
	}
}

// TestSilentServerIsUnusable: a server that says that it is ready, accepts connections and greets nobody counts as
// unusable after a while, so that the agent can start it without the cluster's variables.
func TestSilentServerIsUnusable(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.silenceTick = 50 * time.Millisecond
	const line = "thread_handling=no-threads" // one session at a time
	name, value, _ := strings.Cut(line, "=")
	if err := CheckGlobal(name, value); err == nil {
		t.Error("an operator may set " + line)
	}
	p, err := startPast(ctx(t), s, line)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	if err := p.Ready(ctx(t)); !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), "has not let the agent log in for 1.5s") {
		t.Errorf("ready: %v", err)
	}
}

// startPast starts a server with a line in its option file that Start would refuse.
func startPast(ctx context.Context, s *Server, line string) (*Process, error) {
	id, err := s.cfg.identity()
	if err != nil {
		return nil, err
	}
	lock, err := s.lockDirectory(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = lock.Close() }()
	n, err := s.nextIncarnation()
	if err != nil {
		return nil, err
	}
	if err := s.prepare(id, n, StartOptions{}); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(s.paths.config)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(s.paths.config, append(text, line+"\n"...), 0o640); err != nil {
		return nil, err
	}
	return s.spawn(id, n, lock, StartOptions{})
}

// TestGlobalsOfTLS: after TLS was loaded again, new sessions have the new settings. If it cannot
// be loaded, they keep the old ones.
func TestGlobalsOfTLS(t *testing.T) {
	t.Parallel()
	a := start(t, newServer(t)).Admin()
	holds := func(want string) {
		t.Helper()
		var version string
		err := a.query1(ctx(t), "TLS", "SELECT value FROM performance_schema.tls_channel_status WHERE channel = 'mysql_main' AND property = 'Current_tls_version'", nil, &version)
		if err != nil || version != want {
			t.Errorf("TLS is %q, want %q, %v", version, want, err)
		}
	}
	const before = "TLSv1.2,TLSv1.3"
	holds(before)
	if _, _, err := a.TryGlobals(ctx(t), map[string]string{"tls_version": "TLSv1.3"}); err != nil {
		t.Fatal(err)
	}
	holds(before)
	_, _, err := a.TryGlobals(ctx(t), map[string]string{"tls_version": "TLSv1.2", "ssl_cipher": "NONE-SUCH"})
	if refused := (*RefusedError)(nil); !errors.As(err, &refused) {
		t.Errorf("a bad cipher: %v", err)
	}
	if _, is := errors.AsType[*PutBackError](err); is {
		t.Errorf("a bad cipher: %v", err)
	}
	holds(before)
	if err := a.SetGlobal(ctx(t), "tls_version", "TLSv1.3"); err != nil {
		t.Fatal(err)
	}
	holds(before) // the server says it takes effect later
	if err := a.ReloadTLS(ctx(t), []string{"tls_version"}); err != nil {
		t.Fatal(err)
	}
	holds("TLSv1.3")
}
