package e2e

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/mysql/install"
	"github.com/quorate/quorate/internal/testkit/ledger"
)

// bringBack follows the guide in docs/operations.md with a save, as a person with the role quorate_dba. The
// cluster refuses the binlog itself. A mysqld outside of the cluster turns it into SQL, which the
// cluster accepts.
func (f *fixture) bringBack(t *testing.T, ctx context.Context, dir string) {
	t.Helper()
	install, err := install.Discover(mysqlBase(t))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "q*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%s has the files %q, %v", dir, files, err)
	}
	primary, err := f.WaitPrimary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	account := f.local(t, primary)
	if err := execute(ctx, account, "CREATE USER ann@'%' IDENTIFIED BY 'Aa1-ann' DEFAULT ROLE quorate_dba"); err != nil {
		t.Fatal(err)
	}
	own := startStock(t, ctx, install)
	must := func(login []string, input, tool string, args ...string) string {
		t.Helper()
		out, errs, err := runTool(t, ctx, install, login, input, tool, args...)
		if err != nil {
			t.Fatalf("%s %v: %v: %s", tool, args, err, errs)
		}
		return out
	}
	ann, root := f.annAt(t, primary), []string{"--socket=" + own.socket, "--user=root"}
	saved := must(nil, "", "mysqlbinlog", "--skip-gtids", "--idempotent", files[0])
	if _, errs, err := runTool(t, ctx, install, ann, saved, "mysql"); err == nil || !strings.Contains(errs, "ERROR 1227") {
		t.Errorf("the cluster takes a binlog: %v, %s", err, errs)
	}
	must(root, "", "mysql", "-e", "CREATE DATABASE "+ledger.Database)
	must(root, must(ann, "", "mysqldump", "--single-transaction", "--set-gtid-purged=OFF", ledger.Database, "ledger"), "mysql", ledger.Database)
	rows := func() string {
		return must(root, "", "mysqldump", "--set-gtid-purged=OFF", "--compact", "--no-create-info", "--complete-insert", "--skip-extended-insert",
			"--hex-blob", "--order-by-primary", ledger.Database, "ledger")
	}
	before := map[string]bool{}
	for line := range strings.Lines(rows()) {
		before[line] = true
	}
	must(root, saved, "mysql")
	var back string
	for line := range strings.Lines(rows()) {
		if !before[line] {
			back += line
		}
	}
	if !strings.HasPrefix(back, "INSERT INTO `ledger` (") || strings.Count(back, "\n") != 1 {
		t.Fatalf("the cluster lacks: %.2000s", back)
	}
	must(ann, back, "mysql", "--init-command=SET time_zone = '+00:00'", ledger.Database)
	if got := queryStrings(t, ctx, account, "SELECT payload FROM quorate_demo.ledger WHERE id = (1 << 60) + 1"); len(got) != 1 || got[0] != "through its own mysqld" {
		t.Errorf("the cluster has %q", got)
	}
	for _, statement := range []string{"DELETE FROM quorate_demo.ledger WHERE id = (1 << 60) + 1", "DROP USER ann@'%'"} {
		if err := execute(ctx, account, statement); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
}
