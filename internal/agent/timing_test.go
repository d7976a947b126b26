package agent

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/role"
)

// TestTimingsAreJudged: a node whose heartbeat is too long for another's election timeout
// says so, and the role machine is told that it could get no lease beside agents of before.
func TestTimingsAreJudged(t *testing.T) {
	a := &Agent{cfg: testConfig(t, t.TempDir()), logger: slog.New(slog.DiscardHandler)}
	a.self = a.cfg.Self()
	openBoard(a)
	hear := func(timeout time.Duration) (in role.Peers) {
		t.Helper()
		for _, m := range a.board.Members() {
			if m.ID == a.self.ID {
				continue
			}
			hears(t, a, status.Node{ID: m.ID, Name: m.Name, Kind: m.Kind, Role: status.RoleReplica,
				AgentVersion: "0.1", Heartbeat: timeout / 10, ElectionTimeout: timeout})
		}
		a.judgeTimings(a.board.Own(), &in)
		a.board.SetRole(status.RoleReplica, "")
		return in
	}
	if in := hear(time.Second); in.NoLease != "" || a.board.Own().Reason != "" {
		t.Errorf("equal settings: %q, %q", in.NoLease, a.board.Own().Reason)
	}
	hear(300 * time.Millisecond)
	if got := a.board.Own().Reason; !strings.Contains(got, "raft.heartbeat 100ms is too long for node") {
		t.Errorf("a short election timeout of the others: %q", got)
	}
	if in := hear(0); !strings.Contains(in.NoLease, "runs quorate 0.1") || a.board.Own().Reason != "" {
		t.Errorf("agents of before: %q, %q", in.NoLease, a.board.Own().Reason)
	}
}
