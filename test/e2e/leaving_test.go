package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/quorate/quorate/internal/testkit/ledger"
)

// leavingPage is the page whose statements the test runs.
const leavingPage = "../../docs/leaving.md"

var leaveSQL = regexp.MustCompile("(?s)```sql\n(SET sql_log_bin = 0;.*?)```")

// leaveFile writes the init file of docs/leaving.md, with no password for root.
func leaveFile(t *testing.T) (path string) {
	t.Helper()
	page, err := os.ReadFile(leavingPage)
	if err != nil {
		t.Fatal(err)
	}
	found := leaveSQL.FindSubmatch(page)
	if found == nil {
		t.Fatalf("%s has no leave.sql", leavingPage)
	}
	path = filepath.Join(t.TempDir(), "leave.sql")
	text := regexp.MustCompile("'a new password'").ReplaceAllLiteral(found[1], []byte("''"))
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// leaveByReplica: a stock server begins with a copy of a replica's data, and follows the readers' port while
// clients write. After it was promoted by hand it has every row, and no accounts or schemas of quorate.
func (f *readersFixture) leaveByReplica(t *testing.T, ctx context.Context, i int) {
	t.Helper()
	if err := f.Terminate(ctx, i); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(t.TempDir(), "d")
	if out, err := exec.Command("cp", "-a", "--reflink=auto", f.MysqldDataDir(i), data).CombinedOutput(); err != nil {
		t.Fatalf("copy the data: %v\n%s", err, out)
	}
	if err := f.Start(ctx, i); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(data, "auto.cnf")); err != nil {
		t.Fatal(err)
	}
	l := f.start(t, 2)
	server := runStock(t, ctx, f.install, data, "--init-file="+leaveFile(t))
	server.follow(t, ctx, f, next(i))
	l.awaitAcks(t, ctx, 100)
	f.heal(t, ctx)
	l.stop(t)
	f.check(t, ctx)
	f.checkReplica(t, ctx, server)
	if _, err := server.db.ExecContext(ctx, "STOP REPLICA"); err != nil {
		t.Fatal(err)
	}
	f.checkLeft(t, ctx, server)
}

// leaveInPlace starts a stock server on a node's own data, once all agents are stopped in order.
func (f *readersFixture) leaveInPlace(t *testing.T, ctx context.Context, i int) {
	t.Helper()
	want := f.executed(t, ctx, i)
	if err := f.Stop(); err != nil {
		t.Fatal(err)
	}
	server := runStock(t, ctx, f.install, f.MysqldDataDir(i), "--init-file="+leaveFile(t))
	var missing string
	if err := server.db.QueryRowContext(ctx, "SELECT GTID_SUBTRACT(?, @@GLOBAL.gtid_executed)", want.String()).Scan(&missing); err != nil || missing != "" {
		t.Errorf("the server that was left lacks %q, %v", missing, err)
	}
	f.checkServers(t, ctx, ledger.Server{Name: "the server that was left", DSN: server.dsn})
	f.checkLeft(t, ctx, server)
}

// checkLeft fails the test unless a server is a normal one: the application's account can write, and no accounts or
// schemas of quorate are left.
func (f *readersFixture) checkLeft(t *testing.T, ctx context.Context, r *stockReplica) {
	t.Helper()
	if _, err := r.db.ExecContext(ctx, "RESET REPLICA ALL"); err != nil {
		t.Fatal(err)
	}
	user, password := f.Application()
	app := openDSN(t, fmt.Sprintf("%s:%s@unix(%s)/%s", user, password, r.socket, ledger.Database), nil)
	if _, err := app.ExecContext(ctx, "CREATE TABLE left_behind (id INT PRIMARY KEY)"); err != nil {
		t.Errorf("the application cannot write: %v", err)
	}
	for _, q := range []string{
		"SELECT CONCAT(user, '@', host) FROM mysql.user WHERE user LIKE 'quorate%' AND user <> 'quorate_dba'",
		"SELECT CONCAT(channel_name, host) FROM performance_schema.replication_connection_configuration",
		"SELECT name FROM mysql.plugin",
		"SELECT variable_name FROM performance_schema.persisted_variables",
	} {
		if left := queryStrings(t, ctx, r.db, q); len(left) > 0 {
			t.Errorf("%s: %q is left", q, left)
		}
	}
}
