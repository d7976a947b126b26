package mysqld

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// wayTo is a loopback port whose connections end at a server's Unix socket.
func wayTo(t *testing.T, socket string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("unix", socket)
			if err != nil {
				_ = in.Close()
				continue
			}
			for _, c := range [][2]net.Conn{{in, out}, {out, in}} {
				all.Go(func() {
					_, _ = io.Copy(c[0], c[1])
					_, _ = c[0].Close(), c[1].Close()
				})
			}
		}
	})
	return l.Addr().String()
}

// TestClone copies a replica's data into a new server, which holds the same
// transactions, under a name of its own and with its own accounts.
func TestClone(t *testing.T) {
	t.Parallel()
	donor := newServer(t)
	d := start(t, donor)
	session, err := d.Admin().db.Conn(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{
		"SET GLOBAL rpl_semi_sync_source_enabled=OFF", "SET GLOBAL super_read_only=OFF", "SET sql_log_bin=1",
		"CREATE DATABASE app", "CREATE TABLE app.t (id INT PRIMARY KEY, b BLOB)", "INSERT INTO app.t VALUES (1, REPEAT('x', 60000)), (2, 'y')",
		"SET GLOBAL super_read_only=ON",
	} {
		if _, err := session.ExecContext(ctx(t), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	if err := session.Close(); err != nil {
		t.Fatal(err)
	}
	executed, err := d.Admin().GTIDExecuted(ctx(t))
	if err != nil || executed == "" {
		t.Fatalf("gtid_executed %q, %v", executed, err)
	}
	own := func(c *Config) {
		const p = "Aa1-fedcba9876543210-"
		c.Secrets = Secrets{Admin: p + "admin", Tap: p + "tap", DBA: p + "dba"}
	}
	seed := newServer(t, own, asOther(t)) // mysqld makes its copy where it may write, and root takes the copy over
	s := start(t, seed)
	from := CloneSource{Addr: wayTo(t, donor.Socket()), Password: donor.cfg.Secrets.Clone()}
	cloneNeedsSpace(t, s, from)
	dir := seed.CloneDir()
	if err := s.Admin().Clone(ctx(t), from, dir); err != nil {
		t.Fatal(err)
	}
	bytes, estimate, err := s.Admin().CloneProgress(ctx(t))
	if err != nil || bytes < 60000 || estimate < bytes {
		t.Errorf("progress %d of %d, %v", bytes, estimate, err)
	}
	if about, err := d.Admin().DataBytes(ctx(t)); err != nil || about < bytes/2 || about > 2*bytes {
		t.Errorf("%d bytes were copied, and about %d were to be, %v", bytes, about, err)
	}
	s.Kill()
	cfg := seed.cfg
	cfg.DataDir, cfg.Socket = filepath.Join(filepath.Dir(cfg.DataDir), "joined"), ""
	joined := New(cfg)
	uuid, err := joined.Adopt(ctx(t), dir)
	if err != nil {
		t.Fatal(err)
	}
	j := start(t, joined)
	if got, err := j.Admin().ServerUUID(ctx(t)); err != nil || got != uuid {
		t.Errorf("server UUID %q, %v, want %q", got, err, uuid)
	}
	if got, err := j.Admin().GTIDExecuted(ctx(t)); err != nil || got != executed {
		t.Errorf("gtid_executed %q, %v, want %q", got, err, executed)
	}
	var rows int
	if err := j.Admin().query1(ctx(t), "count", "SELECT COUNT(*) FROM app.t", nil, &rows); err != nil || rows != 2 {
		t.Errorf("%d rows, %v", rows, err)
	}
	if err := j.Admin().ConfigureReplication(ctx(t), "127.0.0.1", 1); err != nil {
		t.Error(err)
	}
	if _, err := joined.Adopt(ctx(t), dir); err == nil {
		t.Error("adopted again")
	}
}

// TestCloneTakesPlainPasswords: the password comes from another node and goes into a statement.
func TestCloneTakesPlainPasswords(t *testing.T) {
	from := CloneSource{Addr: "127.0.0.1:1", Password: "x' REQUIRE NO SSL; SET GLOBAL x='"}
	if err := new(Admin).Clone(t.Context(), from, "/nonexistent"); !errors.Is(err, ErrSecrets) {
		t.Errorf("with a password that ends the text of the statement: %v, want %v", err, ErrSecrets)
	}
}

// cloneNeedsSpace: the error for a disk that is too small.
func cloneNeedsSpace(t *testing.T, p *Process, from CloneSource) {
	t.Helper()
	if os.Geteuid() != 0 {
		return // only root can mount
	}
	small := filepath.Join(t.TempDir(), "small")
	if err := errors.Join(os.Mkdir(small, 0o755), unix.Mount("tmpfs", small, "tmpfs", 0, "size=1m,mode=777")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(small, 0) })
	if err := p.Admin().Clone(ctx(t), from, filepath.Join(small, "clone")); !errors.Is(err, ErrNoSpace) {
		t.Errorf("into 1 MiB: %v, want %v", err, ErrNoSpace)
	}
}

// TestCloneAccountMay: what a joining node could do at the server whose data it copies, if it could send SQL there.
// docs/security.md describes it.
func TestCloneAccountMay(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	p := start(t, s)
	openAlone(t, p)
	mustExec(t, login(t, s, DBAUser, s.cfg.Secrets.DBA), "CREATE DATABASE app", "CREATE TABLE app.t (a INT PRIMARY KEY)")
	tap, err := login(t, s, TapUser, s.cfg.Secrets.Tap).Conn(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	id := 0
	if err := tap.QueryRowContext(ctx(t), "SELECT CONNECTION_ID()").Scan(&id); err != nil {
		t.Fatal(err)
	}
	joiner := login(t, s, CloneUser, s.cfg.Secrets.Clone())
	for _, q := range []string{
		"SELECT * FROM app.t", "DROP TABLE app.t", "SELECT * FROM mysql.user", "CREATE USER x@'%'", "SET GLOBAL super_read_only = ON", "SET sql_log_bin = 0",
		"SET PERSIST max_connections = 1", "SHUTDOWN", "RESET BINARY LOGS AND GTIDS", "SELECT 1 INTO OUTFILE '/tmp/q'", "GRANT BACKUP_ADMIN ON *.* TO 'dba'@'localhost'",
		"FLUSH TABLES WITH READ LOCK", "INSTALL PLUGIN x SONAME 'x.so'",
	} {
		if _, err := joiner.ExecContext(ctx(t), q); err == nil {
			t.Errorf("it may %s", q)
		}
	}
	dir := filepath.Join(t.TempDir(), "copy")
	mustExec(t, joiner, fmt.Sprint("KILL ", id), "CLONE LOCAL DATA DIRECTORY = '"+dir+"'", "ALTER INSTANCE RELOAD TLS", "LOCK INSTANCE FOR BACKUP")
	if err := tap.PingContext(ctx(t)); err == nil {
		t.Error("a killed session goes on")
	}
}
