package mysqlwire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// wayThrough is a loopback port whose clients go through a door.
func wayThrough(t *testing.T, d Door) (host, port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer func() { _ = in.Close() }()
				out, err := d.Open(ctx, in)
				if err != nil {
					return
				}
				stop := context.AfterFunc(ctx, func() { _, _ = in.Close(), out.Close() })
				defer stop()
				all.Go(func() {
					_, _ = io.Copy(out, in)
					_, _ = in.Close(), out.Close()
				})
				_, _ = io.Copy(in, out)
				_ = out.Close()
			})
		}
	})
	host, port, _ = net.SplitHostPort(l.Addr().String())
	return host, port
}

// TestDoor: a mysqld copies another one's data through a door, with a password that the
// other mysqld does not know; nobody comes in as another account, or with the account's
// own password.
func TestDoor(t *testing.T) {
	clone := "--plugin-load-add=clone=mysql_clone.so"
	donor, joiner := startMysqld(t, 1, "--super-read-only=OFF", clone), startMysqld(t, 2, clone)
	donor.exec(t, "CREATE USER cloner@localhost IDENTIFIED BY 'its own secret'", "GRANT BACKUP_ADMIN ON *.* TO cloner@localhost",
		"CREATE DATABASE app", "CREATE TABLE app.t (a LONGTEXT)", "INSERT INTO app.t VALUES (REPEAT('x', 6000000))", "SET GLOBAL super_read_only = ON")
	host, port := wayThrough(t, Door{
		Socket: donor.socket, Version: "9.7.4", User: "cloner", Password: "its own secret", ClientPassword: "of one use",
	})
	for _, c := range [][2]string{{"root", ""}, {"root", "of one use"}, {"cloner", "its own secret"}, {"cloner", ""}, {"", "of one use"}} {
		cfg := mysql.NewConfig()
		cfg.User, cfg.Passwd, cfg.Net, cfg.Addr = c[0], c[1], "tcp", net.JoinHostPort(host, port)
		cfg.Logger = &mysql.NopLogger{}
		connector, err := mysql.NewConnector(cfg)
		if err != nil {
			t.Fatal(err)
		}
		_, err = connector.Connect(t.Context())
		if server := (*mysql.MySQLError)(nil); !errors.As(err, &server) || server.Number != 1045 {
			t.Errorf("as %q with %q: %v, want error 1045", c[0], c[1], err)
		}
	}
	dir := filepath.Join(t.TempDir(), "copy")
	joiner.exec(t, fmt.Sprintf("SET GLOBAL clone_valid_donor_list = '%s:%s'", host, port), "SET GLOBAL clone_autotune_concurrency = OFF",
		"SET GLOBAL clone_max_concurrency = 4",
		fmt.Sprintf("CLONE INSTANCE FROM cloner@'%s':%s IDENTIFIED BY 'of one use' DATA DIRECTORY = '%s'", host, port, dir))
	if state := joiner.text(t, "SELECT state FROM performance_schema.clone_status"); state != "Completed" {
		t.Errorf("the copy is %s", state)
	}
}

// TestDoorWantsNoMoreThanALogin: what a client sends behind its login would be lost.
func TestDoorWantsNoMoreThanALogin(t *testing.T) {
	a, b := net.Pipe()
	defer func() { _, _ = a.Close(), b.Close() }()
	go func() {
		w := &wire{conn: a, in: newPacketReader(a, 4096, loginBytesMax)}
		payload, err := w.read()
		if err != nil {
			return
		}
		nonce, _ := parseGreeting(payload)
		_ = w.write(loginResponse("u", scramble("p", nonce)), []byte{comPing})
		_, _ = io.Copy(io.Discard, a)
	}()
	_, err := Door{Socket: "/nonexistent", User: "u", ClientPassword: "p"}.Open(t.Context(), b)
	if err == nil || !strings.Contains(err.Error(), "more than a login") {
		t.Errorf("%v", err)
	}
}
