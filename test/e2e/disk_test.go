package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// TestDisk breaks the disk under the log.
func TestDisk(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3})
	f.scenario(t, "Purge", f.purge)
	f.scenario(t, "Damage", f.damage)
	f.scenario(t, "Full", f.diskFull)
}

// logDir is where node i has its log.
func (f *fixture) logDir(i int) string { return filepath.Join(f.DataDir(i), "log") }

// smallDisks gives each node's log a file system of its own, which a test can
// fill. It needs the right to mount.
func (f *fixture) smallDisks(t *testing.T, ctx context.Context) {
	t.Helper()
	for i := range f.Len() {
		if err := f.Terminate(ctx, i); err != nil {
			t.Fatal(err)
		}
		dir, kept := f.logDir(i), f.logDir(i)+".kept"
		if err := errors.Join(os.Rename(dir, kept), os.Mkdir(dir, 0o755)); err != nil {
			t.Fatal(err)
		}
		err := unix.Mount("none", dir, "tmpfs", 0, "size=96m")
		if errors.Is(err, syscall.EPERM) {
			t.Skip("this account may not mount file systems")
		}
		if err != nil {
			t.Fatalf("mount a small file system: %v", err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		if out, err := exec.CommandContext(ctx, "cp", "-a", kept+"/.", dir).CombinedOutput(); err != nil {
			t.Fatalf("copy the log: %v: %s", err, out)
		}
		if err := os.RemoveAll(kept); err != nil {
			t.Fatal(err)
		}
	}
}

// fill takes all space in a directory's file system, and returns a function that gives it
// back.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	name := filepath.Join(dir, "filler")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	for chunk := make([]byte, 1<<20); len(chunk) > 0; {
		if _, err := file.Write(chunk); errors.Is(err, syscall.ENOSPC) {
			chunk = chunk[:len(chunk)/2]
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(name); err != nil {
			t.Error(err)
		}
	}
}

// diskFull: the disk of the primary's log gets full. The node acknowledges nothing
// more, another node takes over, and writers go on. When there is space again, it is a normal
// node, without a restart.
func (f *fixture) diskFull(t *testing.T, ctx context.Context) {
	f.smallDisks(t, ctx)
	primary := f.heal(t, ctx)
	load := f.start(t, 4)
	load.awaitAcks(t, ctx, 50)
	agent := f.AgentPID(primary)
	free := fill(t, f.logDir(primary))
	// Some space was allocated ahead: rows use it up.
	f.useUp(t, ctx, primary)
	if err := f.WaitNode(ctx, primary, "its log is full", func(n status.Node) bool { return n.LogState == status.LogFull }); err != nil {
		t.Fatal(err)
	}
	next, err := f.WaitPrimary(ctx, primary)
	if err != nil {
		t.Fatal(err)
	}
	load.awaitAcks(t, ctx, 100)
	if s := f.status(t, ctx, primary); s.LogState != status.LogFull || s.LogDetail == "" || s.Role == status.RolePrimary {
		t.Errorf("the node with the full disk says %+v", s)
	}
	t.Logf("%s took over from %s", f.Name(next), f.Name(primary))
	if f.AgentPID(primary) != agent {
		t.Error("the agent was restarted")
	}
	// An agent starts on a full disk, too.
	if err := errors.Join(f.KillBoth(primary), f.Start(ctx, primary)); err != nil {
		t.Fatal(err)
	}
	agent = f.AgentPID(primary)
	if err := f.WaitNode(ctx, primary, "its log is full again", func(n status.Node) bool { return n.LogState == status.LogFull }); err != nil {
		t.Fatal(err)
	}
	free()
	if err := f.WaitNode(ctx, primary, "its log has space", func(n status.Node) bool { return n.LogState == status.LogOK }); err != nil {
		t.Fatal(err)
	}
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	f.heal(t, ctx)
	if f.AgentPID(primary) != agent {
		t.Error("the agent was restarted")
	}
	f.check(t, ctx)
}

// useUp writes rows of 1 MiB through a node's own mysqld until that fails: the
// session that waits for its commit ends with mysqld.
func (f *fixture) useUp(t *testing.T, ctx context.Context, i int) {
	t.Helper()
	db := f.local(t, i)
	for _, q := range []string{"CREATE DATABASE quorate_fill",
		"CREATE TABLE quorate_fill.t (id INT PRIMARY KEY AUTO_INCREMENT, b LONGBLOB)"} {
		if _, err := db.ExecContext(ctx, q); err != nil {
			return
		}
	}
	for range 100 {
		if _, err := db.ExecContext(ctx, "INSERT INTO quorate_fill.t (b) VALUES (REPEAT('x', 1 << 20))"); err != nil {
			return
		}
	}
	t.Fatal("100 MiB were written to a full disk of 96 MiB")
}

// quorate runs the program with node i's configuration and returns what it
// printed.
func (f *fixture) quorate(t *testing.T, ctx context.Context, i int, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(ctx, os.Getenv(binaryVariable), append(args, "--config", f.ConfigPath(i))...).CombinedOutput()
	return string(out), err
}

// segments makes the log of every node longer by a few segments.
func (f *fixture) segments(t *testing.T, ctx context.Context) {
	t.Helper()
	primary := f.heal(t, ctx)
	load := f.start(t, 4)
	for range 4 {
		load.awaitAcks(t, ctx, 50)
		if _, err := f.admin(t, primary).ExecContext(ctx, "FLUSH LOCAL BINARY LOGS"); err != nil {
			t.Fatal(err)
		}
	}
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
}

// awaitDurable waits until each of the nodes knows that the durable marks of all of them have
// reached index.
func (f *fixture) awaitDurable(t *testing.T, ctx context.Context, index uint64, nodes ...int) {
	t.Helper()
	if err := devcluster.Poll(ctx, fmt.Sprintf("durable marks are at %d", index), func(ctx context.Context) (bool, string, error) {
		for _, i := range nodes {
			status, err := f.Status(ctx, i)
			if err != nil {
				return false, err.Error(), nil
			}
			for _, k := range nodes {
				if n := status.Nodes[k]; n.DurableMark < index {
					return false, fmt.Sprintf("%s says that %s is at %d", f.Name(i), n.Name, n.DurableMark), nil
				}
			}
		}
		return true, "", nil
	}); err != nil {
		t.Fatal(err)
	}
}

// purge: entries that are in every InnoDB are purged from every log. While a node is down,
// the logs of the others are not purged, however long it takes. After an outage of
// all nodes nothing is missing.
func (f *fixture) purge(t *testing.T, ctx context.Context) {
	f.segments(t, ctx)
	primary := f.heal(t, ctx)
	f.awaitDurable(t, ctx, f.status(t, ctx, primary).LogCommit/2, 0, 1, 2)
	for i := range f.Len() {
		plan, err := f.quorate(t, ctx, i, "log", "purge", "--dry-run", "--keep", "0")
		if err != nil || f.status(t, ctx, i).LogFirst != 1 {
			t.Fatalf("a dry run on %s: %v\n%s", f.Name(i), err, plan)
		}
		if out, err := f.quorate(t, ctx, i, "log", "purge", "--yes", "--keep", "0"); err != nil {
			t.Fatalf("purge on %s: %v\n%s", f.Name(i), err, out)
		}
		if s := f.status(t, ctx, i); s.LogFirst < 2 || s.LogFirst > s.DurableMark+1 {
			t.Fatalf("after a purge %s has a log from %d, its durable mark is %d; the plan was\n%s", f.Name(i), s.LogFirst, s.DurableMark, plan)
		}
	}
	missing := f.others(primary)[0]
	mark := f.status(t, ctx, missing).DurableMark
	if err := f.KillAgent(missing); err != nil {
		t.Fatal(err)
	}
	load := f.start(t, 4, primary)
	load.awaitAcks(t, ctx, 100)
	load.stop(t)
	others := f.others(missing)
	f.awaitDurable(t, ctx, f.status(t, ctx, primary).LogCommit-100, others...)
	out, err := f.quorate(t, ctx, primary, "log", "purge", "--yes", "--keep", "0")
	if s := f.status(t, ctx, primary); err != nil || s.LogFirst > mark+1 {
		t.Fatalf("%s purged up to %d what %s needs from %d on: %v\n%s", f.Name(primary), s.LogFirst, f.Name(missing), mark, err, out)
	}
	atOnce(t, others, f.KillAgent)
	f.heal(t, ctx)
	f.check(t, ctx)
	f.verifyLogs(t, ctx)
}

// verifyLogs verifies every node's log.
func (f *fixture) verifyLogs(t *testing.T, ctx context.Context) {
	t.Helper()
	for i := range f.Len() {
		if out, err := f.quorate(t, ctx, i, "log", "verify"); err != nil {
			t.Errorf("the log of %s: %v\n%s", f.Name(i), err, out)
		}
	}
}

// damage: a node finds damage in the durable part of its log. It says
// where, takes no part in elections, and heals its log from the leader as soon as
// there is one.
func (f *fixture) damage(t *testing.T, ctx context.Context) {
	f.segments(t, ctx)
	primary := f.heal(t, ctx)
	victim := f.others(primary)[0]
	third := f.others(primary)[1]
	nodes := []int{primary, victim, third}
	has := max(f.status(t, ctx, primary).LogFirst, f.status(t, ctx, third).LogFirst)
	atOnce(t, nodes, f.KillAgent)
	name := f.spoil(t, victim, has)
	if err := os.Remove(f.savedIndex(victim, name)); err != nil { // so the start reads that segment
		t.Fatal(err)
	}
	began := time.Now()
	for _, i := range []int{victim, third} {
		if err := f.Start(ctx, i); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.WaitNode(ctx, victim, "its log is to be healed", func(n status.Node) bool {
		return n.LogState == status.LogRepairing && strings.Contains(n.LogDetail, name) && n.LogFirst > 0 && n.LogLast >= n.LogFirst
	}); err != nil {
		t.Fatal(err)
	}
	if err := f.WaitNode(ctx, third, "it answers", func(status.Node) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if s := f.status(t, ctx, third); s.Leader != 0 {
		t.Errorf("%s has a leader: the damaged node has voted", f.Name(third))
	}
	if out, err := f.quorate(t, ctx, victim, "log", "verify"); err == nil {
		t.Errorf("log verify finds nothing wrong:\n%s", out)
	}
	f.heal(t, ctx)
	if row := f.findRow(t, f.awaitSameHistory(t, ctx), "log healed"); row.Node != f.Name(victim) || !strings.Contains(row.Why, name) {
		t.Errorf("the history says %+v", row)
	}
	if at := f.metric(t, ctx, victim, "quorate_log_healed_timestamp_seconds"); at < float64(began.Unix()) {
		t.Errorf("it was healed at %.0f, after %d", at, began.Unix())
	}
	f.damageUnseen(t, ctx, victim, has)
	load := f.start(t, 4)
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	f.check(t, ctx)
	f.verifyLogs(t, ctx)
}

// damageUnseen: a start takes a damaged segment from its saved index. The node finds the damage while it runs, and heals
// its log.
func (f *fixture) damageUnseen(t *testing.T, ctx context.Context, victim int, has uint64) {
	t.Helper()
	if err := f.KillAgent(victim); err != nil {
		t.Fatal(err)
	}
	name := f.spoil(t, victim, has)
	if _, err := os.Stat(f.savedIndex(victim, name)); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := f.Start(ctx, victim); err != nil {
		t.Fatal(err)
	}
	f.awaitLog(t, ctx, victim, "turned out to be damaged: starting again")
	f.heal(t, ctx)
	if at := f.metric(t, ctx, victim, "quorate_log_healed_timestamp_seconds"); at < float64(began.Unix()) {
		t.Errorf("it was healed at %.0f, after %d", at, began.Unix())
	}
}

// savedIndex returns the path of a segment's saved index.
func (f *fixture) savedIndex(i int, segment string) string {
	return filepath.Join(f.logDir(i), strings.Replace(segment, "quorate.", "index.", 1))
}

// spoil flips a bit in the middle of a segment of a node that is down: the oldest segment that
// begins at index from or later. The others may have purged earlier entries, and then nobody could heal them.
func (f *fixture) spoil(t *testing.T, i int, from uint64) (name string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(f.logDir(i), "quorate.*"))
	files = slices.DeleteFunc(files, func(path string) bool {
		first, err := strconv.ParseUint(strings.TrimPrefix(filepath.Base(path), "quorate."), 10, 64)
		return err != nil || first < from
	})
	if err != nil || len(files) < 2 {
		t.Fatalf("%d segments from entry %d on, %v: too few to spoil one", len(files), from, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 0x10
	if err := os.WriteFile(files[0], b, 0o644); err != nil {
		t.Fatal(err)
	}
	return filepath.Base(files[0])
}
