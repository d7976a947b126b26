package mysqld

import (
	"errors"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// TestOpenFor: while a cluster follows a source, the agent writes and clients cannot. With Nobody, nobody can.
// LetWrite does not open a server that was closed meanwhile.
func TestOpenFor(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	p := start(t, s)
	a, yes := p.Admin(), func() bool { return true }
	if err := a.LetWrite(ctx(t), Everybody, deadline, yes); !errors.Is(err, ErrNotOpen) {
		t.Fatalf("clients may write to a server that nobody has opened: %v", err)
	}
	if err := a.OpenFor(ctx(t), Admins, deadline); err != nil {
		t.Fatal(err)
	}
	if err := a.exec(ctx(t), "semi-sync off", "SET GLOBAL rpl_semi_sync_source_enabled = OFF"); err != nil {
		t.Fatal(err)
	}
	source, err := p.OpenFollow()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = source.Close() })
	mustExec(t, source, "CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY)", "CREATE USER app@'%' IDENTIFIED BY 'Aa1-0123456789abcdef'", "GRANT ALL ON d.* TO app@'%'")
	one, err := source.Conn(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"SET gtid_next = 'aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:7'", "INSERT INTO d.t VALUES (1)"} {
		if _, err := one.ExecContext(ctx(t), text); err != nil {
			t.Fatal(err)
		}
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	app := login(t, s, "app", "Aa1-0123456789abcdef")
	write := func(may bool) {
		t.Helper()
		_, err := app.ExecContext(ctx(t), "DELETE FROM d.t WHERE a = 0")
		if refused, ok := errors.AsType[*mysql.MySQLError](err); may && err != nil || !may && (!ok || refused.Number != 1290) {
			t.Errorf("a client writes: %v, want it possible: %t", err, may)
		}
	}
	write(false)
	for _, who := range []Writers{Everybody, Nobody, Admins, Everybody, Admins, Nobody, Everybody} {
		if err := a.LetWrite(ctx(t), who, deadline, yes); err != nil {
			t.Fatal(err)
		}
		write(who == Everybody)
		_, err := source.ExecContext(ctx(t), "DELETE FROM d.t WHERE a = 0")
		if (err == nil) != (who != Nobody) {
			t.Errorf("the agent writes: %v, for %d", err, who)
		}
	}
	if err := a.LetWrite(ctx(t), Nobody, deadline, func() bool { return false }); !errors.Is(err, ErrNotOpen) {
		t.Errorf("who may write is changed though it is not to be so any more: %v", err)
	}
	write(true)
	if err := a.SetSuperReadOnly(ctx(t), true, deadline); err != nil {
		t.Fatal(err)
	}
	if err := a.LetWrite(ctx(t), Everybody, deadline, yes); !errors.Is(err, ErrNotOpen) {
		t.Errorf("clients may write to a server that was closed: %v", err)
	}
	write(false)
	if _, err := source.ExecContext(ctx(t), "INSERT INTO d.t VALUES (2)"); err == nil {
		t.Error("a closed server is written")
	}
}
