package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/quorate/quorate/internal/provision"
	"github.com/quorate/quorate/internal/subprocess"
)

const (
	// serverWait bounds the start of a server, and its initialisation.
	serverWait = 2 * time.Minute
	// serverPoll is how often a starting server is tried.
	serverPoll = 50 * time.Millisecond
	// benchUser and benchDatabase are what sysbench uses on the rivals.
	benchUser     = "bench"
	benchDatabase = "sbtest"
)

// sharedVariables are the server variables that all systems have in common:
// those that devcluster and quorate itself set and that are not what the
// comparison is about, so that no system gains by them.
func sharedVariables() map[string]string {
	return map[string]string{
		"innodb_buffer_pool_size":                    "128M",
		"innodb_redo_log_capacity":                   "96M",
		"max_connections":                            "300",
		"performance_schema":                         "ON",
		"log_error_verbosity":                        "2",
		"replica_parallel_workers":                   "4",
		"binlog_transaction_dependency_history_size": "100000",
	}
}

// rivalVariables are what a rival has beside sharedVariables: the durability
// that it is compared with, and what quorate sets for all of its servers
// without a choice.
func rivalVariables() map[string]string {
	return map[string]string{
		"sync_binlog":                    "1",
		"innodb_flush_log_at_trx_commit": "1",
		"gtid_mode":                      "ON",
		"enforce_gtid_consistency":       "ON",
		"max_binlog_size":                "134217728",
		"skip_name_resolve":              "ON",
		"loose_mysqlx":                   "OFF",
		"secure_file_priv":               "NULL",
	}
}

// server is one mysqld of a rival.
type server struct {
	name    string
	dir     string
	install *provision.Installation
	port    int
	process *subprocess.Process
	root    *sql.DB
	// password is that of benchUser and of the replication account.
	password string
}

func (s *server) config() string { return filepath.Join(s.dir, "my.cnf") }
func (s *server) socket() string { return filepath.Join(s.dir, "s") }
func (s *server) log() string    { return filepath.Join(s.dir, "error.log") }

// newServer writes a server's files and initialises its data directory.
func newServer(ctx context.Context, install *provision.Installation, dir string, id int, extra map[string]string) (*server, error) {
	s := &server{name: filepath.Base(dir), dir: dir, install: install, password: rand.Text()}
	if err := os.MkdirAll(filepath.Join(dir, "tmp"), 0o755); err != nil {
		return nil, fmt.Errorf("create server directory: %w", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	s.port = l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	if err := os.WriteFile(s.config(), []byte(s.render(id, extra)), 0o644); err != nil {
		return nil, fmt.Errorf("write server configuration: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, serverWait)
	defer cancel()
	cmd := s.command("--initialize-insecure", "--skip-log-bin")
	p, err := subprocess.Start(cmd)
	if err != nil {
		return nil, fmt.Errorf("initialise server %s: %w", s.name, err)
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		return nil, fmt.Errorf("initialise server %s: %w", s.name, joinKill(ctx.Err(), p))
	}
	if !cmd.ProcessState.Success() {
		return nil, fmt.Errorf("initialise server %s: %v; %s", s.name, cmd.ProcessState, s.logTail())
	}
	return s, nil
}

func joinKill(err error, p *subprocess.Process) error {
	if killErr := p.Kill(); killErr != nil {
		return fmt.Errorf("%w; %w", err, killErr)
	}
	return err
}

// render returns the server's option file.
func (s *server) render(id int, extra map[string]string) string {
	vars := map[string]string{
		"datadir": filepath.Join(s.dir, "data"), "socket": s.socket(), "tmpdir": filepath.Join(s.dir, "tmp"),
		"pid_file": filepath.Join(s.dir, "pid"), "log_error": s.log(),
		"port": fmt.Sprint(s.port), "bind_address": "127.0.0.1", "server_id": fmt.Sprint(id),
		"log_bin": "binlog", "relay_log": "relay", "skip_replica_start": "ON",
	}
	for name, dir := range map[string]string{
		"plugin_dir": s.install.PluginDir, "lc_messages_dir": s.install.ShareDir, "character_sets_dir": s.install.CharsetsDir,
	} {
		if dir != "" {
			vars[name] = dir
		}
	}
	if os.Geteuid() == 0 {
		vars["user"] = "root" // mysqld refuses to run as root unless told
	}
	for _, more := range []map[string]string{sharedVariables(), rivalVariables(), extra} {
		maps.Copy(vars, more)
	}
	var b strings.Builder
	b.WriteString("[mysqld]\n")
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		fmt.Fprintf(&b, "%s=%s\n", name, vars[name])
	}
	return b.String()
}

func (s *server) command(args ...string) *exec.Cmd {
	argv := append(s.install.MysqldArgv(), "--defaults-file="+s.config())
	argv = append(argv, args...)
	return exec.Command(argv[0], argv[1:]...)
}

// start starts the server and waits until it takes connections.
func (s *server) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, serverWait)
	defer cancel()
	var err error
	if s.process, err = subprocess.Start(s.command()); err != nil {
		return fmt.Errorf("start server %s: %w", s.name, err)
	}
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr, cfg.User, cfg.Logger = "unix", s.socket(), "root", &mysql.NopLogger{}
	if s.root, err = sql.Open("mysql", cfg.FormatDSN()); err != nil {
		return fmt.Errorf("connect to server %s: %w", s.name, err)
	}
	tick := time.NewTicker(serverPoll)
	defer tick.Stop()
	for s.root.PingContext(ctx) != nil {
		select {
		case <-ctx.Done():
			return fmt.Errorf("start server %s: %w; %s", s.name, ctx.Err(), s.logTail())
		case <-s.process.Done():
			return fmt.Errorf("start server %s: it has ended; %s", s.name, s.logTail())
		case <-tick.C:
		}
	}
	return nil
}

// exec runs statements as root; what they say stays out of errors, since some
// hold a password.
func (s *server) exec(ctx context.Context, statements ...string) error {
	for _, stmt := range statements {
		if _, err := s.root.ExecContext(ctx, stmt); err != nil {
			verb, _, _ := strings.Cut(stmt, " ")
			return fmt.Errorf("%s on server %s: %w", verb, s.name, err)
		}
	}
	return nil
}

// close kills the server; its files are not needed any more.
func (s *server) close() error {
	if s.root != nil {
		_ = s.root.Close() // the server goes anyway
	}
	if s.process == nil {
		return nil
	}
	return s.process.Kill()
}

// logTail returns the end of the error log, for an error.
func (s *server) logTail() string {
	const tailBytes = 600
	text, err := os.ReadFile(s.log())
	if err != nil {
		return "it has no error log"
	}
	return "its error log ends: " + strings.TrimSpace(string(text[max(0, len(text)-tailBytes):]))
}
