package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/testkit/devcluster"
	"github.com/quorate/quorate/internal/testkit/ledger"
)

// TestOperate does the work of operators on a cluster under load: nothing that was
// acknowledged is lost, and no mysqld dies from it.
func TestOperate(t *testing.T) {
	beside(t)
	f := newFixture(t, devcluster.Options{Nodes: 3, ElectionTimeout: calm})
	f.think = busy
	f.scenario(t, "Switchover", f.switchovers)
	f.scenario(t, "CalledOff", f.calledOff)
	f.scenario(t, "Restart", f.restarts)
	f.scenario(t, "Fence", f.fences)
	f.scenario(t, "Maintenance", f.maintained)
	f.scenario(t, "Secrets", f.secretsRotated)
}

// pid returns the process of node i's mysqld.
func (f *fixture) pid(t *testing.T, ctx context.Context, i int) int {
	t.Helper()
	return f.status(t, ctx, i).MysqldPID
}

// hasAudited fails unless a node's audit log has a line like this.
func (f *fixture) hasAudited(t *testing.T, ctx context.Context, i int, what, result string) {
	t.Helper()
	lines := f.audited(t, ctx, i)
	if !slices.ContainsFunc(lines, func(l cluster.AuditEntry) bool {
		return strings.Contains(l.What, what) && strings.Contains(l.Result, result) && strings.Contains(l.By, "@") && !l.At.IsZero()
	}) {
		t.Errorf("the audit log of %s has no %q, %q: %+v", f.Name(i), what, result, lines)
	}
}

// switchovers moves the primary around twice: each mysqld serves two epochs.
func (f *fixture) switchovers(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	load := f.start(t, 4)
	load.awaitAcks(t, ctx, 50)
	pids := [3]int{f.pid(t, ctx, 0), f.pid(t, ctx, 1), f.pid(t, ctx, 2)}
	if out := f.must(t, ctx, (primary+1)%3, "switchover", "--dry-run", "--max-pause", "10s"); !strings.HasPrefix(out, "the primary would move from "+f.Name(primary)) {
		t.Errorf("dry run: %s", out)
	}
	for n := range 6 {
		to := (primary + 1) % 3
		var s cluster.Switchover
		out := f.must(t, ctx, (primary+n)%3, "switchover", "--to", f.Name(to), "--json", "--max-pause", "10s")
		if err := json.Unmarshal([]byte(out), &s); err != nil || s.From != f.Name(primary) || s.To != f.Name(to) || s.PauseMs <= 0 {
			t.Errorf("switchover: %v: %s", err, out)
		}
		t.Logf("%s to %s: %.0f ms", s.From, s.To, s.PauseMs)
		f.hasAudited(t, ctx, primary, "switchover from "+s.From+" to "+s.To, "done")
		load.awaitAcks(t, ctx, 50)
		primary = to
	}
	load.stop(t)
	if now := f.heal(t, ctx); now != primary {
		t.Errorf("the primary is %s, not %s", f.Name(now), f.Name(primary))
	}
	for i, pid := range pids {
		if now := f.pid(t, ctx, i); now != pid {
			t.Errorf("mysqld of %s was %d, is %d", f.Name(i), pid, now)
		}
	}
	f.refused(t, ctx, primary, []int{2}, "there is no node \"x\"", "switchover", "--to", "x")
	f.check(t, ctx)
}

