package mysqlwire

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/install"
)

// waitMax bounds every wait for something that must happen.
const waitMax = 60 * time.Second

// testMysqld is a private, unmodified mysqld.
type testMysqld struct {
	socket string
	db     *sql.DB
	exited chan struct{}
}

// findMySQL returns the MySQL to test with, or skips the test.
func findMySQL(t *testing.T) *install.Installation {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a mysqld")
	}
	install, err := install.Discover("")
	if err != nil {
		t.Skip("no MySQL: run `make mysql` or set QUORATE_MYSQL_BASE: ", err)
	}
	return install
}

func mysqldCommand(in *install.Installation, args ...string) *exec.Cmd {
	user := "--user=" + strconv.Itoa(os.Getuid())
	if os.Getuid() == 0 {
		user = "--user=root"
	}
	argv := append(in.MysqldArgv(),
		"--no-defaults",
		"--plugin-dir="+in.PluginDir,
		"--secure-file-priv=NULL",
		user,
		"--loose-mysqlx=OFF",
		"--skip-log-bin",
	)
	small := install.SmallServer()
	maps.Copy(small, map[string]string{"innodb_buffer_pool_size": "64M", "innodb_redo_log_capacity": "16M"})
	for _, name := range slices.Sorted(maps.Keys(small)) {
		argv = append(argv, "--"+name+"="+small[name])
	}
	if in.ShareDir != "" {
		argv = append(argv, "--lc-messages-dir="+in.ShareDir, "--character-sets-dir="+in.CharsetsDir)
	}
	argv = append(argv, args...)
	return exec.Command(argv[0], argv[1:]...)
}

// startMysqld initialises and starts a server with extra options. It is killed
// at the end of the test.
func startMysqld(t *testing.T, serverID int, extra ...string) *testMysqld {
	t.Helper()
	install := findMySQL(t)
	// A Unix socket's path has at most 107 bytes, test names are longer.
	dir, err := os.MkdirTemp("", "qw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	data := "--datadir=" + filepath.Join(dir, "d")
	if out, err := mysqldCommand(install, data, "--initialize-insecure").CombinedOutput(); err != nil {
		t.Fatalf("initialise mysqld: %v\n%s", err, out)
	}
	m := &testMysqld{socket: filepath.Join(dir, "s"), exited: make(chan struct{})}
	args := append([]string{
		data,
		"--socket=" + m.socket,
		"--server-id=" + strconv.Itoa(serverID),
		"--gtid-mode=ON", "--enforce-gtid-consistency=ON",
		"--skip-networking", "--pid-file=" + filepath.Join(dir, "p"),
		// The servers are copies with one UUID: in one directory their replicas' SQL_LOAD-<uuid> files would collide.
		"--tmpdir=" + dir,
		"--log-error-verbosity=3",
	}, extra...)
	cmd := mysqldCommand(install, args...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	// The thread that starts it must outlive it, or the signal comes early.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer close(m.exited)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-m.exited
		if t.Failed() {
			t.Logf("mysqld %d:\n%s", serverID, log.String())
		}
	})
	m.db = m.open(t, "root", "")
	waitUntil(t, "mysqld accepts connections", func() bool { return m.db.Ping() == nil })
	return m
}

func (m *testMysqld) open(t *testing.T, user, password string) *sql.DB {
	t.Helper()
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.Net, cfg.Addr = user, password, "unix", m.socket
	cfg.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func (m *testMysqld) exec(t *testing.T, statements ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitMax)
	defer cancel()
	conn, err := m.db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	// Settings of the session must not go back into the pool with it.
	defer func() { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) }()
	for _, statement := range statements {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func (m *testMysqld) text(t *testing.T, query string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitMax)
	defer cancel()
	var value string
	if err := m.db.QueryRowContext(ctx, query).Scan(&value); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

func (m *testMysqld) executed(t *testing.T) *gtid.Set {
	t.Helper()
	set, err := gtid.ParseSet(m.text(t, "SELECT @@GLOBAL.gtid_executed"))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// status returns a row of SHOW … as column=value lines, for messages.
func (m *testMysqld) status(t *testing.T, query string) map[string]string {
	t.Helper()
	rows, err := m.db.Query(query)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for rows.Next() {
		values, targets := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range values {
			targets[i] = &values[i]
		}
		if err := rows.Scan(targets...); err != nil {
			t.Fatal(err)
		}
		for i, column := range columns {
			out[column] = values[i].String
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// waitUntil polls cond, for facts of another process that nothing announces.
func waitUntil(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(waitMax)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for: %s", waitMax, what)
		}
		<-tick.C
	}
}

// sourceOptions make a mysqld wait for a semi-synchronous replica, for ever.
func sourceOptions() []string {
	return []string{
		"--log-bin=q0000000001", "--log-replica-updates=OFF", "--sync-binlog=0",
		"--plugin-load-add=rpl_semi_sync_source=semisync_source.so",
		"--rpl-semi-sync-source-enabled=1",
		"--rpl-semi-sync-source-timeout=18446744073709551615",
		"--rpl-semi-sync-source-wait-point=AFTER_SYNC",
	}
}

const tapUUID = "00000000-0000-0000-0000-0000000000aa"

func (m *testMysqld) tapConfig(exclude *gtid.Set) TapConfig {
	return TapConfig{
		Socket: m.socket, User: "tap", Password: "tap's secret", ServerID: 4000000001, ReplicaUUID: tapUUID,
		HeartbeatPeriod: 200 * time.Millisecond, Exclude: exclude, Term: 3, Logger: testLogger(),
	}
}

// createTapUser makes the tap's account without a binlog entry.
func (m *testMysqld) createTapUser(t *testing.T) {
	t.Helper()
	m.exec(t, "SET sql_log_bin=0",
		"CREATE USER tap@localhost IDENTIFIED BY 'tap''s secret'",
		"GRANT REPLICATION SLAVE ON *.* TO tap@localhost")
}
