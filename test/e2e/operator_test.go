package e2e

import (
	"context"
	"fmt"
	"os/user"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/testkit/devcluster"
)

// TestOperator is about the operator's side: which requests are refused, which warnings come first, and what the
// audit log keeps.
func TestOperator(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3})
	f.scenario(t, "AuditEverywhere", f.auditEverywhere)
	f.scenario(t, "Warned", f.warned)
}

// awaitAudited waits until a node's audit log has a line of another node.
func (f *fixture) awaitAudited(t *testing.T, ctx context.Context, i, of int, what string) {
	t.Helper()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	if err := devcluster.PollCommand(ctx, fmt.Sprintf("the audit log of %s has %q", f.Name(i), what), func(ctx context.Context) (bool, string, error) {
		lines := f.audited(t, ctx, i)
		return slices.ContainsFunc(lines, func(l cluster.AuditEntry) bool {
			return l.What == what && l.Node == f.Name(of) && strings.HasPrefix(l.By, me.Username+"@")
		}), fmt.Sprintf("%+v", lines), nil
	}); err != nil {
		t.Error(err)
	}
}

// auditEverywhere: an action of one node is once in the audit log of every node, also of a node that was
// away.
func (f *fixture) auditEverywhere(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	fenced, away := (primary+1)%3, (primary+2)%3
	if err := f.Terminate(ctx, away); err != nil {
		t.Fatal(err)
	}
	f.must(t, ctx, primary, "fence", f.Name(fenced), "--reason", "its disk")
	if out := f.must(t, ctx, primary, "fence", f.Name(fenced), "--reason", "another"); !strings.Contains(out, "was fenced already: fenced by ") || !strings.Contains(out, ": its disk\n") {
		t.Errorf("fence again: %s", out)
	}
	f.must(t, ctx, primary, "unfence", f.Name(fenced))
	f.must(t, ctx, primary, "unfence", f.Name(fenced)) // it is not fenced any more
	f.heal(t, ctx)                                     // it starts what is down
	for i := range f.Len() {
		f.awaitAudited(t, ctx, i, fenced, "fence node "+f.Name(fenced)+": its disk")
		f.awaitAudited(t, ctx, i, fenced, "unfence node "+f.Name(fenced))
		n := 0
		for _, l := range f.audited(t, ctx, i) {
			if strings.Contains(l.What, "fence node") {
				n++
			}
		}
		if n != 2 {
			t.Errorf("the audit log of %s has %d lines of two actions", f.Name(i), n)
		}
	}
}

// warned: requests that would stop writes, and wrong requests, are refused.
func (f *fixture) warned(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	asked, away := (primary+1)%3, (primary+2)%3
	out := f.must(t, ctx, asked, "node", "remove", f.Name(away), "--dry-run")
	if !strings.HasPrefix(out, "it could be done now: remove node "+f.Name(away)+"\n") || !strings.Contains(out, "a majority is 2 of 2, 0 may fail (before: 2 of 3, 1 may fail)") {
		t.Errorf("remove, dry run: %s", out)
	}
	f.refused(t, ctx, asked, []int{2}, `there is no node "x"`, "switchover", "--to", "x")
	f.must(t, ctx, asked, "fence", f.Name(away), "--dry-run")
	for _, c := range []struct {
		want string
		args []string
	}{
		{"\nnote: meanwhile the cluster survives the failure of any 1 node: 3 of 3 voters run\n", []string{"restart-mysqld", f.Name(primary)}},
		{"\nnote: " + f.Name(primary) + " stays the leader: ", []string{"restart-mysqld", f.Name(primary), "--in-place"}},
		{"\nnote: after that the cluster survives 0 failures (before: 1): ", []string{"cluster", "set", "--durability", "all"}},
		{"\nnote: it begins without a vote, and copies the ", []string{"node", "add", "x", "--peer", "127.0.0.1:1", "--key", string(cluster.KeyOf([]byte("x")))}},
		{"\nnote: once x has caught up it votes: a majority is 3 of 4, 1 may fail (before: 2 of 3, 1 may fail)\n", []string{"node", "add", "x", "--peer", "127.0.0.1:1", "--key", string(cluster.KeyOf([]byte("x")))}},
	} {
		if out := f.must(t, ctx, asked, append(c.args, "--dry-run")...); !strings.Contains(out, c.want) {
			t.Errorf("%v, dry run: %s", c.args, out)
		}
	}
	if st := f.status(t, ctx, away); st.Role != status.RoleReplica {
		t.Errorf("after dry runs %s is %s", f.Name(away), st.Role)
	}
	if err := f.Terminate(ctx, away); err != nil {
		t.Fatal(err)
	}
	fewer := "a majority is 2 of 2, 0 may fail (before: 2 of 3, 0 may fail)\n"
	if err := devcluster.Poll(ctx, "who is away does not count", func(ctx context.Context) (bool, string, error) {
		out, err := f.quorate(t, ctx, asked, "node", "remove", f.Name(away), "--dry-run")
		return strings.Contains(out, fewer), out, err
	}); err != nil {
		t.Error(err)
	}
	stops := "OKs would wait for " + f.Name(away) + ", which is not heard of"
	f.refusedSoon(t, ctx, asked, stops, "cluster", "set", "--durability", "all")
	f.refusedSoon(t, ctx, asked, stops, "node", "set", f.Name(away), "--require-ack")
	if out, err := f.quorate(t, ctx, asked, "cluster", "set", "--durability", "all", "--dry-run"); err == nil || !strings.Contains(out, "it would be refused without --force: durability all\nwrites stop: "+stops) {
		t.Errorf("dry run: %v: %s", err, out)
	}
	load := f.start(t, 2)
	load.awaitAcks(t, ctx, 20)
	f.must(t, ctx, asked, "cluster", "set", "--durability", "all", "--force")
	f.must(t, ctx, asked, "cluster", "set", "--durability", "majority")
	load.awaitAcks(t, ctx, 20)
	load.stop(t)
	f.heal(t, ctx)
	f.check(t, ctx)
}

// refusedSoon is like refused, with exit code 1. It tries again, because the agents learn the reason only after a moment.
func (f *fixture) refusedSoon(t *testing.T, ctx context.Context, i int, why string, args ...string) {
	t.Helper()
	if err := devcluster.PollCommand(ctx, strings.Join(args, " ")+" would be refused", func(ctx context.Context) (bool, string, error) {
		out, err := f.quorate(t, ctx, i, append(args, "--dry-run")...)
		return err != nil && strings.Contains(out, why), out, nil
	}); err != nil {
		t.Fatal(err)
	}
	f.refused(t, ctx, i, []int{1}, why, args...)
}
