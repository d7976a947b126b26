package agent

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/history"
	"github.com/quorate/quorate/internal/agent/operate"
	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/agent/quorumloss"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/raft/transport"
	"github.com/quorate/quorate/internal/role"
	"github.com/quorate/quorate/internal/sys/clock"
)

// TestFenceIsKept: a fence is there again after a restart; a damaged one is no
// reason to start mysqld.
func TestFenceIsKept(t *testing.T) {
	a := &Agent{data: &dataDir{Locked: datadir.NewLocked(datadir.NewHome(datadir.New(vfs.OS{}, t.TempDir()), datadir.Identity{}, false))}}
	openBoard(a)
	if in, err := a.fencedBefore(); err != nil || in != (role.Fenced{}) {
		t.Errorf("none: %+v, %v", in, err)
	}
	f := cluster.Fence{By: "ann@db1", At: time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC), Reason: "its disk"}
	if err := datadir.Replace(vfs.OS{}, a.data.Join(), datadir.Fence, f); err != nil {
		t.Fatal(err)
	}
	want := role.Fenced{Reason: "fenced by ann@db1 at 2026-01-02 12:00:00 UTC: its disk"}
	if in, err := a.fencedBefore(); err != nil || in != want {
		t.Errorf("one: %+v, %v", in, err)
	}
	if err := datadir.Replace(vfs.OS{}, a.data.Join(), datadir.Fence, 7); err != nil {
		t.Fatal(err)
	}
	if _, err := a.fencedBefore(); err == nil {
		t.Error("a damaged one was passed over")
	}
}

