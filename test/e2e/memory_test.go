package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// agentMemory is what the agent of littleMemory may have beyond what it has at the
// beginning: less than the log's cache alone would take.
const agentMemory = 24 << 20

// littleMemory gives the primary's agent little memory and writes more than
// the agent may keep. If the kernel kills the agent, that is like any killed agent. If the memory is
// enough, the agent is slower. In both cases nothing is lost.
func (f *fixture) littleMemory(t *testing.T, ctx context.Context) {
	group := memoryGroup(t)
	primary := f.heal(t, ctx)
	l := f.start(t, 4)
	l.awaitAcks(t, ctx, 100)
	agent := f.AgentPID(primary)
	// The agent alone: mysqld stays where it is.
	moveTo(t, group, agent)
	t.Cleanup(func() {
		if f.AgentPID(primary) == agent {
			moveTo(t, filepath.Dir(group), agent)
		}
	})
	f.fatRows(t, ctx, primary)
	l.awaitAcks(t, ctx, 100)
	f.heal(t, ctx)
	if f.AgentPID(primary) == agent {
		t.Log("the agent lives")
	} else {
		t.Log("the kernel has ended the agent")
	}
	l.awaitAcks(t, ctx, 100)
	l.stop(t)
	f.check(t, ctx)
}

// moveTo puts a process into a control group.
func moveTo(t *testing.T, group string, pid int) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(group, "cgroup.procs"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprint(file, pid)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}

// fatRows writes 200 MiB in rows of 1 MiB through a node's router, until it is
// done or the node is lost.
func (f *fixture) fatRows(t *testing.T, ctx context.Context, i int) {
	t.Helper()
	db := openDSN(t, f.DSN(i), nil)
	const rows = 200
	if _, err := db.ExecContext(ctx, "CREATE TABLE quorate_demo.fat (id INT PRIMARY KEY AUTO_INCREMENT, b LONGBLOB)"); err != nil {
		t.Fatal(err)
	}
	for n := range rows {
		if _, err := db.ExecContext(ctx, "INSERT INTO quorate_demo.fat (b) VALUES (REPEAT('x', 1 << 20))"); err != nil {
			t.Logf("after %d rows of 1 MiB: %v", n, err)
			return
		}
	}
	t.Logf("%d rows of 1 MiB were written", rows)
}

// memoryGroup makes a control group with a limit of memory, of version 2 or 1.
func memoryGroup(t *testing.T) string {
	t.Helper()
	for root, limit := range map[string]string{"/sys/fs/cgroup": "memory.max", "/sys/fs/cgroup/memory": "memory.limit_in_bytes"} {
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
			continue // not a hierarchy of control groups
		}
		dir, err := os.MkdirTemp(root, "quorate-e2e-")
		if err != nil {
			continue
		}
		t.Cleanup(func() { removeGroup(t, dir) })
		file, err := os.OpenFile(filepath.Join(dir, limit), os.O_WRONLY, 0)
		if err != nil {
			continue // version 2 without the controller
		}
		_, err = fmt.Fprint(file, agentMemory)
		if err := errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	t.Skip("no control group with a limit of memory can be made here")
	return ""
}

// removeGroup removes a control group once its processes are gone.
func removeGroup(t *testing.T, dir string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	ctx, cancel := context.WithTimeout(ctx, scenarioTimeout)
	defer cancel()
	if err := devcluster.Poll(ctx, "the control group is empty", func(context.Context) (bool, string, error) {
		err := os.Remove(dir)
		if err == nil || errors.Is(err, os.ErrNotExist) {
			return true, "", nil
		}
		procs, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs")) // for the reason alone
		return false, fmt.Sprintf("%v: %s", err, strings.Fields(string(procs))), nil
	}); err != nil {
		t.Error(err)
	}
}
