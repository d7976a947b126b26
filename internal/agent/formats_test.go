package agent

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/cluster"
)

// TestNobodyForgetsPartOfTheState: a change that an older quorate would not keep waits
// until there is none; any other does not.
func TestNobodyForgetsPartOfTheState(t *testing.T) {
	a := &Agent{cfg: testConfig(t, t.TempDir()), logger: slog.New(slog.DiscardHandler)}
	a.self = a.cfg.Self()
	openBoard(a)
	a.buildPeers()
	var peer cluster.Member
	for _, m := range a.board.Members() {
		if m.ID != a.self.ID {
			peer = m
		}
	}
	weight := cluster.Change{Node: &cluster.NodeChange{Name: peer.Name, Weight: new(7)}}
	settings := cluster.Change{Settings: &cluster.SettingsChange{Errant: new(cluster.ErrantRebuild)}}
	hear := func(format int) {
		t.Helper()
		s := cluster.NodeStatus{ID: peer.ID, Name: peer.Name, Role: cluster.RoleReplica, StateFormat: format, StateVersion: new(uint64)}
		if err := a.board.Received(peer.ID, s); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string, c cluster.Change, refused bool) {
		t.Helper()
		if err := a.allKnow(c); (err != nil) != refused || refused && !strings.Contains(err.Error(), "upgrade it first") {
			t.Errorf("%s: %v, want it refused: %t", what, err, refused)
		}
		if !refused {
			return // it takes a leader from there on
		}
		if _, err := a.changeAs(t.Context(), "ann", cluster.Ask{DryRun: true}, c); err == nil || !strings.Contains(err.Error(), "upgrade it first") {
			t.Errorf("%s, dry run: %v", what, err)
		}
	}
	hear(0)
	check("a weight, with an old node", weight, false)
	check("settings, with an old node", settings, true)
	hear(cluster.StateFormat)
	check("settings", settings, false)
	state := a.board.State()
	state.Errant = cluster.ErrantRebuild
	a.board.SetState(state)
	hear(0)
	check("a weight, beside settings, with an old node", weight, true)
	state.Errant, state.Recovered = "", &cluster.Recovery{Version: 1_000_000}
	a.board.SetState(state)
	check("a weight, in a cluster that was recovered, with an old node", weight, true)
}