// TestRestartNotesAStoppedApplier: a restart that did not help says so.
func TestRestartNotesAStoppedApplier(t *testing.T) {
	a := openLone(t)
	if notes := a.replicationNotes(t.Context()); len(notes) != 0 {
		t.Errorf("it applies: %q", notes)
	}
	a.board.Update(func(s *status.Node) { s.ApplierStopped = "replication has stopped: x" })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	want := []string{"node " + a.self.Name + " does not apply, and cannot take over: replication has stopped: x; see the status"}
	if d := cmp.Diff(want, a.replicationNotes(ctx)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestPlanSwitchoverOfNobody: in maintenance without a primary nothing is waited for,
// however far the node that is to open is behind.
func TestPlanSwitchoverOfNobody(t *testing.T) {
	a := openLone(t)
	b := a.self.ID + 1
	a.board.SetState(cluster.State{Version: 1, Maintenance: &cluster.Maintenance{}, Members: []cluster.Member{
		{ID: a.self.ID, Name: "a", Kind: cluster.KindFull, Weight: 5}, {ID: b, Name: "b", Kind: cluster.KindFull, Weight: 5}}})
	hears(t, a, status.Node{
		ID: b, Name: "b", Kind: cluster.KindFull, Weight: 5, Role: status.RoleReplica, LagTransactions: 9, LagSeconds: 60})
	for _, dryRun := range []bool{true, false} {
		s, p, err := a.planSwitchover(t.Context(), cluster.SwitchoverRequest{To: "b", DryRun: dryRun, MaxPause: time.Second, Wait: time.Second})
		if err != nil || p.to != b {
			t.Fatalf("%+v, %v", p, err)
		}
		want := []string{"maintenance is on: b becomes the node that may open"}
		if d := cmp.Diff(want, append(s.Notes, p.notes...)); d != "" {
			t.Errorf("dry run %t (-want +got):\n%s", dryRun, d)
		}
	}
}

// TestRestartDryRunIsJudgedAsTheDeed: the role machine judges both, by what it knows alone.
func TestRestartDryRunIsJudgedAsTheDeed(t *testing.T) {
	a := openLone(t)
	a.ctx, a.process = t.Context(), &mysqld.Process{}
	n := role.New(role.Config{Self: a.self.ID, Kind: cluster.KindFull})
	n.Step(role.Tick{Now: time.Second})
	n.Step(role.Done{Op: 1, Verdict: role.OK, Incarnation: 1}) // it waits for a leader
	go func() { _ = a.Shell.Run(t.Context(), n, role.Tick{Now: time.Second}) }()
	for _, dryRun := range []bool{false, true} {
		args, err := json.Marshal(cluster.RestartRequest{Node: a.self.Name, DryRun: dryRun, MaxPause: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		d, err := a.controlRestart(t.Context(), control.Request{Name: "restart", By: "ann@db1", Args: args})
		want := "node a: only the mysqld of a replica or of the primary can be started again, and it is unverified: no leader: waiting for a majority"
		if err == nil || err.Error() != want || d.ReadOnly != dryRun {
			t.Errorf("dry run %v: %v, %+v; want %s", dryRun, err, d, want)
		}
	}
}

// TestJudgeWriters: a statement of half of the pause keeps a switchover from beginning;
// a dry run names the shorter ones.
func TestJudgeWriters(t *testing.T) {
	of := func(seconds ...int64) (all []mysqld.Session) {
		for i, s := range seconds {
			all = append(all, mysqld.Session{ID: uint64(i + 7), User: "app", Seconds: s})
		}
		return all
	}
	const called = ": a switchover is called off if writes cannot be closed within 4s"
	for _, c := range []struct {
		writers []mysqld.Session
		blocks  int
		note    string
	}{
		{nil, 0, ""},
		{of(1), 0, "1 statement writes now (session 7 of app, for 1 s)" + called},
		{of(2, 1, 0), 1, "2 statements write now (session 8 of app, for 1 s; session 9 of app, for 0 s)" + called},
		{of(1, 0, 0, 0, 0), 0, "5 statements write now (session 7 of app, for 1 s; session 8 of app, for 0 s; session 9 of app, for 0 s; …)" + called},
	} {
		blocks, note := judgeWriters(c.writers, 4*time.Second)
		if len(blocks) != c.blocks || note != c.note {
			t.Errorf("%v: %q, %q", c.writers, blocks, note)
		}
	}
	want := "closing writes waited for 1 statement that writes: session 7 of app, for 5 s; wait until it is done, or end the session (KILL 7), or give more time (--max-pause), and try again"
	if got := heldBy(of(5)); got != want {
		t.Errorf("%q", got)
	}
}

// TestCalledOff: it says that writes are open again, where they are.
func TestCalledOff(t *testing.T) {
	a := openLone(t)
	var orders primary.Orders
	m := primary.NewOrder("ann", true, time.Second, clock.Machine{})
	go func() { _, _ = orders.Run(t.Context(), m, func() {}) }()
	for orders.Now() == nil {
		time.Sleep(time.Millisecond)
	}
	for _, c := range []struct {
		role         status.Role
		begins, ends string
	}{
		{status.RoleReplica, "x", ""}, // writes were not closed
		{status.RolePrimary, "called off, writes were closed for ", "s and are open again on node a: x"},
		{status.RoleReplica, "not done, writes were closed ", "s ago and node a is replica now, see the status: x"},
	} {
		a.board.SetRole(c.role, "")
		if got := a.calledOff(m, errors.New("x")).Error(); !strings.HasPrefix(got, c.begins) || !strings.HasSuffix(got, c.ends) {
			t.Errorf("%s: %q, want %q … %q", c.role, got, c.begins, c.ends)
		}
		orders.Closing()
	}
}

// dying takes a request, and dies before it has answered.
type dying struct{ stranger }

func (dying) Call(_ context.Context, _ cluster.NodeID, conn net.Conn) {
	_, _ = control.ReadRequest(conn)
	_ = conn.Close()
}

// TestRequestOfANodeThatDied: who asked it writes the line, as nobody else does.
func TestRequestOfANodeThatDied(t *testing.T) {
	nodes := newcomers(t, false)
	a, b := nodes[0], nodes[1]
	a.buildPeers()
	if err := errors.Join(a.data.open(), a.records.Open()); err != nil {
		t.Fatal(err)
	}
	defer a.data.Close()
	peer := transport.New(transport.Config{
		Identity: b.transportIdentity(), Listen: b.self.Peer, Peers: b.transportPeers(), Handler: dying{}, Logger: b.logger,
	})
	ctx, end := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, p := range []*transport.Transport{a.peers, peer} {
		if err := p.Listen(); err != nil {
			t.Fatal(err)
		}
		all.Go(func() { _ = p.Run(ctx) })
	}
	defer all.Wait()
	defer end()
	h := operate.Handler{Leader: true, Audited: true, Timeout: time.Minute}
	for _, args := range []string{`{"to":"c","dry_run":true}`, `{"to":"c"}`} {
		answer, asked := a.requests.Forward(ctx, h, b.self.ID, control.Request{Name: "switchover", By: "ann@db1", Args: []byte(args)})
		if !asked || answer.Code != control.CodeUncertain || !strings.Contains(answer.Error, "quorate history") {
			t.Errorf("it is said: %+v", answer)
		}
	}
	lines, err := a.records.Audit.Newest(10)
	if err != nil || len(lines) != 1 {
		t.Fatalf("%+v, %v", lines, err)
	}
	if l := lines[0]; l.What != "switchover to c" || l.By != "ann@db1" || !strings.HasPrefix(l.Result, "not known: node b was asked") {
		t.Errorf("%+v", l)
	}
}

// TestEveryRequestIsServed: each request of the commands and between agents has a handler.
func TestEveryRequestIsServed(t *testing.T) {
	a := &Agent{logger: slog.New(slog.DiscardHandler)}
	openBoard(a)
	for _, name := range []string{
		"node.set", "cluster.set", "maintenance", "fence", "unfence", "switchover", "switchover.target", "restart", "log.purge",
		"audit", "history", history.AuditSince, history.Since, "did-commit", "sessions",
		"node.add", "node.promote", "node.demote", "node.remove", "node.rebuild",
		recoverRequest, quorumloss.WordRequest, seedPlanRequest, seedDataRequest, stateRequest,
	} {
		if answer := a.requests.Serve(t.Context(), control.Request{Name: name, By: "ann@db1", From: "b", Args: []byte("{}")}); answer.Code == control.CodeUnknown {
			t.Errorf("%s: %s", name, answer.Error)
		}
	}
}
