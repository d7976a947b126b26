package operate

import (
	"errors"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/raft/consensus"
)

// TestNobodyForgetsPartOfTheState: a change that an older quorate would not keep waits until there is no older one;
// any other change does not wait.
func TestNobodyForgetsPartOfTheState(t *testing.T) {
	s, n := serve(t)
	weight := cluster.Change{Node: &cluster.NodeChange{Name: "b", Weight: new(7)}}
	settings := cluster.Change{Settings: &cluster.SettingsChange{Errant: new(cluster.ErrantRebuild)}}
	hear := func(format int) {
		t.Helper()
		if err := n.board.Received(2, status.Node{ID: 2, Name: "b", Role: status.RoleReplica, StateFormat: format, StateVersion: new(uint64)}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string, c cluster.Change, refused bool) {
		t.Helper()
		if err := s.allKnow(c); (err != nil) != refused || refused && !strings.Contains(err.Error(), "upgrade it first") {
			t.Errorf("%s: %v, want it refused: %t", what, err, refused)
		}
		if !refused {
			return // it takes a leader from there on
		}
		if _, err := s.ChangeAs(t.Context(), "ann", cluster.Ask{DryRun: true}, c); err == nil || !strings.Contains(err.Error(), "upgrade it first") {
			t.Errorf("%s, dry run: %v", what, err)
		}
	}
	hear(0)
	check("a weight, with an old node", weight, false)
	check("settings, with an old node", settings, true)
	hear(cluster.StateFormat)
	check("settings", settings, false)
	state := n.board.State()
	state.Errant = cluster.ErrantRebuild
	n.board.SetState(state)
	hear(0)
	check("a weight, beside settings, with an old node", weight, true)
	state.Errant, state.Recovered = "", &cluster.Recovery{Version: 1_000_000}
	n.board.SetState(state)
	check("a weight, in a cluster that was recovered, with an old node", weight, true)
}

// TestOldNodesHoldChangesBack: an agent that knows no cluster state would end at
// the entry of a change.
func TestOldNodesHoldChangesBack(t *testing.T) {
	s, n := serve(t)
	for _, c := range []struct {
		version *uint64
		want    string
	}{{nil, "node b runs quorate v0"}, {new(uint64), ""}} {
		if err := n.board.Received(2, status.Node{ID: 2, Name: "b", Role: status.RoleReplica, AgentVersion: "v0", StateVersion: c.version}); err != nil {
			t.Fatal(err)
		}
		err := s.allKnowState()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("state version %v: %v, want %q", c.version, err, c.want)
		}
	}
}

// TestRefusedWhileInMaintenance: it is refused for now, not for ever.
func TestRefusedWhileInMaintenance(t *testing.T) {
	s := cluster.NewState([]cluster.Member{
		{ID: 1, Name: "a", Kind: cluster.KindFull, Weight: 5}, {ID: 2, Name: "b", Kind: cluster.KindFull, Weight: 5}})
	s.Maintenance = &cluster.Maintenance{Primary: "a"}
	for name, code := range map[string]control.Code{"a": control.CodeFailed, "x": control.CodeInvalid} {
		_, err := s.With(cluster.Change{ID: "x", Membership: &cluster.MembershipChange{Op: cluster.OpRebuild, Name: name, Instance: "new"}})
		if e, ok := errors.AsType[*control.Error](RefusedChange(err)); err == nil || !ok || e.Code != code {
			t.Errorf("rebuild %s: %v, want it %s", name, RefusedChange(err), code)
		}
	}
}

// TestJudgedOnWhatIsCommitted: two operators who ask at once could stop writes together, each with a change that would
// stop none alone. So a change counts only for the committed state for which it was judged, unless it is forced.
func TestJudgedOnWhatIsCommitted(t *testing.T) {
	s := serveLeading(t)
	committed := s.Node.(leading).node.Committed().State().State
	for i, c := range []struct {
		ask  cluster.Ask
		want uint64
	}{{cluster.Ask{}, committed.Version}, {cluster.Ask{Force: true}, 0}, {cluster.Ask{}, committed.Version}} {
		if _, err := s.ChangeAs(t.Context(), "ann@db1", c.ask, cluster.Change{Node: &cluster.NodeChange{Name: "b", Weight: new(i + 6)}}); err != nil {
			t.Fatal(err)
		}
		if got := s.Node.(leading).asked.Judged; got != c.want {
			t.Errorf("%+v: judged on version %d, want %d", c.ask, got, c.want)
		}
	}
}

// TestOneRebuildAtATime: a person's rebuild or removal is refused while another node is rebuilt, if it would leave less than two
// running voters. So is its dry run, and --force does not wait.
func TestOneRebuildAtATime(t *testing.T) {
	s, n := serve(t)
	var members []cluster.Member
	for i, name := range []string{"a", "b", "c"} {
		members = append(members, cluster.Member{ID: cluster.NodeID(i + 1), Name: name, Kind: cluster.KindFull, Weight: 5})
	}
	members[1].Kind, members[1].Becomes, members[1].Instance = cluster.KindLearner, cluster.KindFull, "new"
	n.board.SetState(cluster.NewState(members))
	for _, m := range members[1:] {
		n.board.PeerUp(m.ID, true)
		if err := n.board.Received(m.ID, status.Node{ID: m.ID, Name: m.Name, Role: status.RoleReplica, StateVersion: new(uint64), StateFormat: cluster.StateFormat}); err != nil {
			t.Fatal(err)
		}
	}
	s.Node = lead(t, n)
	for _, name := range []string{"node.rebuild", "node.remove", "node.demote"} {
		for ask, refused := range map[string]bool{"": true, `,"dry_run":true`: true, `,"force":true`: false, `,"force":true,"dry_run":true`: false} {
			_, err := s.all[name].Run(t.Context(), control.Request{Name: name, By: "ann@db1", Args: []byte(`{"change":{"name":"c"}` + ask + `}`)})
			said := err != nil && strings.Contains(err.Error(), "node b is being rebuilt, and no running voter would be left")
			if e, ok := errors.AsType[*control.Error](err); said != refused || refused && (!ok || e.Code != control.CodeFailed) {
				t.Errorf("%s%s: %v, want it refused: %t", name, ask, err, refused)
			}
		}
	}
}

// TestIgnoredChanges: if a change was overtaken, its operator is told to look, and to ask again. If Raft cannot make
// a change, its operator is told not to ask again.
func TestIgnoredChanges(t *testing.T) {
	for _, c := range []struct {
		ignored error
		code    control.Code
		says    string
	}{
		{consensus.ErrStale, control.CodeStale, "look at it, and ask again"},
		{consensus.ErrUnfit, control.CodeInvalid, "do not ask again"},
	} {
		s := serveLeading(t)
		n := s.Node.(leading)
		n.ignored = c.ignored
		s.Node = n
		_, err := s.ChangeState(t.Context(), "ann@db1", cluster.Change{Node: &cluster.NodeChange{Name: "b", Weight: new(7)}})
		if e, ok := errors.AsType[*control.Error](err); !ok || e.Code != c.code || !strings.Contains(e.Text, c.says) {
			t.Errorf("%v: answered with %v", c.ignored, err)
		}
	}
}
