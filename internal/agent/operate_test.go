package agent

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/history"
	"github.com/quorate/quorate/internal/agent/operate"
	"github.com/quorate/quorate/internal/agent/quorumloss"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/front/api"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/log/vfs"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/raft/transport"
	"github.com/quorate/quorate/internal/role"
)

// TestFenceIsKept: a fence is still there after a restart. With a damaged fence mysqld is not started.
func TestFenceIsKept(t *testing.T) {
	a := &Agent{data: &dataDir{Locked: datadir.NewLocked(datadir.NewHome(datadir.New(vfs.OS{}, t.TempDir()), datadir.Identity{}, false))}}
	openBoard(a)
	if in, err := a.Fenced(); err != nil || in != (role.Fenced{}) {
		t.Errorf("none: %+v, %v", in, err)
	}
	f := cluster.Fence{By: "ann@db1", At: time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC), Reason: "its disk"}
	if err := datadir.Replace(vfs.OS{}, a.data.Join(), datadir.Fence, f); err != nil {
		t.Fatal(err)
	}
	want := role.Fenced{Reason: "fenced by ann@db1 at 2026-01-02 12:00:00 UTC: its disk; quorate unfence ends that"}
	if in, err := a.Fenced(); err != nil || in != want {
		t.Errorf("one: %+v, %v", in, err)
	}
	if err := datadir.Replace(vfs.OS{}, a.data.Join(), datadir.Fence, 7); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Fenced(); err == nil {
		t.Error("a damaged one was passed over")
	}
}

// TestRestartDryRunIsJudgedAsTheDeed: the role machine judges the dry run and the restart itself, by what it alone
// knows.
func TestRestartDryRunIsJudgedAsTheDeed(t *testing.T) {
	a := openLone(t)
	a.ctx = t.Context()
	a.local.Set(&mysqld.Process{})
	n := role.New(role.Config{Self: a.self.ID, Kind: cluster.KindFull})
	n.Step(role.Tick{Now: time.Second})
	n.Step(role.Done{Op: 1, Verdict: role.OK, Incarnation: 1}) // the node waits for a leader
	go func() { _ = a.Shell.Run(t.Context(), n, role.Tick{Now: time.Second}) }()
	for _, dryRun := range []bool{false, true} {
		args, err := json.Marshal(cluster.RestartRequest{Node: a.self.Name, DryRun: dryRun, MaxPause: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		d, err := a.switchover.Handlers()["restart"].Run(t.Context(), control.Request{Name: "restart", By: "ann@db1", Args: args})
		want := "node a: only the mysqld of a replica or of the primary can be started again, and it is unverified: no leader: waiting for a majority"
		if err == nil || err.Error() != want || d.ReadOnly != dryRun {
			t.Errorf("dry run %v: %v, %+v; want %s", dryRun, err, d, want)
		}
	}
}

// TestAnswersAreWaitedFor: a client waits for the answer as long as a request may take. Once the answer of a restart
// came too late.
func TestAnswersAreWaitedFor(t *testing.T) {
	a := openLone(t)
	for _, all := range []map[string]operate.Handler{a.actions(), a.memberRequests(), a.variables.Handlers(), a.switchover.Handlers(), a.following.Handlers()} {
		for name, h := range all {
			if h.Timeout+2*time.Second > api.ControlTimeout {
				t.Errorf("%s may take %v, and its answer is waited for for %v", name, h.Timeout, api.ControlTimeout)
			}
		}
	}
}

// dying takes a request, and dies before it answers.
type dying struct{ stranger }

func (dying) Call(_ context.Context, _ cluster.NodeID, conn net.Conn) {
	_, _ = control.ReadRequest(conn)
	_ = conn.Close()
}

// TestRequestOfANodeThatDied: the node that asked writes the line of the audit log, as no other node does.
func TestRequestOfANodeThatDied(t *testing.T) {
	nodes := newcomers(t, false)
	a, b := nodes[0], nodes[1]
	a.buildPeers()
	a.records.Open()
	if err := a.data.open(); err != nil {
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
