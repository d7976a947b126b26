package following

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/mysql/mysqld/mysqldtest"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
)

func TestMain(m *testing.M) {
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

// server is a MySQL server with an account that may read its binlog.
type server struct {
	*mysqldtest.Plain
	addr string
	db   *sql.DB
}

// newServer starts a server; the test is skipped if there is no MySQL.
func newServer(t *testing.T, name string, options ...string) *server {
	t.Helper()
	return newServerOf(t, "", name, options...)
}

// newServerOf starts a server of the MySQL in base; "" = of the MySQL that all tests use.
func newServerOf(t *testing.T, base, name string, options ...string) *server {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a mysqld")
	}
	in, err := install.Discover(base)
	if err != nil {
		t.Skip("no MySQL: run `make mysql` or set QUORATE_MYSQL_BASE: ", err)
	}
	dir, err := os.MkdirTemp("", "qf-") // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().(*net.TCPAddr)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	p, err := mysqldtest.NewPlain(in, filepath.Join(dir, name), append(options, fmt.Sprintf("port=%d", addr.Port), "bind_address=127.0.0.1")...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Kill()
		_ = os.RemoveAll(dir)
	})
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", p.DSN())
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxIdleConns(-1) // no session inherits what another one has set
	t.Cleanup(func() { _ = db.Close() })
	return &server{p, addr.String(), db}
}

// do executes statements in one session.
func (s *server) do(t *testing.T, statements ...string) {
	t.Helper()
	conn, err := s.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, text := range statements {
		if _, err := conn.ExecContext(t.Context(), text); err != nil {
			t.Fatalf("%.200s: %v", text, err)
		}
	}
}

func (s *server) query(t *testing.T, text string, args ...any) (out string) {
	t.Helper()
	if err := s.db.QueryRowContext(t.Context(), text, args...).Scan(&out); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return strings.ReplaceAll(out, "\n", "")
}

func (s *server) executed(t *testing.T) *gtid.Set {
	t.Helper()
	set, err := gtid.ParseSet(s.query(t, "SELECT @@GLOBAL.gtid_executed"))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// dial reads the server's binlog as rep.
func (s *server) dial(password string) func(context.Context, *gtid.Set) (Stream, error) {
	return func(ctx context.Context, executed *gtid.Set) (Stream, error) {
		f, err := mysqlwire.DialForeign(ctx, mysqlwire.ForeignConfig{
			Addr: s.addr, User: "rep", Password: password, ServerID: 77, ReplicaUUID: "77777777-0000-0000-0000-000000000001",
			HeartbeatPeriod: time.Second, Exclude: executed,
		})
		if err != nil {
			return nil, err
		}
		return f, nil
	}
}
