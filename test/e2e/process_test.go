package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// TestUnprivileged kills an agent that is not root, and one whose mysqld is
// not: the parent-death signal is lost in a change of user, if that is done in
// the wrong place, and mysqld would stay.
func TestUnprivileged(t *testing.T) {
	beside(t)
	if os.Geteuid() != 0 {
		// What can be had is the first case, with the user that runs the tests.
		t.Run("Agent", func(t *testing.T) { killAndReturn(t, devcluster.Options{Nodes: 1}) })
		return
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, uidErr := strconv.ParseUint(nobody.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(nobody.Gid, 10, 32)
	if err := errors.Join(uidErr, gidErr); err != nil {
		t.Fatal(err)
	}
	t.Run("Agent", func(t *testing.T) {
		killAndReturn(t, devcluster.Options{Nodes: 1, AgentUser: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}})
	})
	t.Run("Mysqld", func(t *testing.T) {
		killAndReturn(t, devcluster.Options{Nodes: 1, MySQLUser: "nobody"})
	})
	t.Run("Moved", func(t *testing.T) {
		f := newFixture(t, devcluster.Options{Nodes: 1, MySQLUser: "nobody"})
		f.moveToUnprivileged(t, scenarioContext(t))
	})
}

// moveToUnprivileged gives a node whose agent was root to mysqld's account, as docs/operations.md
// says. The agent runs on as that, as the unit in packaging/ has it.
func (f *fixture) moveToUnprivileged(t *testing.T, ctx context.Context) {
	l := f.start(t, 4)
	l.awaitAcks(t, ctx, 50)
	f.wrapAgent(t, ctx, 0, func() { giveAway(t, f.Dir(), filepath.Dir(f.DataDir(0))) },
		"--reuid=nobody --regid=nogroup --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs")
	l.awaitAcks(t, ctx, 50)
	if err := f.KillAgent(0); err != nil {
		t.Fatal(err)
	}
	f.heal(t, ctx)
	l.awaitAcks(t, ctx, 50)
	l.stop(t)
	f.check(t, ctx)
}

// otherAccount is one that mysqld can run as beside an agent that is root; "" = this test's own.
func otherAccount() string {
	if os.Geteuid() != 0 {
		return ""
	}
	return "nobody"
}

// killAndReturn kills the agent of a cluster of one under load; KillAgent fails
// unless mysqld goes with it.
func killAndReturn(t *testing.T, opts devcluster.Options) {
	f := newFixture(t, opts)
	ctx := scenarioContext(t)
	l := f.start(t, 4)
	l.awaitAcks(t, ctx, 100)
	if err := f.KillAgent(0); err != nil {
		t.Fatal(err)
	}
	f.heal(t, ctx)
	l.awaitAcks(t, ctx, 100)
	l.stop(t)
	f.check(t, ctx)
}

// TestDemo runs the command that a newcomer runs first.
func TestDemo(t *testing.T) {
	beside(t)
	base := mysqlBase(t)
	tmp, err := os.MkdirTemp("", "qe2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(tmp) })
	ctx, cancel := context.WithTimeout(t.Context(), scenarioTimeout)
	defer cancel()
	demo := exec.CommandContext(ctx, os.Getenv(binaryVariable), "demo", "--json", "--duration=6s", "--writers=4", "--mysql-base="+base)
	demo.Env = append(os.Environ(), "TMPDIR="+tmp)
	demo.Stderr = os.Stderr
	out, err := demo.Output()
	if err != nil {
		t.Fatalf("demo: %v; stdout %q", err, out)
	}
	var got struct {
		OK           bool
		Nodes        int
		Acknowledged int
		Lost         *int
		Diverged     *int
		WriteGapMs   int64 `json:"write_gap_ms"`
		RejoinMs     int64 `json:"rejoin_ms"`
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("stdout %q is not one JSON object: %v", out, err)
	}
	if !got.OK || got.Nodes != 3 || got.Acknowledged == 0 || got.WriteGapMs <= 0 || got.RejoinMs <= 0 ||
		got.Lost == nil || *got.Lost != 0 || got.Diverged == nil || *got.Diverged != 0 {
		t.Errorf("the demo printed %s", out)
	}
	mustBeEmpty(t, tmp)
}

// TestInterruptedDemo interrupts the demo while its cluster is up.
func TestInterruptedDemo(t *testing.T) {
	beside(t)
	base := mysqlBase(t)
	tmp, err := os.MkdirTemp("", "qe2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(tmp) })
	ctx, cancel := context.WithTimeout(t.Context(), scenarioTimeout)
	defer cancel()
	demo := exec.CommandContext(ctx, os.Getenv(binaryVariable), "demo", "--nodes=1", "--mysql-base="+base)
	demo.Env = append(os.Environ(), "TMPDIR="+tmp)
	if err := demo.Start(); err != nil {
		t.Fatal(err)
	}
	if err := devcluster.Poll(ctx, "the demo's mysqld runs", func(context.Context) (bool, string, error) {
		sockets, err := filepath.Glob(filepath.Join(tmp, "*", "a", "data", "mysql", "run", "mysqld.sock"))
		return len(sockets) > 0, "no socket", err
	}); err != nil {
		t.Error(err)
	}
	if err := demo.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- demo.Wait() }()
	select {
	case err := <-ended:
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("an interrupted demo ended with %v; want exit status 1", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the demo does not end")
	}
	mustBeEmpty(t, tmp)
}

// mustBeEmpty looks for files that were left in dir, and for processes that
// were left with a path in it on their command line.
func mustBeEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
	if pids := processesNaming(t, dir); len(pids) > 0 {
		t.Errorf("processes %v are left behind", pids)
	}
}

// processesNaming returns the processes with text in their command line.
func processesNaming(t *testing.T, text string) (pids []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(line, []byte(text)) {
			continue // gone meanwhile
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
