package mysqld

import (
	"database/sql"
	"errors"
	"net"
	"strconv"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// TestForeignXAOfOurName: an account with the agent's name at another host is a client. Its XA
// COMMIT is not taken for one of the applier, which runs as the agent.
func TestForeignXAOfOurName(t *testing.T) {
	t.Parallel()
	source, s, p := newPair(t, StartOptions{})
	source.SetMaxOpenConns(1)
	mustExec(t, source, "CREATE USER "+AdminUser+"@'%' IDENTIFIED BY 'Aa1-far-away'", "CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY)",
		"XA START 'x'", "INSERT INTO d.t VALUES (1)", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'",
		"XA START 'y'", "INSERT INTO d.t VALUES (2)", "XA END 'y'", "XA PREPARE 'y'")
	if err := p.Admin().WaitApplied(ctx(t), executed(t, source)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the applier's own is no client's", func() (bool, error) {
		foreign, err := p.ForeignXA(ctx(t))
		if foreign || err != nil {
			return false, err
		}
		commits, err := p.ForeignXACommit(ctx(t))
		return !commits, err
	})
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.Net = AdminUser, "Aa1-far-away", "tcp"
	cfg.Addr, cfg.TLSConfig = net.JoinHostPort("127.0.0.1", strconv.Itoa(s.cfg.Port)), "skip-verify"
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	far := sql.OpenDB(connector)
	defer func() { _ = far.Close() }()
	eventually(t, "the client commits what the applier has prepared", func() (bool, error) {
		_, err := far.ExecContext(ctx(t), "XA COMMIT 'y'")
		if e, ok := errors.AsType[*mysql.MySQLError](err); ok && e.Number == 1397 {
			return false, nil
		}
		return err == nil, err
	})
	if foreign, err := p.ForeignXA(ctx(t)); err != nil || !foreign {
		t.Errorf("a client has ended it, and is not seen: %v", err)
	}
	if commits, err := p.ForeignXACommit(ctx(t)); err != nil || !commits {
		t.Errorf("a client has committed it, and is not seen: %v", err)
	}
}
