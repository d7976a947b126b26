package mysqlwire

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
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

// TestDoor: a mysqld copies another mysqld's data through a door, with a password that the
// other mysqld does not know. Nobody gets in as another account, or with the account's own
// password.
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
	for _, statement := range []string{"SELECT 1", "KILL 1", "CLONE LOCAL DATA DIRECTORY = '" + filepath.Join(t.TempDir(), "local") + "'"} {
		cfg := mysql.NewConfig()
		cfg.User, cfg.Passwd, cfg.Net, cfg.Addr = "cloner", "of one use", "tcp", net.JoinHostPort(host, port)
		cfg.Logger = &mysql.NopLogger{}
		connector, err := mysql.NewConnector(cfg)
		if err != nil {
			t.Fatal(err)
		}
		db := sql.OpenDB(connector)
		_, err = db.ExecContext(t.Context(), statement)
		if server := (*mysql.MySQLError)(nil); err == nil || errors.As(err, &server) {
			t.Errorf("%s reaches mysqld: %v", statement, err)
		}
		_ = db.Close()
	}
	dir := filepath.Join(t.TempDir(), "copy")
	joiner.exec(t, fmt.Sprintf("SET GLOBAL clone_valid_donor_list = '%s:%s'", host, port), "SET GLOBAL clone_autotune_concurrency = OFF",
		"SET GLOBAL clone_max_concurrency = 4",
		fmt.Sprintf("CLONE INSTANCE FROM cloner@'%s':%s IDENTIFIED BY 'of one use' DATA DIRECTORY = '%s'", host, port, dir))
	if state := joiner.text(t, "SELECT state FROM performance_schema.clone_status"); state != "Completed" {
		t.Errorf("the copy is %s", state)
	}
}

// TestDoorPassesCopiesOnAlone: bytes that mysqld would take for a statement or another command end the
// connection, in whatever pieces they come.
func TestDoorPassesCopiesOnAlone(t *testing.T) {
	packet := func(payload ...byte) []byte {
		return append(appendPacketHeader(nil, len(payload), 0), payload...)
	}
	copies := slices.Concat(packet(comClone), packet(comInit, 0, 1, 0, 0, 60, 1, 0, 0x80, 9), packet(comReinit, 3, 1, 0, 0, 60, 1, 0, 0x80), packet(4), packet(comExit), packet(comResetConnection), packet(comQuit))
	for what, bad := range map[string][]byte{
		"": nil, "a statement": packet(append([]byte{comQuery}, "KILL 1"...)...), "a ping": packet(comPing), "nothing": packet(),
		"a copy that locks": packet(comInit, 0, 1, 0, 0, 60, 1, 0, 0, 9), "one that goes on": packet(comReinit, 3, 1, 0, 0, 60, 1, 0, 0), "a copy without a beginning": packet(comInit, 0),
		"a short statement": packet(comQuery, 0, 1), "a space": packet(append([]byte{comQuery, ' ', 1, 0, 0}, "KILL 1"...)...), "a tab": packet(append([]byte{comQuery, '\t', 1, 0, 0}, "KILL 1"...)...),
		"a prepared statement": packet(append([]byte{0x16}, "KILL 1"...)...), "another user": packet(0x11, 'r', 0), "a long one": {0xff, 0xff, 0xff, 0},
	} {
		for pieces := range 3 {
			var got bytes.Buffer
			c := &copying{Conn: sink{w: &got}}
			var err error
			for piece := range slices.Chunk(slices.Concat(copies, bad), 1+pieces*7) {
				if _, err = c.Write(piece); err != nil {
					break
				}
			}
			if (err != nil) != (bad != nil) || !bytes.HasPrefix(copies, got.Bytes()) || bad == nil && got.Len() != len(copies) {
				t.Errorf("%s, in pieces of %d: %v, %x", what, 1+pieces*7, err, got.Bytes())
			}
		}
	}
}

// sink is a connection that only keeps what is written to it.
type sink struct {
	net.Conn
	w io.Writer
}

func (s sink) Write(b []byte) (int, error) { return s.w.Write(b) }

// TestDoorWantsNoMoreThanALogin: bytes that a client sends behind its login are an error,
// because they would be lost.
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
