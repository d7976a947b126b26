package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/devcluster"
)

// TestDisk breaks the disk under the log.
func TestDisk(t *testing.T) {
	f := newFixture(t, devcluster.Options{Nodes: 3})
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

// fill takes all space in a directory's file system, and returns what gives it
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

// diskFull: the disk of the primary's log gets full. It acknowledges nothing
// more, another node takes over, writers go on; with space again it is a node
// like any other, without a restart.
func (f *fixture) diskFull(t *testing.T, ctx context.Context) {
	f.smallDisks(t, ctx)
	primary := f.heal(t, ctx)
	load := f.start(t, 4)
	load.awaitAcks(t, ctx, 50)
	agent := f.AgentPID(primary)
	free := fill(t, f.logDir(primary))
	// What was prepared ahead is still there: rows that use it up.
	f.useUp(t, ctx, primary)
	if err := f.WaitNode(ctx, primary, "its log is full", func(n cluster.NodeStatus) bool { return n.LogState == cluster.LogFull }); err != nil {
		t.Fatal(err)
	}
	next, err := f.WaitPrimary(ctx, primary)
	if err != nil {
		t.Fatal(err)
	}
	load.awaitAcks(t, ctx, 100)
	if s := f.status(t, ctx, primary); s.LogState != cluster.LogFull || s.LogDetail == "" || s.Role == cluster.RolePrimary {
		t.Errorf("the node with the full disk says %+v", s)
	}
	t.Logf("%s took over from %s", f.Name(next), f.Name(primary))
	free()
	if err := f.WaitNode(ctx, primary, "its log has space", func(n cluster.NodeStatus) bool { return n.LogState == cluster.LogOK }); err != nil {
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