// calledOff: a statement takes longer than writes may be closed. The switchover is called off, writes go on
// on the same primary, and the statement succeeds.
func (f *fixture) calledOff(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	term, pid := f.status(t, ctx, primary).Term, f.pid(t, ctx, primary)
	load := f.start(t, 2)
	load.awaitAcks(t, ctx, 20)
	db := openDSN(t, f.DSN(primary), nil)
	if _, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS "+ledger.Database+".slow (id INT PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	slow := make(chan error, 1)
	go func() {
		_, err := db.ExecContext(ctx, "INSERT INTO "+ledger.Database+".slow SELECT 1 + SLEEP(10)")
		slow <- err
	}()
	admin := f.admin(t, primary)
	if err := devcluster.Poll(ctx, "the statement is under way", func(ctx context.Context) (bool, string, error) {
		var n int
		err := admin.QueryRowContext(ctx, "SELECT COUNT(*) FROM performance_schema.processlist WHERE STATE = 'User sleep'").Scan(&n)
		return n > 0, "it is not", err
	}); err != nil {
		t.Fatal(err)
	}
	f.refused(t, ctx, primary, []int{1}, " and are open again on node "+f.Name(primary)+": node "+f.Name(primary)+": closing writes waited for 1 statement that writes: session ",
		"switchover", "--max-pause", "4s")
	load.awaitAcks(t, ctx, 20)
	out, err := f.quorate(t, ctx, primary, "switchover", "--dry-run", "--max-pause", "2s")
	if err == nil || !strings.Contains(out, "a statement that writes is under way") {
		t.Errorf("dry run: %v: %s", err, out)
	}
	if err := <-slow; err != nil {
		t.Errorf("the statement: %v", err)
	}
	load.stop(t)
	if now := f.heal(t, ctx); now != primary || f.status(t, ctx, primary).Term != term || f.pid(t, ctx, primary) != pid {
		t.Errorf("the primary was %s in term %d, is %s in term %d", f.Name(primary), term, f.Name(now), f.status(t, ctx, now).Term)
	}
	f.check(t, ctx)
}

// restarts starts every mysqld again, the primary's in place at the end.
func (f *fixture) restarts(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	load := f.start(t, 4)
	load.awaitAcks(t, ctx, 50)
	for n := range 3 {
		i := (primary + n + 1) % 3 // the primary last
		before := f.pid(t, ctx, i)
		var done cluster.Restarted
		out := f.must(t, ctx, (i+1)%3, "restart-mysqld", f.Name(i), "--json", "--max-pause", "10s")
		if err := json.Unmarshal([]byte(out), &done); err != nil || done.Incarnation == 0 || (done.Moved != nil) != (n == 2) {
			t.Errorf("restart: %v: %s", err, out)
		}
		f.hasAudited(t, ctx, i, "restart mysqld of "+f.Name(i), "done")
		f.heal(t, ctx)
		if f.pid(t, ctx, i) == before {
			t.Errorf("mysqld of %s was not restarted", f.Name(i))
		}
	}
	primary = f.heal(t, ctx)
	before := f.pid(t, ctx, primary)
	for _, step := range []string{"plan", "next"} { // each mysqld is the one on its disk
		if out := f.must(t, ctx, (primary+1)%3, "upgrade", step); !strings.Contains(out, "\nnothing to do: ") {
			t.Errorf("upgrade %s: %s", step, out)
		}
	}
	if f.pid(t, ctx, primary) != before {
		t.Error("an upgrade with nothing to do restarted the primary's mysqld")
	}
	f.must(t, ctx, primary, "restart-mysqld", f.Name(primary), "--in-place", "--max-pause", "10s")
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	if now := f.heal(t, ctx); now != primary || f.pid(t, ctx, primary) == before {
		t.Errorf("the primary was %s, is %s", f.Name(primary), f.Name(now))
	}
	f.check(t, ctx)
}

// fences: a fenced replica's mysqld stays down, also over a restart of its agent.
func (f *fixture) fences(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	i := (primary + 1) % 3
	load := f.start(t, 4)
	load.awaitAcks(t, ctx, 50)
	f.refused(t, ctx, i, []int{1}, "is the primary: move it first", "fence", f.Name(primary))
	f.must(t, ctx, primary, "fence", f.Name(i), "--reason", "its disk is exchanged")
	load.awaitAcks(t, ctx, 50)
	if err := f.Terminate(ctx, i); err != nil {
		t.Fatal(err)
	}
	if err := f.Start(ctx, i); err != nil {
		t.Fatal(err)
	}
	if err := devcluster.Poll(ctx, "the node is fenced again", func(ctx context.Context) (bool, string, error) {
		s, err := f.NodeStatus(ctx, i)
		if err != nil {
			return false, err.Error(), nil
		}
		return s.Role == status.RoleFenced && s.MysqldPID == 0 && strings.Contains(s.Reason, "its disk is exchanged"), fmt.Sprintf("it is %s: %s", s.Role, s.Reason), nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := devcluster.Poll(ctx, "the primary has heard that", func(ctx context.Context) (bool, string, error) {
		st, err := f.Status(ctx, primary)
		return slices.ContainsFunc(st.Nodes, func(n status.Node) bool {
			return n.Name == f.Name(i) && n.Role == status.RoleFenced
		}), fmt.Sprint("it has not, ", err), nil
	}); err != nil {
		t.Fatal(err)
	}
	f.refused(t, ctx, primary, []int{1}, "it is fenced", "switchover", "--to", f.Name(i))
	f.must(t, ctx, primary, "unfence", f.Name(i))
	load.stop(t)
	f.heal(t, ctx)
	f.hasAudited(t, ctx, i, "fence node "+f.Name(i)+": its disk is exchanged", "done")
	f.hasAudited(t, ctx, i, "unfence node "+f.Name(i), "done")
	f.hasAudited(t, ctx, primary, "fence node "+f.Name(primary), "not done: ")
	f.check(t, ctx)
}

// secretsRotated gives the primary's node new passwords: its mysqld has them once its agent
// was started again.
func (f *fixture) secretsRotated(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	load := f.start(t, 4)
	load.awaitAcks(t, ctx, 50)
	old, err := f.LocalDSN(primary)
	if err != nil {
		t.Fatal(err)
	}
	f.must(t, ctx, primary, "secrets", "rotate")
	inSession(t, ctx, f.local(t, primary), "DO 0")
	load.awaitAcks(t, ctx, 50)
	if now, err := f.LocalDSN(primary); err != nil || now != old {
		t.Errorf("the passwords changed while mysqld has the old ones: %v", err)
	}
	if err := f.Terminate(ctx, primary); err != nil {
		t.Fatal(err)
	}
	if err := f.Start(ctx, primary); err != nil {
		t.Fatal(err)
	}
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	f.heal(t, ctx)
	inSession(t, ctx, f.local(t, primary), "DO 0")
	if err := openDSN(t, old, nil).PingContext(ctx); err == nil {
		t.Error("the old password is good")
	}
	f.hasAudited(t, ctx, primary, "rotate the secrets of "+f.Name(primary), "done")
	f.check(t, ctx)
}

// maintained: while maintenance is on nobody takes over by itself.
func (f *fixture) maintained(t *testing.T, ctx context.Context) {
	primary := f.heal(t, ctx)
	other := (primary + 1) % 3
	load := f.start(t, 4)
	load.awaitAcks(t, ctx, 50)
	f.must(t, ctx, other, "maintenance", "on", "--reason", "new disks", "--for", "1h")
	if err := f.KillMysqld(primary); err != nil {
		t.Fatal(err)
	}
	load.awaitAcks(t, ctx, 50)
	if now := f.heal(t, ctx); now != primary {
		t.Errorf("the primary was %s, is %s", f.Name(primary), f.Name(now))
	}
	if err := f.KillBoth(primary); err != nil {
		t.Fatal(err)
	}
	if err := devcluster.Poll(ctx, "a node leads and opens nothing", func(ctx context.Context) (bool, string, error) {
		st, err := f.Status(ctx, other)
		if err != nil {
			return false, err.Error(), nil
		}
		if st.Primary != "" && st.Primary != f.Name(primary) {
			return false, "", fmt.Errorf("%s took over in maintenance", st.Primary)
		}
		held := slices.ContainsFunc(st.Nodes, func(n status.Node) bool {
			return n.Leader == n.ID && strings.Contains(n.Reason, "maintenance is on, and only "+f.Name(primary)+" may open")
		})
		return held && st.Primary == "", fmt.Sprintf("%+v", st), nil
	}); err != nil {
		t.Fatal(err)
	}
	f.must(t, ctx, other, "switchover", "--to", f.Name(other), "--max-pause", "10s")
	load.awaitAcks(t, ctx, 50)
	if now := f.heal(t, ctx); now != other {
		t.Errorf("the primary is %s, not %s", f.Name(now), f.Name(other))
	}
	f.must(t, ctx, other, "switchover", "--to", f.Name(primary), "--max-pause", "10s") // by an operator, it moves
	f.must(t, ctx, other, "maintenance", "off")
	if err := f.KillBoth(primary); err != nil {
		t.Fatal(err)
	}
	load.awaitAcks(t, ctx, 50)
	load.stop(t)
	f.heal(t, ctx)
	f.check(t, ctx)
}
