package e2e

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/testkit/devcluster"
	"github.com/quorate/quorate/internal/testkit/ledger"
)

// TestGhOst: gh-ost adds a column to the table that writers write to. It reads the log and the schema at a replica's port for readers, writes
// through port 6446, and goes on over a SIGKILL of the primary with its agent. No row is lost.
func TestGhOst(t *testing.T) {
	f, drivers := newCaptured(t, 10*time.Millisecond)
	ctx := scenarioContext(t)
	primary := f.heal(t, ctx)
	f.toolAccount(t, ctx, primary)
	execAll(t, ctx, f.local(t, primary),
		"GRANT ALTER, CREATE, DELETE, DROP, INDEX, INSERT, LOCK TABLES, SELECT, TRIGGER, UPDATE ON "+ledger.Database+".* TO tool@localhost",
		"CREATE USER migrate@'%' IDENTIFIED BY 'Aa1-migrate'", "GRANT ALL ON "+ledger.Database+".* TO migrate@'%'",
		"GRANT SELECT ON performance_schema.* TO migrate@'%'")
	l := f.start(t, 4)
	l.awaitAcks(t, ctx, 500)
	flag := filepath.Join(t.TempDir(), "postpone")
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	g := f.ghOst(t, ctx, filepath.Join(drivers, "gh-ost", "gh-ost"), next(primary), next(next(primary)), "--postpone-cut-over-flag-file="+flag)
	g.says(t, ctx, "postponing cut-over")
	if err := f.KillBoth(primary); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WaitPrimary(ctx, primary); err != nil {
		t.Fatal(err)
	}
	l.awaitAcks(t, ctx, 300)
	if err := os.Remove(flag); err != nil {
		t.Fatal(err)
	}
	if err := g.cmd.Wait(); err != nil {
		t.Errorf("gh-ost: %v", err)
	}
	l.awaitAcks(t, ctx, 100)
	l.stop(t)
	f.heal(t, ctx)
	f.check(t, ctx)
	for i := range f.Len() {
		var create, name string
		if err := f.local(t, i).QueryRowContext(ctx, "SHOW CREATE TABLE "+ledger.Table).Scan(&name, &create); err != nil || !strings.Contains(create, "`more` int") {
			t.Errorf("node %s: %v: %s", f.Name(i), err, create)
		}
	}
}

// ghOst is a gh-ost that runs.
type ghOst struct {
	cmd    *exec.Cmd
	output string
}

// ghOst starts it: it writes through node writeAt's port, and reads at the readers' port of node readAt.
func (f *readersFixture) ghOst(t *testing.T, ctx context.Context, program string, writeAt, readAt int, more ...string) *ghOst {
	t.Helper()
	host, port, err := net.SplitHostPort(f.addrs[readAt])
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	_, table, _ := strings.Cut(ledger.Table, ".")
	g := &ghOst{output: filepath.Join(dir, "output")}
	g.cmd = exec.CommandContext(ctx, program, append([]string{
		"--host=" + host, "--port=" + port, "--user=tool", "--password=" + readerPassword,
		"--assume-master-host=" + f.RouterAddr(writeAt), "--master-user=migrate", "--master-password=Aa1-migrate",
		"--skip-port-validation", "--assume-rbr", "--gtid", "--database=" + ledger.Database, "--table=" + table, "--alter=ADD COLUMN more INT",
		"--serve-socket-file=" + filepath.Join(dir, "s"), "--throttle-additional-flag-file=" + filepath.Join(dir, "throttle"), "--verbose", "--execute",
	}, more...)...)
	out, err := os.Create(g.output)
	if err != nil {
		t.Fatal(err)
	}
	g.cmd.Stdout, g.cmd.Stderr = out, out
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if g.cmd.ProcessState == nil {
			_ = g.cmd.Process.Kill()
			_ = g.cmd.Wait()
		}
		_ = out.Close()
		if text, err := os.ReadFile(g.output); t.Failed() && err == nil {
			t.Logf("gh-ost says: %s", text[max(0, len(text)-6000):])
		}
	})
	return g
}

// says waits until it has printed a text.
func (g *ghOst) says(t *testing.T, ctx context.Context, text string) {
	t.Helper()
	if err := devcluster.Poll(ctx, "gh-ost says "+text, func(context.Context) (bool, string, error) {
		out, err := os.ReadFile(g.output)
		return bytes.Contains(out, []byte(text)), string(out[max(0, len(out)-400):]), err
	}); err != nil {
		t.Fatal(err)
	}
}
