package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// TestControl changes what the cluster has agreed on, through any node, while
// writers write; it is the same everywhere, and still there after restarts.
func TestControl(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3})
	f.scenario(t, "Changes", f.changes)
	f.scenario(t, "Restart", f.stateAfterRestart)
	f.scenario(t, "Kill", f.stateAfterKill)
	f.scenario(t, "NoMajority", f.changeWithoutMajority)
}

// must runs the program, which must succeed.
func (f *fixture) must(t *testing.T, ctx context.Context, i int, args ...string) string {
	t.Helper()
	out, err := f.quorate(t, ctx, i, args...)
	if err != nil {
		t.Fatalf("quorate %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

// killed runs the program, and kills it at a random moment. within is about how long the program takes. Its request
// may be done nevertheless.
func (f *fixture) killed(t *testing.T, ctx context.Context, i int, within time.Duration, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(ctx, os.Getenv(binaryVariable), append(args, "--config", f.ConfigPath(i))...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	after := rand.N(within)
	time.Sleep(after)
	_ = cmd.Process.Kill() // else it has ended
	if err := cmd.Wait(); err != nil {
		t.Logf("quorate %s was killed after %v", strings.Join(args, " "), after.Round(time.Millisecond))
	}
}

// refused runs the program, which must fail with one of the codes, and with one line
// that says why.
func (f *fixture) refused(t *testing.T, ctx context.Context, i int, codes []int, why string, args ...string) {
	t.Helper()
	out, err := f.quorate(t, ctx, i, args...)
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || !strings.Contains(out, why) || strings.Count(out, "\n") != 1 {
		t.Errorf("quorate %s: %v, %q, want %q in one line", strings.Join(args, " "), err, out, why)
		return
	}
	for _, code := range codes {
		if exit.ExitCode() == code {
			return
		}
	}
	t.Errorf("quorate %s: exit code %d, want one of %v: %s", strings.Join(args, " "), exit.ExitCode(), codes, out)
}

// awaitState waits until every node shows a version of the state, and returns the state
// that they show.
func (f *fixture) awaitState(t *testing.T, ctx context.Context, version uint64) status.Cluster {
	t.Helper()
	var st status.Cluster
	for i := range f.Len() {
		err := devcluster.Poll(ctx, fmt.Sprintf("node %s has version %d of the state", f.Name(i), version), func(ctx context.Context) (bool, string, error) {
			var err error
			if st, err = f.Status(ctx, i); err != nil {
				return false, err.Error(), nil
			}
			return st.StateVersion >= version, fmt.Sprintf("it has %d", st.StateVersion), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if st.StateVersion != version || st.Maintenance == nil || st.Maintenance.Reason != "new disks" || st.Nodes[1].Weight != 7 || st.Nodes[2].Site != "east" {
			t.Errorf("node %s shows %+v", f.Name(i), st)
		}
	}
	return st
}

func (f *fixture) changes(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	a, b := (primary+1)%3, (primary+2)%3
	load := f.start(t, 4)
	load.awaitAcks(t, ctx, 50)
	f.must(t, ctx, a, "maintenance", "on", "--reason", "new disks")
	f.must(t, ctx, primary, "node", "set", f.Name(1), "--weight", "7")
	f.must(t, ctx, b, "node", "set", f.Name(2), "--site", "east")
	// The node that was asked shows the change at once.
	if out := f.must(t, ctx, b, "node", "list"); !strings.Contains(out, "east") {
		t.Errorf("node list: %s", out)
	}
	f.awaitState(t, ctx, 3)
	if out := f.must(t, ctx, a, "maintenance", "on", "--reason", "new disks"); !strings.Contains(out, "it was so already") {
		t.Errorf("maintenance again: %s", out)
	}
	f.refused(t, ctx, a, []int{2}, `there is no node "x": the nodes are `, "node", "set", "x", "--weight", "1")
	f.refused(t, ctx, a, []int{2}, "weight must be 0 ", "node", "set", f.Name(0), "--weight", "10")
	f.awaitState(t, ctx, 3)
	if out := f.must(t, ctx, primary, "status"); !strings.Contains(out, "MAINTENANCE since ") || !strings.Contains(out, ": new disks\n") {
		t.Errorf("status: %s", out)
	}
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	if now := f.heal(t, ctx); now != primary {
		t.Errorf("the primary was %s, is %s", f.Name(primary), f.Name(now))
	}
	f.check(t, ctx)
}

// audited returns the lines of a node's audit log.
func (f *fixture) audited(t *testing.T, ctx context.Context, i int) (lines []cluster.AuditEntry) {
	t.Helper()
	for text := range strings.Lines(f.must(t, ctx, i, "audit", "--json")) {
		var l cluster.AuditEntry
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l)
	}
	return lines
}

// changesOf returns the lines about changes that were committed, without refused
// requests.
func (f *fixture) changesOf(t *testing.T, ctx context.Context, i int) []cluster.AuditEntry {
	t.Helper()
	return slices.DeleteFunc(f.audited(t, ctx, i), func(l cluster.AuditEntry) bool { return l.Index == 0 })
}

func (f *fixture) stateAfterRestart(t *testing.T, ctx context.Context) {
	for i := range f.Len() {
		if err := f.Terminate(ctx, i); err != nil {
			t.Fatal(err)
		}
	}
	f.heal(t, ctx)
	f.awaitState(t, ctx, 3)
	for i := range f.Len() {
		lines := f.changesOf(t, ctx, i)
		if len(lines) != 3 || lines[0].What != "maintenance on: new disks" || lines[0].Result != "done" ||
			!strings.Contains(lines[0].By, "@") || lines[0].At.IsZero() || lines[2].Version != 3 {
			t.Errorf("the audit log of %s: %+v", f.Name(i), lines)
		}
	}
}

// stateAfterKill: with a change just made, everything dies at once.
func (f *fixture) stateAfterKill(t *testing.T, ctx context.Context) {
	f.heal(t, ctx)
	f.must(t, ctx, 0, "node", "set", f.Name(0), "--weight", "6")
	for i := range f.Len() {
		if err := f.KillBoth(i); err != nil {
			t.Fatal(err)
		}
	}
	f.heal(t, ctx)
	if st := f.awaitState(t, ctx, 4); st.Nodes[0].Weight != 6 {
		t.Errorf("weight %d", st.Nodes[0].Weight)
	}
	for i := range f.Len() {
		if lines := f.changesOf(t, ctx, i); len(lines) != 4 || lines[3].Version != 4 {
			t.Errorf("the audit log of %s: %+v", f.Name(i), lines)
		}
	}
	f.check(t, ctx)
}

// changeWithoutMajority: without a majority a change is refused in time, or its result is said to be not known. With
// a majority changes work again.
func (f *fixture) changeWithoutMajority(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	for _, i := range f.others(primary) {
		if err := f.KillBoth(i); err != nil {
			t.Fatal(err)
		}
	}
	f.refused(t, ctx, primary, []int{3, 4}, "quorate: no ", "node", "set", f.Name(1), "--weight", "4")
	f.refused(t, ctx, primary, []int{3}, "no leader took the request within 5s", "switchover", "--dry-run") // it may take longer where there is one
	f.heal(t, ctx)
	f.must(t, ctx, 0, "node", "set", f.Name(1), "--weight", "3")
	f.must(t, ctx, 1, "maintenance", "off")
	if out := f.must(t, ctx, 1, "status"); strings.Contains(out, "MAINTENANCE") {
		t.Errorf("status: %s", out)
	}
	f.check(t, ctx)
}
