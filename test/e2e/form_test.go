package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// TestForm: how a cluster begins, and that an existing cluster does not begin again.
func TestForm(t *testing.T) {
	beside(t)
	f := newCluster(t, devcluster.Options{Nodes: 3, MySQLBase: mysqlBase(t)})
	f.scenario(t, "Bootstrap", f.formWithout)
	f.scenario(t, "Unmounted", f.unmounted)
}

// TestFormCrash: a node is killed while the cluster begins.
func TestFormCrash(t *testing.T) {
	beside(t)
	f := newCluster(t, devcluster.Options{Nodes: 5, Loggers: 2, MySQLBase: mysqlBase(t)})
	f.scenario(t, "Crash", f.formCrash)
}

// awaitForming waits until a node says for which node it waits, and has written nothing but its
// lock.
func (f *fixture) awaitForming(t *testing.T, ctx context.Context, i int, silent string) {
	t.Helper()
	if err := f.WaitNode(ctx, i, "waiting for "+silent, func(n status.Node) bool {
		if n.Role == status.RolePrimary || n.Leader != 0 {
			t.Errorf("node %s is %s, its leader %d", f.Name(i), n.Role, n.Leader)
		}
		return n.Role == status.RoleForming && strings.Contains(n.Reason, "node "+silent+" has not answered yet")
	}); err != nil {
		t.Fatal(err)
	}
	if found, err := filepath.Glob(filepath.Join(f.DataDir(i), "*")); err != nil || len(found) != 1 || filepath.Base(found[0]) != "lock" {
		t.Errorf("node %s has written something else than its lock: %q, %v", f.Name(i), found, err)
	}
}

// formWithout: two of three nodes do not begin without the third, unless they are told to.
func (f *fixture) formWithout(t *testing.T, ctx context.Context) {
	for i := range 2 {
		if err := f.Start(ctx, i); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		f.awaitForming(t, ctx, i, f.Name(2)) // first both: a node that ends would be silent, too
	}
	for i := range 2 {
		if err := f.Terminate(ctx, i); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(f.DataDir(i)); !os.IsNotExist(err) {
			t.Errorf("node %s has left something: %v", f.Name(i), err)
		}
	}
	for i := range 2 {
		if err := f.Start(ctx, i, "--bootstrap"); err != nil {
			t.Fatal(err)
		}
	}
	primary, err := f.WaitPrimary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Start(ctx, 2); err != nil { // it was never a member before: no command is needed
		t.Fatal(err)
	}
	f.createTable(t, ctx)
	load := f.start(t, 2)
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	f.check(t, ctx)
	out, err := f.quorate(t, ctx, primary, "run", "--bootstrap")
	if exitCode(err) != 2 || !strings.Contains(out, "start the agent without --bootstrap") {
		t.Errorf("with data: %v, %s", err, out)
	}
}

// unmounted: all hosts were down, and on two the disk is not mounted, so that the
// directory is empty. The third is slower, or it is there and knows them.
func (f *fixture) unmounted(t *testing.T, ctx context.Context) {
	f.heal(t, ctx)
	load := f.start(t, 2)
	load.awaitAcks(t, ctx, 100)
	load.stop(t)
	atOnce(t, []int{0, 1, 2}, f.KillBoth)
	disk := func(i int) string { return f.DataDir(i) + ".disk" }
	for i := range 2 {
		if err := os.Rename(f.DataDir(i), disk(i)); err != nil {
			t.Fatal(err)
		}
		if err := f.Start(ctx, i); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		f.awaitForming(t, ctx, i, f.Name(2))
	}
	if err := f.Start(ctx, 2); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if err := f.WaitNode(ctx, i, "known", func(n status.Node) bool {
			return n.Role == status.RoleJoining && strings.Contains(n.Reason, "but this cluster knows its former directory")
		}); err != nil {
			t.Fatal(err)
		}
	}
	if st := f.status(t, ctx, 2); st.Role == status.RolePrimary || st.Leader != 0 {
		t.Errorf("the third is %s, its leader %d", st.Role, st.Leader)
	}
	for i := range 2 { // mounted: the agents notice
		if err := errors.Join(os.Rename(f.DataDir(i), disk(i)+".point"), os.Rename(disk(i), f.DataDir(i))); err != nil {
			t.Fatal(err)
		}
	}
	f.heal(t, ctx)
	f.check(t, ctx)
}

// formCrash: one of five nodes is killed as soon as another one has begun, and comes back with
// data or without.
func (f *fixture) formCrash(t *testing.T, ctx context.Context) {
	const victim = 1
	if err := f.StartAll(ctx); err != nil {
		t.Fatal(err)
	}
	if err := devcluster.Poll(ctx, "one has begun", func(context.Context) (bool, string, error) {
		begun, err := filepath.Glob(filepath.Join(f.Dir(), "*", "data", "identity.json"))
		return len(begun) > 0, "none has", err
	}); err != nil {
		t.Fatal(err)
	}
	if err := f.KillAgent(victim); err != nil {
		t.Fatal(err)
	}
	if err := f.Start(ctx, victim); err != nil {
		t.Fatal(err)
	}
	f.createTable(t, ctx)
	load := f.start(t, 2)
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	f.check(t, ctx)
}
