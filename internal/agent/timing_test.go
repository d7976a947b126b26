package agent

import (
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/core"
)

// TestPromisesOutliveTheAgent: after a restart with a shorter election timeout the
// longer one counts, until it is over.
func TestPromisesOutliveTheAgent(t *testing.T) {
	d := &dataDir{path: t.TempDir()}
	start := func(own, want time.Duration) {
		t.Helper()
		if got, err := d.promises(own); err != nil || got != want {
			t.Errorf("a start with %v: what was promised is %v, %v; want %v", own, got, err, want)
		}
	}
	start(time.Second, time.Second)
	start(5*time.Second, 5*time.Second)
	start(time.Second, 5*time.Second)
	start(2*time.Second, 5*time.Second) // the first has ended before five seconds were over
	if err := d.promiseOnly(2 * time.Second); err != nil {
		t.Fatal(err)
	}
	start(time.Second, 2*time.Second)
	if err := os.WriteFile(d.join(promiseFile), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := d.promises(time.Second); err == nil || !strings.Contains(err.Error(), "promise.json is damaged: remove it once no agent has run here for a minute") {
		t.Errorf("a damaged file: %v", err)
	}
}

// TestTimingsAreJudged: a node whose heartbeat is too long for another's election timeout
// says so, and core is told that it could get no lease beside agents of before.
func TestTimingsAreJudged(t *testing.T) {
	a := &Agent{cfg: testConfig(t, t.TempDir()), logger: slog.New(slog.DiscardHandler), epoch: &epochSlot{}}
	a.self = a.cfg.Self()
	a.data = &dataDir{}
	a.board.init(a.cfg, a.self, "")
	hear := func(timeout time.Duration) (in core.Peers) {
		t.Helper()
		for _, m := range a.board.list() {
			if m.ID == a.self.ID {
				continue
			}
			blob, err := json.Marshal(cluster.NodeStatus{ID: m.ID, Name: m.Name, Kind: m.Kind, Role: cluster.RoleReplica,
				AgentVersion: "0.1", Heartbeat: timeout / 10, ElectionTimeout: timeout})
			if err != nil {
				t.Fatal(err)
			}
			if err := a.board.received(m.ID, blob); err != nil {
				t.Fatal(err)
			}
			a.board.peerUp(m.ID, true)
		}
		a.judgeTimings(a.board.own(), &in)
		a.board.setRole(cluster.RoleReplica, "")
		return in
	}
	if in := hear(time.Second); in.NoLease != "" || a.board.own().Reason != "" {
		t.Errorf("equal settings: %q, %q", in.NoLease, a.board.own().Reason)
	}
	hear(300 * time.Millisecond)
	if got := a.board.own().Reason; !strings.Contains(got, "raft.heartbeat 100ms is too long for node") {
		t.Errorf("a short election timeout of the others: %q", got)
	}
	if in := hear(0); !strings.Contains(in.NoLease, "runs quorate 0.1") || a.board.own().Reason != "" {
		t.Errorf("agents of before: %q, %q", in.NoLease, a.board.own().Reason)
	}
}
