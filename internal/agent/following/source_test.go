package following

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// sourceOf is a server as it is followed.
func sourceOf(s *server) *Source { return &Source{addr: s.addr, db: s.db} }

// readOnly is super_read_only and read_only of a server.
func (s *server) readOnly(t *testing.T) string {
	t.Helper()
	return s.query(t, "SELECT CONCAT(@@GLOBAL.super_read_only, @@GLOBAL.read_only)")
}

// followAccount makes the account by which a server is followed and closed.
func followAccount() []string {
	return []string{"CREATE USER 'fol'@'127.0.0.1' IDENTIFIED BY 'secret'", "GRANT SELECT ON performance_schema.* TO fol@'127.0.0.1'",
		"GRANT SYSTEM_VARIABLES_ADMIN, CONNECTION_ADMIN, PROCESS, REPLICATION CLIENT, REPLICATION SLAVE ON *.* TO fol@'127.0.0.1'"}
}

// followOf is how a server is followed by its account fol.
func followOf(t *testing.T, s *server) cluster.Follow {
	t.Helper()
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return cluster.Follow{Source: s.addr, User: "fol", PasswordFile: file, ServerUUID: s.query(t, "SELECT @@server_uuid")}
}

// holdOf holds a server, and returns what is to be noted before it is closed.
func holdOf(t *testing.T, s *Source, earlier *cluster.Closing) (*Hold, *cluster.Closing) {
	t.Helper()
	h, err := s.Hold(t.Context(), "cutover")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	g, err := gateOf(t.Context(), h.conn, "")
	if err != nil {
		t.Fatal(err)
	}
	was, err := g.closing(earlier)
	if err != nil {
		t.Fatal(err)
	}
	return h, was
}

// TestShut: a source is closed, and opened again as it was. A source that is closed already is not changed, so there
// is nothing to undo. A server other than the noted one is neither closed nor opened.
func TestShut(t *testing.T) {
	server := newServer(t, "source")
	s := sourceOf(server)
	h, was := holdOf(t, s, nil)
	if err := h.Shut(t.Context(), *was); err != nil || was.ReadOnly || server.readOnly(t) != "11" {
		t.Fatalf("%+v, %v: %s", was, err, server.readOnly(t))
	}
	g, err := gateOf(t.Context(), h.conn, "")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := g.closing(nil); err == nil || !strings.Contains(err.Error(), "--source-closed") {
		t.Errorf("closed already: %+v, %v", again, err)
	}
	if again, err := g.closing(was); err != nil || again.ReadOnly {
		t.Errorf("closed by an earlier cutover: %+v, %v", again, err)
	}
	other := cluster.Closing{ServerUUID: "another"}
	if _, err := g.closing(&other); err == nil {
		t.Error("another server is taken for the one that is closed")
	}
	if err := errors.Join(h.OpenAgain(t.Context(), other), h.Shut(t.Context(), other)); err == nil || strings.Count(err.Error(), "another server") != 2 || server.readOnly(t) != "11" {
		t.Errorf("another server: %v: %s", err, server.readOnly(t))
	}
	for range 2 { // it is undone once more if it is not known whether it was undone
		if err := h.OpenAgain(t.Context(), *was); err != nil || server.readOnly(t) != "00" {
			t.Errorf("opened again: %v: %s", err, server.readOnly(t))
		}
	}
	server.do(t, "SET GLOBAL read_only = ON")
	if h, was = holdOf(t, s, nil); !was.ReadOnly {
		t.Errorf("%+v", was)
	}
	if err := h.Shut(t.Context(), *was); err != nil || server.readOnly(t) != "11" {
		t.Errorf("%v: %s", err, server.readOnly(t))
	}
	if err := h.OpenAgain(t.Context(), *was); err != nil || server.readOnly(t) != "01" {
		t.Errorf("opened again as it was: %v: %s", err, server.readOnly(t))
	}
}

