package agent

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/transport"
)

// TestCaughtUp: a learner gets its vote when commits need not wait for it long.
func TestCaughtUp(t *testing.T) {
	replica := cluster.NodeStatus{Reachable: true, Role: cluster.RoleReplica, LogState: cluster.LogOK, LogLast: 5000, Applied: 5000}
	for name, c := range map[string]struct {
		change    func(*cluster.NodeStatus)
		kind      cluster.Kind
		committed uint64
		want      bool
	}{
		"as far":              {func(*cluster.NodeStatus) {}, cluster.KindFull, 5000, true},
		"a little behind":     {func(*cluster.NodeStatus) {}, cluster.KindFull, 5000 + promoteEntriesMax, true},
		"log behind":          {func(*cluster.NodeStatus) {}, cluster.KindFull, 5001 + promoteEntriesMax, false},
		"mysqld behind":       {func(n *cluster.NodeStatus) { n.LagBytes, n.LagSeconds, n.ApplyRate = 300, 9, 100 }, cluster.KindFull, 5000, false},
		"mysqld not so far":   {func(n *cluster.NodeStatus) { n.LagBytes, n.LagSeconds, n.ApplyRate = 100, 9, 100 }, cluster.KindFull, 5000, true},
		"mysqld not asked":    {func(n *cluster.NodeStatus) { n.Applied = 0 }, cluster.KindFull, 5000, false},
		"joining":             {func(n *cluster.NodeStatus) { n.Role = cluster.RoleJoining }, cluster.KindFull, 5000, false},
		"silent":              {func(n *cluster.NodeStatus) { n.Reachable = false }, cluster.KindFull, 5000, false},
		"log full":            {func(n *cluster.NodeStatus) { n.LogState = cluster.LogFull }, cluster.KindFull, 5000, false},
		"logger":              {func(n *cluster.NodeStatus) { n.Role, n.Applied = cluster.RoleLogger, 0 }, cluster.KindLogger, 5000, true},
		"replica as a logger": {func(*cluster.NodeStatus) {}, cluster.KindLogger, 5000, false},
	} {
		n := replica
		c.change(&n)
		if got := caughtUp(n, c.kind, c.committed); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// TestRebuiltNodeIsNotPromotedBefore: a node that is rebuilt goes on for a moment over
// its old data, and has caught up with these. With a vote it could not be seeded.
func TestRebuiltNodeIsNotPromotedBefore(t *testing.T) {
	for _, c := range []struct {
		ordered, runs string
		want          bool
	}{
		{"", "", false},
		{"", "old", false},
		{"new", "old", true},
		{"new", "", true}, // an agent that does not say
		{"new", "new", false},
	} {
		if got := leaves(cluster.Member{Instance: c.ordered}, cluster.NodeStatus{Instance: c.runs}); got != c.want {
			t.Errorf("ordered %q, runs %q: %t, want %t", c.ordered, c.runs, got, c.want)
		}
	}
	a := loneAgent(t, loneConfig(t))
	if got := a.board.own().Instance; got == "" || got != a.data.identity.Instance {
		t.Errorf("the status says instance %q, it is %q", got, a.data.identity.Instance)
	}
}

// TestSeedIsChosen: the log alone where it goes back to the beginning, else the data
// of the replica that lags least; the primary last.
func TestSeedIsChosen(t *testing.T) {
	data := func(role cluster.Role, backlog float64) *seedData { return &seedData{Role: role, Backlog: backlog} }
	plan := func(node string, first uint64, d *seedData) seedPlan {
		return seedPlan{Node: node, Begin: seedBegin{First: first}, Data: d}
	}
	primary, slow, near := data(cluster.RolePrimary, 0), data(cluster.RoleReplica, 9), data(cluster.RoleReplica, 0.5)
	for name, c := range map[string]struct {
		plans []seedPlan
		kind  cluster.Kind
		want  string
		clone bool
	}{
		"the nearest":      {[]seedPlan{plan("a", 5, primary), plan("b", 5, slow), plan("c", 5, near)}, cluster.KindFull, "c", true},
		"the primary last": {[]seedPlan{plan("a", 5, primary), plan("b", 5, slow)}, cluster.KindFull, "b", true},
		"only the primary": {[]seedPlan{plan("l", 5, nil), plan("a", 5, primary)}, cluster.KindFull, "a", true},
		"log alone":        {[]seedPlan{plan("a", 1, primary), plan("b", 1, slow), plan("c", 5, near)}, cluster.KindFull, "b", false},
		"a logger's log":   {[]seedPlan{plan("a", 5, primary), plan("l", 1, nil), plan("c", 5, near)}, cluster.KindLearner, "l", false},
		"for a logger":     {[]seedPlan{plan("a", 5, primary), plan("b", 5, slow), plan("l", 5, nil)}, cluster.KindLogger, "b", false},
		"nobody":           {[]seedPlan{plan("l", 5, nil)}, cluster.KindFull, "", false},
	} {
		a := &Agent{}
		a.self.Kind = c.kind
		got, clone, err := (&joiner{a: a, plans: c.plans}).choose()
		if got.Node != c.want || clone != c.clone || (err != nil) != (c.want == "") {
			t.Errorf("%s: %q, clone %t, %v, want %q, %t", name, got.Node, clone, err, c.want, c.clone)
		}
	}
}

// TestRebuiltPeer: once its vote is gone a node's old data directory is refused, with
// word of the new one, and no other is taken for that.
func TestRebuiltPeer(t *testing.T) {
	old, next := transport.Identity{Node: 2, NodeName: "b", Instance: [16]byte{1}}, transport.Identity{Node: 2, NodeName: "b", Instance: [16]byte{2}}
	empty, other := transport.Identity{Node: 2, NodeName: "b"}, transport.Identity{Node: 2, NodeName: "b", Instance: [16]byte{3}}
	const instance = "02000000000000000000000000000000"
	running := false
	d := &dataDir{path: t.TempDir(), pins: map[cluster.NodeID]string{}, identity: identity{NodeID: 1}, lives: func(cluster.NodeID) bool { return running }}
	codes := func() (codes []transport.Code) {
		for _, id := range []transport.Identity{old, next, empty, other} {
			err := d.checkPeer(id)
			r, ok := errors.AsType[*transport.RejectedError](err)
			switch {
			case err == nil:
				codes = append(codes, 0)
			case !ok:
				codes = append(codes, transport.CodePeer)
			default:
				codes = append(codes, r.Code)
				if r.Code == transport.CodeReseed {
					continue
				}
				if version, got, ok := rebuildOrder(r.Text); !ok || got != instance || version != 7 {
					t.Errorf("%q says %d, %q, %t", r.Text, version, got, ok)
				}
			}
		}
		return codes
	}
	p := cluster.StatePoint{State: cluster.State{Version: 7, Members: []cluster.Member{{ID: 1, Kind: cluster.KindFull, Instance: "x"}, {ID: 2, Name: "b", Kind: cluster.KindLearner, Instance: instance}}}}
	const refused, rebuild, reseed = transport.CodePeer, transport.CodeRebuild, transport.CodeReseed
	for _, step := range []struct {
		name   string
		change func()
		want   []transport.Code
	}{
		{"before", func() {}, []transport.Code{0, refused, refused, refused}},
		{"while it is under way", func() { p.Outgoing = []cluster.NodeID{1, 2} }, []transport.Code{0, refused, reseed, refused}},
		{"complete", func() { p.Outgoing = nil }, []transport.Code{rebuild, 0, rebuild, rebuild}},
		{"told by a node without a vote", func() { p.State.Members[0].Kind = cluster.KindLearner }, []transport.Code{refused, 0, rebuild, refused}},
		{"and with one", func() { p.State.Members[0].Kind = cluster.KindFull }, []transport.Code{rebuild, 0, rebuild, rebuild}},
		{"rebuilt", func() { p.State.Members[1].Kind = cluster.KindFull }, []transport.Code{refused, 0, reseed, refused}},
		{"and it runs", func() { running = true }, []transport.Code{refused, 0, refused, refused}},
		{"by operators alone", func() { running, p.State.Reseed = false, cluster.ReseedManual }, []transport.Code{refused, 0, refused, refused}},
	} {
		step.change()
		if step.name != "before" {
			if err := d.expect(p); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(step.want, codes()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
	again := &dataDir{path: d.path, pins: map[cluster.NodeID]string{}}
	if err := again.readPins(); err != nil || again.pins[2] != instance || again.pins[1] != "" {
		t.Errorf("after a restart: %v, %v", again.pins, err)
	}
}

// TestOldRebuildOrderIsIgnored: a peer that lags may refuse a node by what was long
// ago; only one that knows a newer state is believed.
func TestOldRebuildOrderIsIgnored(t *testing.T) {
	for version, leaves := range map[string]bool{"7": false, "6": false, "8": true, "x": false} {
		a := &Agent{cfg: testConfig(t, t.TempDir()), logger: slog.New(slog.DiscardHandler)}
		a.board.init(a.cfg, a.cfg.ClusterMembers()[0], "")
		state := a.board.clusterState()
		state.Version = 7
		a.board.setState(state)
		a.rejected("b", &transport.RejectedError{Code: transport.CodeRebuild, Text: `node "a" is to be rebuilt: ` + version + "/02000000000000000000000000000000"})
		if got := a.leaving.Load() != nil; got != leaves {
			t.Errorf("version %s: leaves %t", version, got)
		}
	}
}
