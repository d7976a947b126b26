package following

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// sourceOf is a server as it is followed.
func sourceOf(s *server) *Source { return &Source{addr: s.addr, db: s.db} }

// TestShut: a source is closed, and opened again as it was. Of one that is closed already nothing is changed, so there is
// nothing to undo; what could not close it in time closes it never.
func TestShut(t *testing.T) {
	s := sourceOf(newServer(t, "source"))
	closed := func() (both string) {
		t.Helper()
		if err := s.db.QueryRowContext(t.Context(), "SELECT CONCAT(@@GLOBAL.super_read_only, @@GLOBAL.read_only)").Scan(&both); err != nil {
			t.Fatal(err)
		}
		return both
	}
	was, err := s.Shut(t.Context())
	if err != nil || was == nil || closed() != "11" {
		t.Fatalf("%+v, %v: %s", was, err, closed())
	}
	if again, err := s.Shut(t.Context()); err == nil || again != nil || !strings.Contains(err.Error(), "--source-closed") {
		t.Errorf("closed already: %+v, %v", again, err)
	}
	if err := s.OpenAgain(t.Context(), *was); err != nil || closed() != "00" {
		t.Errorf("opened again: %v: %s", err, closed())
	}
	conn, err := s.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, q := range []string{"CREATE DATABASE d", "CREATE TABLE d.t (a INT)", "LOCK TABLES d.t WRITE"} {
		if _, err := conn.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	was, err = s.Shut(ctx) // it waits for the lock
	if err == nil || was == nil {
		t.Fatalf("%+v, %v", was, err)
	}
	if _, err := conn.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
		t.Fatal(err)
	}
	if err := s.OpenAgain(t.Context(), *was); err != nil || closed() != "00" {
		t.Errorf("given up: %v: %s", err, closed())
	}
}

// TestApplies: a source that applies what another server has may lack what that has acknowledged.
func TestApplies(t *testing.T) {
	s := newServer(t, "source")
	if why, err := sourceOf(s).Applies(t.Context()); err != nil || why != "" {
		t.Errorf("a source alone: %q, %v", why, err)
	}
	for _, q := range []string{"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = 1, SOURCE_USER = 'x', SOURCE_AUTO_POSITION = 1", "START REPLICA SQL_THREAD"} {
		if _, err := s.db.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	if why, err := sourceOf(s).Applies(t.Context()); err != nil || !strings.Contains(why, "STOP REPLICA") {
		t.Errorf("a replica: %q, %v", why, err)
	}
}

// TestPasswordFile: it has one line, and others cannot read it. A key is no password.
func TestPasswordFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p")
	for _, c := range []struct {
		text, want, refused string
		mode                os.FileMode
	}{
		{"secret\n", "secret", "", 0o600}, {"secret\r\n", "secret", "", 0o640}, {"secret\n", "", "others cannot read", 0o604},
		{"-----BEGIN PRIVATE KEY-----\nMC4C\n", "", "more than one line", 0o600}, {strings.Repeat("x", passwordBytesMax+1), "", "too long", 0o600},
	} {
		if err := os.WriteFile(path, []byte(c.text), c.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		got, err := readPassword(path)
		if got != c.want || (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%.20q: %q, %v", c.text, got, err)
		}
	}
}

// TestBrief: what the server says of a row stays on the node.
func TestBrief(t *testing.T) {
	err := &mysql.MySQLError{Number: 1062, Message: "Duplicate entry 'ann@example.org' for key 't.mail'"}
	if got := brief(err); got != "error 1062, see the agent's log there" {
		t.Errorf("%q", got)
	}
	if got := brief(context.Canceled); got != "context canceled" {
		t.Errorf("%q", got)
	}
}

// TestStartKeepsWhatWasAccepted: the state has which server it was, and what the cluster had of its own.
func TestStartKeepsWhatWasAccepted(t *testing.T) {
	set := func(text string) *gtid.Set {
		s, err := gtid.ParseSet(text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	const a, b = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa", "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb"
	ours := onlyHere(Look{Executed: set(a + ":1-9")}, Here{Executed: set(a + ":1-5," + b + ":1-2")})
	f := cluster.Follow{Source: "db0:3306", User: "fol", PasswordFile: "/p", ServerUUID: a, Accepted: ours.String()}
	if f.Accepted != b+":1-2" || f.Check() != nil {
		t.Errorf("%q, %v", f.Accepted, f.Check())
	}
	f.Accepted = strings.Repeat("x", cluster.FollowAcceptedBytesMax+1)
	if f.Check() == nil {
		t.Error("too much is taken")
	}
}
