package mysqld

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"

	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/mysql/mysqld/mysqldtest"
)

// envHelper makes the test binary run as an agent that dies: see
// TestParentDeathKillsMysqld.
const envHelper = "QUORATE_TEST_AGENT"

// deadline bounds every wait of these tests. It is long because the machine may be busy; no
// test waits until it has passed.
const deadline = 2 * time.Minute

func TestMain(m *testing.M) {
	if dir := os.Getenv(envHelper); dir != "" {
		os.Exit(runAgent(dir))
	}
	end, err := mysqldtest.UseCopies(filepath.Join("..", "..", "..", ".mysql"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		end()
		os.Exit(code)
	}))
}

// runAgent starts a mysqld in dir, prints its pid and waits for its own death.
func runAgent(dir string) int {
	cfg, err := testConfig(dir)
	if err == nil {
		cfg.OSUser = os.Getenv(envHelper + "_USER")
		var p *Process
		if p, err = New(cfg).Start(context.Background(), StartOptions{}); err == nil {
			if err = p.Ready(context.Background()); err == nil {
				fmt.Println(p.PID())
				_, _ = io.Copy(io.Discard, os.Stdin)
			}
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func findMySQL() (*install.Installation, error) {
	if os.Getenv(install.EnvBaseDir) != "" {
		return install.Discover("")
	}
	return install.Discover(filepath.Join("..", "..", "..", ".mysql"))
}

func testSecrets() Secrets {
	const p = "Aa1-0123456789abcdef-"
	return Secrets{Admin: p + "admin", Tap: p + "tap", DBA: p + "dba"}
}

// testConfig is a small mysqld in dir.
func testConfig(dir string) (Config, error) {
	in, err := findMySQL()
	if err != nil {
		return Config{}, err
	}
	port, err := freePort()
	variables := install.SmallServer()
	maps.Copy(variables, map[string]string{
		"innodb_buffer_pool_size": "32M", "innodb_redo_log_capacity": "8M",
		"innodb_fast_shutdown": "2", "max_connections": "40",
	})
	return Config{
		Installation: in,
		DataDir:      filepath.Join(dir, "mysql"),
		Port:         port,
		ServerID:     1,
		Variables:    variables,
		Secrets:      testSecrets(),
		Logger:       slog.New(slog.DiscardHandler),
	}, err
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// newServer returns an initialised server in a directory of its own.
func newServer(t *testing.T, change ...func(*Config)) *Server {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a mysqld; not in -short")
	}
	if _, err := findMySQL(); err != nil {
		t.Skipf("no MySQL to test with: %v; run `make mysql` or set %s", err, install.EnvBaseDir)
	}
	cfg, err := testConfig(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	for _, f := range change {
		f(&cfg)
	}
	s := New(cfg)
	if err := s.Initialize(ctx(t)); err != nil {
		t.Fatal(err)
	}
	return s
}

// runAs makes mysqld run as an account, which can enter the directory.
func runAs(t *testing.T, osUser string) func(*Config) {
	t.Helper()
	return func(c *Config) {
		c.OSUser = osUser
		for _, dir := range []string{filepath.Dir(c.DataDir), filepath.Dir(filepath.Dir(c.DataDir))} {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// asOther is runAs another account, where that is possible.
func asOther(t *testing.T) func(*Config) {
	if os.Geteuid() != 0 {
		return func(*Config) {}
	}
	return runAs(t, "nobody")
}

func ctx(t *testing.T) context.Context {
	t.Helper()
	c, cancel := context.WithTimeout(context.Background(), deadline)
	t.Cleanup(cancel)
	return c
}

// start starts s and waits until it can be used.
func start(t *testing.T, s *Server) *Process {
	t.Helper()
	return startWith(t, s, StartOptions{})
}

func startWith(t *testing.T, s *Server, o StartOptions) *Process {
	t.Helper()
	p, err := s.Start(ctx(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	if err := p.Ready(ctx(t)); err != nil {
		t.Fatal(err)
	}
	return p
}

// open opens the server for writes.
func open(t *testing.T, p *Process) {
	t.Helper()
	if err := p.Admin().SetSuperReadOnly(ctx(t), false, time.Second); err != nil {
		t.Fatal(err)
	}
}

// openAlone opens the server for writes that wait for no ACK.
func openAlone(t *testing.T, p *Process) *Admin {
	t.Helper()
	open(t, p)
	if err := p.Admin().exec(ctx(t), "semi-sync off", "SET GLOBAL rpl_semi_sync_source_enabled = OFF"); err != nil {
		t.Fatal(err)
	}
	return p.Admin()
}

// login returns sessions of an account through the Unix socket.
func login(t *testing.T, s *Server, user, password string) *sql.DB {
	t.Helper()
	connector, err := mysql.NewConnector(socketConfig(s.Socket(), user, password))
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func mustExec(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, q := range statements {
		if _, err := db.ExecContext(ctx(t), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
}

// eventually waits until f returns true.
func eventually(t *testing.T, what string, f func() (bool, error)) {
	t.Helper()
	c := ctx(t)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := f()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if ok {
			return
		}
		select {
		case <-c.Done():
			t.Fatalf("%s: not within %s", what, deadline)
		case <-tick.C:
		}
	}
}

func awaitClosed(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(deadline):
		t.Fatalf("%s: not within %s", what, deadline)
	}
}

// firstLineOf reads one line.
func firstLineOf(r io.Reader) (string, error) {
	line, err := bufio.NewReader(r).ReadString('\n')
	return strings.TrimSpace(line), err
}
