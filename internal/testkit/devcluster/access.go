package devcluster

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

// applicationUser is the account that CreateApplication makes.
const applicationUser = "app"

// RouterAddr returns the host:port of node i's read/write port.
func (c *Cluster) RouterAddr(i int) string { return c.addr(c.nodes[i].ports.router) }

// ReadAddr returns the host:port of node i's read-only port.
func (c *Cluster) ReadAddr(i int) string { return c.addr(c.nodes[i].ports.reads) }

// APIAddr returns the host:port of node i's HTTP API.
func (c *Cluster) APIAddr(i int) string { return c.addr(c.nodes[i].ports.api) }

// FeedAddr returns the host:port from which node i's mysqld replicates.
func (c *Cluster) FeedAddr(i int) string { return c.feedAddr(c.nodes[i]) }

// ControlSocket returns the path of the socket where node i's agent takes requests.
func (c *Cluster) ControlSocket(i int) string {
	return config.Config{DataDir: c.DataDir(i)}.ControlSocket()
}

// MysqldAddr returns the host:port of node i's mysqld itself. Applications do
// not connect there.
func (c *Cluster) MysqldAddr(i int) string { return c.addr(c.nodes[i].ports.mysql) }

// mysqlDir is node i's mysql directory (package mysqld).
func (c *Cluster) mysqlDir(i int) string { return filepath.Join(c.nodes[i].dataDir(), "mysql") }

// MysqldDataDir returns the data directory of node i's mysqld.
func (c *Cluster) MysqldDataDir(i int) string { return filepath.Join(c.mysqlDir(i), "data") }

// Socket returns the path of the Unix socket of node i's mysqld.
func (c *Cluster) Socket(i int) string {
	return mysqld.New(mysqld.Config{DataDir: c.mysqlDir(i)}).Socket()
}

// Application returns the application's account.
func (c *Cluster) Application() (user, password string) { return applicationUser, c.appPassword }

// DSN returns how the application connects through node i's router.
func (c *Cluster) DSN(i int) string {
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr = "tcp", c.RouterAddr(i)
	cfg.User, cfg.Passwd = c.Application()
	return cfg.FormatDSN()
}

// ReadDSN is DSN at the read-only port.
func (c *Cluster) ReadDSN(i int) string {
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr = "tcp", c.ReadAddr(i)
	cfg.User, cfg.Passwd = c.Application()
	return cfg.FormatDSN()
}

// ClientCommand returns the shell command that connects like DSN does.
func (c *Cluster) ClientCommand(i int) string {
	user, password := c.Application()
	return fmt.Sprintf("mysql --host=%s --port=%d --user=%s --password=%s", c.host, c.nodes[i].ports.router, user, password)
}

// LocalDSN returns how the operator connects to node i's own mysqld, through
// its socket. It fails before the node's first start has made the account.
func (c *Cluster) LocalDSN(i int) (string, error) {
	return c.socketDSN(i, mysqld.DBAUser, func(s mysqld.Secrets) string { return s.DBA })
}

// AdminDSN is LocalDSN with the agent's own account, which has privileges that no user
// has: for tests.
func (c *Cluster) AdminDSN(i int) (string, error) {
	return c.socketDSN(i, mysqld.AdminUser, func(s mysqld.Secrets) string { return s.Admin })
}

func (c *Cluster) socketDSN(i int, user string, password func(mysqld.Secrets) string) (string, error) {
	secrets, err := mysqld.LoadSecrets(filepath.Join(c.nodes[i].dataDir(), "secrets.toml"))
	if err != nil {
		return "", fmt.Errorf("connect to node %s: %w", c.nodes[i].name, err)
	}
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr = "unix", c.Socket(i)
	cfg.User, cfg.Passwd = user, password(secrets)
	cfg.Logger = &mysql.NopLogger{}
	return cfg.FormatDSN(), nil
}

// CreateApplication creates a database, and the application's account with
// every right on it, on node primary.
func (c *Cluster) CreateApplication(ctx context.Context, primary int, database string) error {
	dsn, err := c.LocalDSN(primary)
	if err != nil {
		return err
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return fmt.Errorf("use DSN of node %s: %w", c.nodes[primary].name, err)
	}
	defer db.Close()
	user, password := c.Application()
	for _, stmt := range []string{
		"CREATE DATABASE IF NOT EXISTS " + database,
		fmt.Sprintf("CREATE USER IF NOT EXISTS %s@'%%' IDENTIFIED BY '%s'", user, password),
		fmt.Sprintf("GRANT ALL ON %s.* TO %s@'%%'", database, user),
	} {
		if _, err := db.ExecContext(ctx, stmt); err != nil {
			return fmt.Errorf("%s: %w", strings.ReplaceAll(stmt, password, "…"), err)
		}
	}
	return nil
}
