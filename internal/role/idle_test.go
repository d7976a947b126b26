package role

import (
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
)

// TestIdle: a replica and a primary at rest need no ticks, whatever the time is. A node that waits for
// something needs them.
func TestIdle(t *testing.T) {
	n := New(Config{
		Self: 1, Kind: cluster.KindFull, Weight: 1, RetryAfter: time.Second, FencedAfter: 5 * time.Second, PromotionTimeout: 30 * time.Second,
		IdleLeaderTimeout: 5 * time.Second, StopTimeout: 5 * time.Second, SettleTimeout: 2 * time.Second, SteadyAfter: time.Minute,
	})
	now := time.Duration(0)
	// runs makes every operation succeed, and checks that the node is never idle before that.
	runs := func(in Input) {
		for effects := n.Step(in); len(effects) > 0; {
			var op OpID
			for _, e := range effects {
				op = max(op, e.Op)
			}
			if op == 0 {
				return
			}
			if n.Idle() {
				t.Errorf("it is idle in %s", n.Phase())
			}
			effects = n.Step(Done{Op: op, Verdict: OK, Incarnation: 1})
		}
	}
	idle := func(phase Phase) {
		t.Helper()
		if n.Phase() != phase || !n.Idle() {
			t.Fatalf("it is %s, idle: %t", n.Phase(), n.Idle())
		}
		for range 100 { // Step checks that an idle node does nothing
			now += time.Minute
			if effects := n.Step(Tick{Now: now}); len(effects) > 0 || !n.Idle() {
				t.Fatalf("%s after %s: %v", phase, now, effects)
			}
		}
	}
	runs(Peers{Own: Peer{ID: 1, Kind: cluster.KindFull, Weight: 1, Live: true}})
	if n.Idle() {
		t.Error("it is idle without a leader")
	}
	runs(RaftChanged{Term: 1, Leader: 2})
	idle(PhaseReplica)
	runs(RaftChanged{Term: 2, Leader: 1, Leading: true})
	idle(PhasePrimary)
	own := Peer{ID: 1, Kind: cluster.KindFull, Weight: 1, Live: true}
	other := Peer{ID: 2, Kind: cluster.KindFull, Weight: 1, Live: true, Role: status.RoleReplica}
	own.LogBad = true
	n.Step(Peers{Own: own, Peers: []Peer{other}})
	if n.Idle() {
		t.Error("it is idle while it wants to hand over")
	}
	now += time.Minute
	if effects := n.Step(Tick{Now: now}); len(effects) != 1 || effects[0].Kind != Transfer {
		t.Errorf("its log's disk does not answer: %v", effects)
	}
	own.LogBad = false
	n.Step(Peers{Own: own, Peers: []Peer{other}})
	idle(PhasePrimary)
	n.Step(LogTrouble{Reason: "no space"})
	if n.Idle() {
		t.Error("it is idle while it is fenced")
	}
}
