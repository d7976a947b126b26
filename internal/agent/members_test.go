package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
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

// rejection is what a node is told that is refused in words for its agent.
func rejection(t *testing.T, d *dataDir, id transport.Identity) *transport.RejectedError {
	t.Helper()
	r, ok := errors.AsType[*transport.RejectedError](d.checkPeer(id))
	if !ok {
		t.Fatalf("%s is not rejected", id.NodeName)
	}
	return r
}

// answers is what nodes with these data directories are told; where that is to begin
// anew, with the instance, by state 7.
func answers(t *testing.T, d *dataDir, asking []transport.Identity, instance string) (codes []transport.Code) {
	for _, id := range asking {
		err := d.checkPeer(id)
		r, ok := errors.AsType[*transport.RejectedError](err)
		switch {
		case err == nil:
			codes = append(codes, 0)
			continue
		case !ok:
			codes = append(codes, transport.CodePeer)
			continue
		}
		codes = append(codes, r.Code)
		if o := r.Order; r.Code == transport.CodeRebuild && (o.Instance != instance || o.StateVersion != 7) {
			t.Errorf("%q orders %+v", r.Text, o)
		}
	}
	return codes
}

// TestRebuiltPeer: once its vote is gone a node's old data directory is refused, with
// word of the new one, and no other is taken for that. The word goes to one directory:
// once that was here no other gets it, also after a restart.
func TestRebuiltPeer(t *testing.T) {
	old, next := transport.Identity{Node: 2, NodeName: "b", Instance: [16]byte{1}}, transport.Identity{Node: 2, NodeName: "b", Instance: [16]byte{2}}
	empty, other := transport.Identity{Node: 2, NodeName: "b"}, transport.Identity{Node: 2, NodeName: "b", Instance: [16]byte{3}}
	const instance = "02000000000000000000000000000000"
	running, kept := false, true
	lives := func(cluster.NodeID) bool { return running }
	d := &dataDir{path: t.TempDir(), pins: map[cluster.NodeID]string{}, identity: identity{NodeID: 1}, lives: lives}
	meet := func() {
		if err := d.checkPeer(next); err != nil {
			t.Errorf("its new data directory: %v", err)
		}
	}
	p := cluster.StatePoint{State: cluster.State{Version: 7, Members: []cluster.Member{{ID: 1, Kind: cluster.KindFull, Instance: "x"}, {ID: 2, Name: "b", Kind: cluster.KindLearner, Instance: instance}}}}
	const refused, rebuild, reseed = transport.CodePeer, transport.CodeRebuild, transport.CodeReseed
	var under *transport.RejectedError
	for _, step := range []struct {
		name   string
		change func()
		want   []transport.Code
	}{
		{"before", func() {}, []transport.Code{0, refused, refused}},
		{"while it is under way", func() { p.Outgoing = []cluster.NodeID{1, 2} }, []transport.Code{0, reseed, refused}},
		{"complete", func() { p.Outgoing = nil }, []transport.Code{rebuild, rebuild, rebuild}},
		{"told by a node without a vote", func() { p.State.Members[0].Kind = cluster.KindLearner }, []transport.Code{refused, rebuild, refused}},
		{"and by one that keeps no such state", func() { p.State.Members[0].Kind, kept = cluster.KindFull, false }, []transport.Code{refused, rebuild, refused}},
		{"that does", func() { kept = true }, []transport.Code{rebuild, rebuild, rebuild}},
		{"and with one", func() { p.State.Members[0].Kind = cluster.KindFull }, []transport.Code{rebuild, rebuild, rebuild}},
		{"it has begun anew", meet, []transport.Code{refused, reseed, refused}},
		{"and after a restart", func() {
			before := d
			d = &dataDir{path: before.path, pins: map[cluster.NodeID]string{}, identity: before.identity, lives: lives}
			if err := errors.Join(d.readPins(), d.readMet()); err != nil {
				t.Fatal(err)
			}
		}, []transport.Code{refused, reseed, refused}},
		{"rebuilt", func() { p.State.Members[1].Kind = cluster.KindFull }, []transport.Code{refused, reseed, refused}},
		{"and it runs", func() { running = true }, []transport.Code{refused, refused, refused}},
		{"as a learner for good", func() { p.State.Members[1].Kind = cluster.KindLearner }, []transport.Code{refused, refused, refused}},
		{"by operators alone", func() { running, p.State.Reseed = false, cluster.ReseedManual }, []transport.Code{refused, refused, refused}},
	} {
		step.change()
		if step.name != "before" {
			if err := d.expect(p, kept); err != nil {
				t.Fatal(err)
			}
		}
		if step.name == "while it is under way" {
			under = rejection(t, d, empty)
		}
		if step.name == "complete" { // who has asked before, and asks again, begins anew
			if got := weightiest([]*transport.RejectedError{under, rejection(t, d, empty)}); got.Code != rebuild {
				t.Errorf("a node that asked while it was under way goes by %v, then by %v", under, got)
			}
		}
		if diff := cmp.Diff(step.want, answers(t, d, []transport.Identity{old, empty, other}, instance)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
	meet()
	if d.pins[2] != instance || d.pins[1] != "" {
		t.Errorf("it knows %v", d.pins)
	}
}

// TestNodeThatHasJoinedIsWaitedFor: a node that was rebuilt, joined, and is away counts
// for a purge as any other that was never heard, also with an agent that was started
// meanwhile, or was away itself and hears of it; one that never began anew does not.
func TestNodeThatHasJoinedIsWaitedFor(t *testing.T) {
	const instance = "02000000000000000000000000000000"
	cfg := testConfig(t, t.TempDir())
	members := cfg.ClusterMembers()
	self := slices.IndexFunc(members, func(m cluster.Member) bool { return m.ID == cfg.Self().ID })
	b := (self + 1) % len(members)
	members[b].Kind, members[b].Becomes, members[b].Instance = cluster.KindLearner, cluster.KindFull, instance
	state := cluster.State{Version: 7, Members: members}
	start := func(path string) *Agent {
		a := &Agent{cfg: cfg, self: members[self], logger: slog.New(slog.DiscardHandler)}
		a.data = &dataDir{path: path, pins: map[cluster.NodeID]string{}, identity: identity{NodeID: uint64(members[self].ID)}}
		a.data.lives = func(cluster.NodeID) bool { return false }
		if err := errors.Join(a.data.readPins(), a.data.readMet()); err != nil {
			t.Fatal(err)
		}
		a.board.init(cfg, a.self, "")
		a.board.met, a.board.heardOf = a.data.hasMet, a.data.heardOf
		a.board.setState(state)
		if err := a.data.expect(cluster.StatePoint{State: state}, true); err != nil {
			t.Fatal(err)
		}
		return a
	}
	leaving := func(a *Agent) bool {
		nodes := a.board.all()
		return nodes[slices.IndexFunc(nodes, func(n cluster.NodeStatus) bool { return n.ID == members[b].ID })].Leaving
	}
	path, other := t.TempDir(), t.TempDir()
	for range 2 {
		if !leaving(start(path)) {
			t.Error("it never began anew, and is waited for")
		}
	}
	a := start(path)
	if err := a.data.checkPeer(transport.Identity{Node: members[b].ID, NodeName: members[b].Name, Instance: [16]byte{2}}); err != nil {
		t.Fatal(err)
	}
	if leaving(a) || leaving(start(path)) {
		t.Error("it has begun anew, and is not waited for")
	}
	c := start(other)
	if !leaving(c) {
		t.Error("nobody has told the other one")
	}
	said := a.data.joined()
	if err := c.data.heardOf(said); err != nil || len(said) != 1 || leaving(c) || leaving(start(other)) {
		t.Errorf("told %v, %v, it is not waited for", said, err)
	}
	if err := c.data.heardOf(map[cluster.NodeID]string{members[b].ID: "of before"}); err != nil || leaving(c) {
		t.Errorf("by what was before it is not waited for: %v", err)
	}
}

// TestWeightiestRejection: a node that knows nothing goes by the newest state that is
// spoken of, and takes no instance that has been used.
func TestWeightiestRejection(t *testing.T) {
	r := func(c transport.Code, version uint64) *transport.RejectedError {
		return &transport.RejectedError{Code: c, Order: transport.Order{StateVersion: version}}
	}
	const peer, rebuild, reseed, removed = transport.CodePeer, transport.CodeRebuild, transport.CodeReseed, transport.CodeRemoved
	recovered := func(version uint64) *transport.RejectedError {
		return &transport.RejectedError{Code: transport.CodeRecovered, Order: transport.Order{Recovery: &cluster.Recovery{Version: version}}}
	}
	for _, c := range []struct {
		name string
		all  []*transport.RejectedError // the first is to win
	}{
		{"one", []*transport.RejectedError{r(rebuild, 4)}},
		{"it had its vote back since", []*transport.RejectedError{r(reseed, 6), r(rebuild, 4)}},
		{"the order is news", []*transport.RejectedError{r(rebuild, 7), r(reseed, 6), r(peer, 5)}},
		{"it was here already", []*transport.RejectedError{r(reseed, 7), r(rebuild, 7)}},
		{"it is here", []*transport.RejectedError{r(peer, 7), r(reseed, 7), r(rebuild, 7)}},
		{"a learner does not say", []*transport.RejectedError{r(rebuild, 7), r(peer, 0)}},
		{"an older agent waits", []*transport.RejectedError{r(rebuild, 7), r(reseed, 0)}},
		{"recovered without it", []*transport.RejectedError{recovered(1_000_000), r(reseed, 8)}},
		{"and taken in again", []*transport.RejectedError{r(rebuild, 1_000_001), recovered(1_000_000), r(reseed, 8)}},
		{"removed", []*transport.RejectedError{r(removed, 0), r(rebuild, 7), r(peer, 8)}},
	} {
		slices.Reverse(c.all)
		want := c.all[len(c.all)-1]
		for range c.all {
			if got := weightiest(c.all); got != want {
				t.Errorf("%s: %v with %+v", c.name, got.Code, got.Order)
			}
			c.all = append(c.all[1:], c.all[0])
		}
	}
	if got := weightiest(nil); got != nil {
		t.Errorf("nobody refuses it, and it goes by %v", got)
	}
}

// TestJoinerIsToldByAllOfThem: a node that joins and knows no state yet does not begin
// anew because one peer says so; one that knows a state has something to judge by.
func TestJoinerIsToldByAllOfThem(t *testing.T) {
	order := &transport.RejectedError{Code: transport.CodeRebuild, Order: transport.Order{StateVersion: 8, Instance: "02000000000000000000000000000000"}}
	for _, c := range []struct {
		role    cluster.Role
		version uint64
		leaves  bool
	}{{cluster.RoleJoining, 0, false}, {cluster.RoleJoining, 7, true}, {cluster.RoleReplica, 0, true}} {
		a := &Agent{cfg: testConfig(t, t.TempDir()), data: &dataDir{}, logger: slog.New(slog.DiscardHandler)}
		a.board.init(a.cfg, a.cfg.ClusterMembers()[0], "")
		state := a.board.clusterState()
		state.Version = c.version
		a.board.setState(state)
		a.board.setRole(c.role, "")
		peerHandler{a}.Rejected(2, order)
		if got := a.leaving.Load() != nil; got != c.leaves {
			t.Errorf("%s, state %d: it leaves: %t", c.role, c.version, got)
		}
	}
}

// TestShort: whoever lacks what the leader's log has no more gets nothing ever again.
func TestShort(t *testing.T) {
	n := cluster.NodeStatus{Reachable: true, Instance: "new", Role: cluster.RoleReplica, LogState: cluster.LogOK, LogLast: 98}
	for name, c := range map[string]struct {
		change func(*cluster.NodeStatus)
		want   bool
	}{
		"it lacks some":    {func(*cluster.NodeStatus) {}, true},
		"it has the last":  {func(n *cluster.NodeStatus) { n.LogLast = 99 }, false},
		"it is away":       {func(n *cluster.NodeStatus) { n.Reachable = false }, false},
		"over its old one": {func(n *cluster.NodeStatus) { n.Instance = "old" }, false},
		"it copies":        {func(n *cluster.NodeStatus) { n.Role, n.LogLast = cluster.RoleJoining, 10 }, false},
		"it has no log":    {func(n *cluster.NodeStatus) { n.LogLast = 0 }, false},
		"it is healed":     {func(n *cluster.NodeStatus) { n.LogState = cluster.LogRepairing }, false},
	} {
		n := n
		c.change(&n)
		if got := short(cluster.Member{Instance: "new"}, n, 100); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// TestOldRebuildOrderIsIgnored: a peer that lags may refuse a node by what was long
// ago; only one that knows a newer state is believed.
func TestOldRebuildOrderIsIgnored(t *testing.T) {
	for version, leaves := range map[uint64]bool{7: false, 6: false, 8: true} {
		a := &Agent{cfg: testConfig(t, t.TempDir()), data: &dataDir{}, logger: slog.New(slog.DiscardHandler)}
		a.board.init(a.cfg, a.cfg.ClusterMembers()[0], "")
		state := a.board.clusterState()
		state.Version = 7
		a.board.setState(state)
		a.rejected("b", &transport.RejectedError{Code: transport.CodeRebuild, Order: transport.Order{StateVersion: version, Instance: "02000000000000000000000000000000"}})
		if got := a.leaving.Load() != nil; got != leaves {
			t.Errorf("version %d: leaves %t", version, got)
		}
	}
}

// TestLeavingIsNotForgotten: a node that is told to go while its log is healed, or while
// it joins, goes when it is through. Nothing tells it again.
func TestLeavingIsNotForgotten(t *testing.T) {
	a := &Agent{logger: slog.New(slog.DiscardHandler)}
	order := leavingError{instance: "b7"}
	a.leave(order)
	ctx, fail := context.WithCancelCause(t.Context())
	defer fail(nil)
	a.setFail(fail)
	if got, ok := errors.AsType[*leavingError](context.Cause(ctx)); !ok || *got != order {
		t.Errorf("it ends with %v, want %+v", context.Cause(ctx), order)
	}
}

// TestSeedNote: who adds a node is told what it copies.
func TestSeedNote(t *testing.T) {
	for _, c := range []struct {
		kind  cluster.Kind
		first uint64
		data  int64
		want  string
	}{
		{cluster.KindFull, 1, 1 << 30, "it begins without a vote, and copies the log: about 64MiB"},
		{cluster.KindLogger, 7, 1 << 30, "it begins without a vote, and copies the log: about 64MiB"},
		{cluster.KindFull, 7, 1 << 30, "it begins without a vote, and copies the data of a mysqld (about 1GiB), then the log from there on (about 64MiB)"},
		{cluster.KindLearner, 7, 0, "it begins without a vote, and copies the data of a mysqld, then the log from there on (about 64MiB)"},
	} {
		if got := seedNote(c.kind, c.first, 64<<20, c.data); got != c.want {
			t.Errorf("%s, from %d: %s", c.kind, c.first, got)
		}
	}
}

// TestOtherKind: a node that was added as what it is not says so, and what to do.
func TestOtherKind(t *testing.T) {
	for _, c := range []struct {
		kind, becomes cluster.Kind
		runsMysqld    bool
		want          string
	}{
		{cluster.KindLearner, cluster.KindFull, true, ""},
		{cluster.KindLearner, cluster.KindLogger, false, ""},
		{cluster.KindLearner, "", true, ""},
		{cluster.KindLogger, "", false, ""},
		{cluster.KindLearner, cluster.KindFull, false, `it was added as a full node, and has no mysqld: it gets no vote; "quorate node promote m --kind logger" gives it one as a logger`},
		{cluster.KindLearner, cluster.KindLogger, true, `it was added as a logger, and has a mysqld: it gets no vote; "quorate node promote m" gives it one as a full node`},
	} {
		a := openLone(t)
		if !c.runsMysqld {
			a.self.Kind = cluster.KindLogger
		}
		a.followSelf(cluster.StatePoint{State: cluster.State{Members: []cluster.Member{{ID: a.self.ID, Name: "m", Kind: c.kind, Becomes: c.becomes}}}})
		if got := a.board.troubleOf(aboutKind); got != c.want {
			t.Errorf("%s to %s, mysqld %v: %q, want %q", c.kind, c.becomes, c.runsMysqld, got, c.want)
		}
	}
}