// TestHold: a new holder of a source ends what an earlier one was about to do there, and does not wait for it.
func TestHold(t *testing.T) {
	server := newServer(t, "source")
	s := sourceOf(server)
	conn, err := server.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, q := range []string{"CREATE DATABASE d", "CREATE TABLE d.t (a INT)", "LOCK TABLES d.t WRITE"} {
		if _, err := conn.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	h, was := holdOf(t, s, nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := h.Shut(ctx, *was); err == nil { // it waits for the lock of the table
		t.Fatal("it is closed in spite of a lock")
	}
	late, was := holdOf(t, s, nil)
	waits := make(chan error, 1)
	go func() { waits <- late.Shut(t.Context(), *was) }()
	for server.query(t, "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SET GLOBAL super_read_only%'") == "0" {
		time.Sleep(10 * time.Millisecond)
	}
	h, was = holdOf(t, s, nil)
	if err := <-waits; err == nil {
		t.Error("an earlier one has closed it")
	}
	if _, err := conn.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
		t.Fatal(err)
	}
	if err := h.OpenAgain(t.Context(), *was); err != nil || server.readOnly(t) != "00" {
		t.Errorf("%v: %s", err, server.readOnly(t))
	}
	if err := late.OpenAgain(t.Context(), *was); err == nil {
		t.Error("an earlier one still holds it")
	}
	if err := h.Shut(t.Context(), *was); err != nil || server.readOnly(t) != "11" {
		t.Errorf("%v: %s", err, server.readOnly(t))
	}
}

// TestKeepShut: a source that stays closed after a cutover is closed after a restart, too. If the cutover comes to
// nothing, it is open after a restart as before, and what was persisted there is restored.
func TestKeepShut(t *testing.T) {
	server := newServer(t, "source")
	restart := func() {
		t.Helper()
		if err := errors.Join(server.Stop(), server.Start(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	for _, persisted := range []string{"", "OFF"} {
		h, was := holdOf(t, sourceOf(server), nil)
		if err := errors.Join(h.Shut(t.Context(), *was), h.KeepShut(t.Context())); err != nil || was.Persisted != persisted {
			t.Fatalf("%+v, %v", was, err)
		}
		h.Close()
		restart()
		if got := server.readOnly(t); got != "11" {
			t.Errorf("after its restart: %s", got)
		}
		h, err := sourceOf(server).Hold(t.Context(), "cutover")
		if err != nil {
			t.Fatal(err)
		}
		if err := h.OpenAgain(t.Context(), *was); err != nil || server.readOnly(t) != "00" {
			t.Errorf("%v: %s", err, server.readOnly(t))
		}
		if g, err := gateOf(t.Context(), h.conn, ""); g.persisted != persisted || err != nil {
			t.Errorf("persisted is %q, %v", g.persisted, err)
		}
		h.Close()
		server.do(t, "SET PERSIST super_read_only = OFF")
	}
	restart()
	if got := server.readOnly(t); got != "00" {
		t.Errorf("undone, and after its restart: %s", got)
	}
}

// TestLeftClosed: a source that somebody else has closed since is not opened.
func TestLeftClosed(t *testing.T) {
	server := newServer(t, "source")
	server.do(t, followAccount()...)
	source, err := Open(followOf(t, server))
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	for name, since := range map[string]struct{ statements, by, want string }{
		"nobody":    {"", "", "00"},
		"super":     {"SET GLOBAL super_read_only = ON", "root has set super_read_only or read_only since", "11"},
		"read-only": {"SET GLOBAL read_only = ON", "root has set super_read_only or read_only since", "11"},
		"open":      {"SET GLOBAL super_read_only = OFF, GLOBAL read_only = OFF", "", "00"},
		"half open": {"SET GLOBAL super_read_only = OFF", "root has set super_read_only or read_only since", "01"},
		"a replica": {"CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT=1, SOURCE_USER='x'; START REPLICA SQL_THREAD", "it applies transactions of another server", "11"},
	} {
		t.Run(name, func(t *testing.T) {
			server.do(t, "SET GLOBAL super_read_only = OFF, GLOBAL read_only = OFF")
			h, was := holdOf(t, source, nil)
			defer h.Close()
			if err := errors.Join(h.Shut(t.Context(), *was), h.KeepShut(t.Context())); err != nil {
				t.Fatal(err)
			}
			if since.statements != "" {
				server.do(t, strings.Split(since.statements, "; ")...)
			}
			err := h.OpenAgain(t.Context(), *was)
			_, left := errors.AsType[*leftError](err)
			if got := server.readOnly(t); got != since.want || left != (since.by != "") || left && (!strings.Contains(err.Error(), since.by) || !strings.Contains(err.Error(), "persisted ON")) {
				t.Errorf("%s, %v, want %s, %q", got, err, since.want, since.by)
			}
			// A later cutover does not take what others have closed for its own.
			if g, err := gateOf(t.Context(), h.conn, ""); err != nil {
				t.Error(err)
			} else if again, err := g.closing(was); (err != nil) != strings.HasPrefix(since.by, "root") {
				t.Errorf("%+v, %v", again, err)
			}
			server.do(t, "STOP REPLICA", "RESET REPLICA ALL", "RESET PERSIST IF EXISTS super_read_only")
		})
	}
}

// TestClosedByOthers: what others have set since a cutover began is theirs, in whatever order a clock shows it. What
// nobody has set since belongs to the cutover: if it is ended half-way through its SET, it leaves no trace there.
func TestClosedByOthers(t *testing.T) {
	was := cluster.Closing{Account: "fol", SuperSet: "DYNAMIC root@h 5", ReadSet: "COMPILED"}
	before, ours, others := setter{"DYNAMIC root@h 5", "root"}, setter{"DYNAMIC fol@h 9", "fol"}, setter{"DYNAMIC orc@h 1", "orc"}
	unset, config := setter{"COMPILED", ""}, setter{"GLOBAL", ""}
	for _, c := range []struct {
		super, read setter
		account     string
		want        string
	}{
		{before, unset, "fol", ""}, {ours, unset, "fol", ""}, {ours, unset, "fol2", ""}, {setter{"PERSISTED fol@h 9", "fol"}, unset, "fol2", ""},
		{setter{"DYNAMIC fol2@h 9", "fol2"}, unset, "fol2", ""}, {others, unset, "fol", "orc"}, {ours, others, "fol", "orc"}, {before, others, "fol", "orc"},
		{ours, config, "fol", "its configuration"}, {unset, unset, "fol", ""}, {setter{"PERSISTED fol@h 9", "fol"}, unset, "fol", ""}, {setter{"DYNAMIC root@h 9", "root"}, unset, "fol", "root"},
	} {
		if got := (gate{superReadOnly: c.super != before && c.super != unset, super: c.super, read: c.read, account: c.account}).others(was); got != c.want {
			t.Errorf("%+v: %q, want %q", c, got, c.want)
		}
	}
}

// TestClosedByConfiguration: a configuration file that has changed since leaves no time of change: the setter is the
// same before and after.
func TestClosedByConfiguration(t *testing.T) {
	file := setter{"GLOBAL", ""}
	was := cluster.Closing{Account: "fol", SuperSet: "GLOBAL", ReadSet: "GLOBAL"}
	for on, want := range map[bool]string{true: itsConfiguration, false: ""} {
		if got := (gate{superReadOnly: on, super: file, read: file, account: "fol"}).others(was); got != want {
			t.Errorf("super_read_only %t: %q, want %q", on, got, want)
		}
	}
	was.SuperSet = "COMPILED"
	if got := (gate{superReadOnly: true, super: file, read: file, account: "fol"}).others(was); got != itsConfiguration {
		t.Errorf("both by the file, one of them since: %q", got)
	}
}

// TestApplies: a source that applies the transactions of another server may lack what that server has acknowledged.
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

// TestFilterAndEngines: at a real server it is seen what the binlog leaves out, and which tables have other engines
// than InnoDB. Both speak against following it.
func TestFilterAndEngines(t *testing.T) {
	server := newServer(t, "source", "binlog_ignore_db=x")
	server.do(t, "CREATE DATABASE shop", "CREATE TABLE shop.i (id INT)", "CREATE TABLE shop.m (id INT) ENGINE = MyISAM")
	l, err := sourceOf(server).Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	failed := map[string]string{}
	for _, c := range Check(l, Here{Version: l.Version, UUID: "here", Executed: new(gtid.Set), Fixed: l.Fixed}) {
		if c.State == cluster.CheckFail {
			failed[c.Subject] = c.Found
		}
	}
	want := map[string]string{"filters": "its binlog leaves out: binlog_ignore_db x", "engines": "tables that are not InnoDB's: shop.m (MyISAM)"}
	if d := cmp.Diff(want, failed); d != "" {
		t.Errorf("what speaks against it (-want +got):\n%s", d)
	}
}

// TestXAAtSource: read-only does not stop an XA transaction, so all are seen: in a session, prepared or not, and
// without one. If they cannot be seen, that is an error.
func TestXAAtSource(t *testing.T) {
	server := newServer(t, "source")
	s := sourceOf(server)
	looks := func(want string) {
		t.Helper()
		if xa, err := s.XA(t.Context()); err != nil || !strings.Contains(xa, want) || want == "" && xa != "" {
			t.Errorf("%q, %v, want %q", xa, err, want)
		}
	}
	looks("")
	server.do(t, "UPDATE performance_schema.setup_instruments SET ENABLED = 'NO' WHERE NAME = 'transaction'")
	looks("") // no transaction was begun
	server.do(t, "UPDATE performance_schema.setup_instruments SET ENABLED = 'YES' WHERE NAME = 'transaction'")
	server.do(t, "CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY)")
	conn, err := s.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	do := func(text string) {
		t.Helper()
		if _, err := conn.ExecContext(t.Context(), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	do("BEGIN")
	do("INSERT INTO d.t VALUES (1)")
	looks("") // it is no XA transaction
	do("ROLLBACK")
	do("XA START 'x'")
	do("INSERT INTO d.t VALUES (1)")
	h, was := holdOf(t, s, nil)
	if err := h.Shut(t.Context(), *was); err != nil {
		t.Fatal(err)
	}
	looks("1 XA transactions are open in sessions, 0 are prepared")
	do("XA END 'x'")
	looks("1 XA transactions are open in sessions, 0 are prepared")
	do("XA PREPARE 'x'") // as read-only lets it
	looks("0 XA transactions are open in sessions, 1 are prepared")
	do("XA COMMIT 'x'")
	looks("") // although the session's row says PREPARED until it does something else
	if err := h.OpenAgain(t.Context(), *was); err != nil {
		t.Fatal(err)
	}
	server.do(t, "UPDATE performance_schema.setup_consumers SET ENABLED = 'NO' WHERE NAME = 'events_transactions_current'")
	if xa, err := s.XA(t.Context()); err == nil {
		t.Errorf("%q of a server that shows none", xa)
	}
}

// TestXANeedsPrivileges: an account that must not see what is prepared gets an error, not the answer that there is
// nothing.
func TestXANeedsPrivileges(t *testing.T) {
	server := newServer(t, "source")
	server.do(t, "CREATE USER fol IDENTIFIED BY 'p'", "GRANT SELECT ON performance_schema.* TO fol")
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.Net, cfg.Addr = "fol", "p", "tcp", server.addr
	cfg.TLSConfig = "skip-verify"
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := &Source{db: sql.OpenDB(connector)}
	defer s.Close()
	if xa, err := s.XA(t.Context()); err == nil {
		t.Errorf("%q", xa)
	}
	server.do(t, "GRANT XA_RECOVER_ADMIN ON *.* TO fol")
	if xa, err := s.XA(t.Context()); err != nil || xa != "" {
		t.Errorf("%q, %v", xa, err)
	}
}

// TestReopen: if a source cannot be opened again at once, that is tried for a while, until the cutover is over.
func TestReopen(t *testing.T) {
	broken := errors.New("the connection is broken")
	for name, c := range map[string]struct {
		stands time.Duration // for how long it cannot be opened
		over   time.Duration // when somebody else has ended the cutover
		err    bool
	}{
		"at once":       {0, time.Hour, false},
		"a break":       {4 * time.Second, time.Hour, false},
		"for too long":  {time.Hour, time.Hour, true},
		"somebody else": {time.Hour, 3 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				err := reopen(t.Context(), func() bool { return time.Since(began) >= c.over }, func(context.Context) error {
					if time.Since(began) < c.stands {
						return broken
					}
					return nil
				})
				took := time.Since(began)
				if (err != nil) != c.err || took > reopenFor || took > min(c.stands, c.over)+reopenPause || c.err != (took == reopenFor) {
					t.Errorf("%v after %v", err, took)
				}
			})
		})
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

// TestBrief: the server's own text, which may quote a row, stays on the node.
func TestBrief(t *testing.T) {
	err := &mysql.MySQLError{Number: 1062, Message: "Duplicate entry 'ann@example.org' for key 't.mail'"}
	if got := brief(err); got != "error 1062, see the agent's log there" {
		t.Errorf("%q", got)
	}
	if got := brief(context.Canceled); got != "context canceled" {
		t.Errorf("%q", got)
	}
}

// TestStartKeepsWhatWasAccepted: the cluster state says which server it was, and which transactions only the cluster
// had.
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
