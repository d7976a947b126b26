package status

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
)

// threeToPlanFor are three nodes at two sites, and their statuses after a change.
func threeToPlanFor() (before cluster.State, nodes func(change func(b, c *Node)) []Node) {
	before = cluster.NewState([]cluster.Member{
		{ID: 1, Name: "a", Kind: cluster.KindFull, Weight: 5, Site: "x"}, {ID: 2, Name: "b", Kind: cluster.KindFull, Weight: 5, Site: "y"},
		{ID: 3, Name: "c", Kind: cluster.KindFull, Weight: 5, Site: "x"},
	})
	return before, func(change func(b, c *Node)) []Node {
		list := []Node{
			{ID: 1, Name: "a", Kind: cluster.KindFull, Weight: 5, Reachable: true, Role: RolePrimary, LogLast: 9000, LogCommit: 9000},
			{ID: 2, Name: "b", Kind: cluster.KindFull, Weight: 5, Reachable: true, Role: RoleReplica, LogLast: 8990},
			{ID: 3, Name: "c", Kind: cluster.KindFull, Weight: 5, Reachable: true, Role: RoleReplica, LogLast: 9000},
		}
		change(&list[1], &list[2])
		return list
	}
}

// TestPlanChange: the warnings before a change, and which changes would stop writes.
func TestPlanChange(t *testing.T) {
	before, nodes := threeToPlanFor()
	well := nodes(func(_, _ *Node) {})
	cGone := nodes(func(_, c *Node) { c.Reachable = false })
	all, sites, waits, yes, second := cluster.DurabilityAll, cluster.DurabilitySiteMajority, time.Duration(0), true, time.Second
	for name, c := range map[string]struct {
		change cluster.Change
		nodes  []Node
		want   cluster.Impact
	}{
		"all, all there": {cluster.Change{Durability: &all}, well, cluster.Impact{Notes: []string{"after that the cluster survives 0 failures (before: 1): OKs wait for every voter (durability all)"}}},
		"all, one gone":  {cluster.Change{Durability: &all}, cGone, cluster.Impact{Stops: []string{"OKs would wait for c, which is not heard of"}}},
		"all, one behind": {cluster.Change{Durability: &all}, nodes(func(b, _ *Node) { b.LogLast = 100 }), cluster.Impact{
			Notes: []string{"after that the cluster survives 0 failures (before: 1): OKs wait for every voter (durability all)"},
			Stops: []string{"OKs would wait for b, which lacks 8900 entries"}}},
		"all, one full": {cluster.Change{Durability: &all}, nodes(func(b, _ *Node) { b.LogState = LogFull }), cluster.Impact{Stops: []string{"OKs would wait for b, which has a log that is full"}}},
		"sites, all there": {cluster.Change{Durability: &sites}, well, cluster.Impact{Notes: []string{
			"after that the cluster survives 0 failures (before: 1): OKs wait for b (durability site-majority)"}}},
		"sites, one of two in a site gone": {cluster.Change{Durability: &sites}, cGone, cluster.Impact{}},
		"sites, the other site gone": {cluster.Change{Durability: &sites}, nodes(func(b, _ *Node) { b.Reachable = false }),
			cluster.Impact{Stops: []string{"OKs would wait for b, which is not heard of"}}},
		"require-ack of one that is gone": {cluster.Change{Node: &cluster.NodeChange{Name: "c", RequireAck: &yes, DropAfter: &waits}}, cGone,
			cluster.Impact{Stops: []string{"OKs would wait for c, which is not heard of"}}},
		"require-ack that ends by itself": {cluster.Change{Node: &cluster.NodeChange{Name: "c", RequireAck: &yes, DropAfter: &second}}, cGone, cluster.Impact{}},
		"require-ack of one that is there": {cluster.Change{Node: &cluster.NodeChange{Name: "c", RequireAck: &yes}}, well, cluster.Impact{Notes: []string{
			"after that the cluster survives 0 failures (before: 1): OKs wait for c (require-ack)"}}},
		"add": {cluster.Change{Membership: &cluster.MembershipChange{Op: cluster.OpAdd, Name: "d", ID: 4, Peer: "h:1", Kind: cluster.KindFull}}, well, cluster.Impact{Notes: []string{
			"once d has caught up it votes: a majority is 3 of 4, 1 may fail (before: 2 of 3, 1 may fail)"}}},
		"add a learner": {cluster.Change{Membership: &cluster.MembershipChange{Op: cluster.OpAdd, Name: "d", ID: 4, Peer: "h:1", Kind: cluster.KindLearner}}, well, cluster.Impact{}},
		"remove": {cluster.Change{Membership: &cluster.MembershipChange{Op: cluster.OpRemove, Name: "c"}}, well, cluster.Impact{Notes: []string{
			"after that the voters are a, b: a majority is 2 of 2, 0 may fail (before: 2 of 3, 1 may fail)", "after that b could take over from the primary"}}},
		"rebuild": {cluster.Change{Membership: &cluster.MembershipChange{Op: cluster.OpRebuild, Name: "c", Instance: "new"}}, well, cluster.Impact{Notes: []string{
			"after that the voters are a, b: a majority is 2 of 2, 0 may fail (before: 2 of 3, 1 may fail)", "after that b could take over from the primary"}}},
		"rebuild one that is gone": {cluster.Change{Membership: &cluster.MembershipChange{Op: cluster.OpRebuild, Name: "c", Instance: "new"}}, cGone, cluster.Impact{Notes: []string{
			"after that the voters are a, b: a majority is 2 of 2, 0 may fail (before: 2 of 3, 0 may fail)", "c is not heard of: it is rebuilt once its agent runs"}}},
		"weight 0 of the last": {cluster.Change{Node: &cluster.NodeChange{Name: "b", Weight: new(int)}}, cGone, cluster.Impact{Notes: []string{
			"after that no other node could take over from the primary"}}},
		"maintenance": {cluster.Change{Maintenance: &cluster.MaintenanceChange{On: true}}, well, cluster.Impact{Notes: []string{
			"if the primary fails, there is no primary until it is back or maintenance is off"}}},
	} {
		c.change.ID = "x"
		after, err := before.With(c.change)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff(c.want, PlanChange(before, after, c.nodes, "a")); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	// A node whose ACK is required is rebuilt: the OKs would wait for the whole rebuild.
	required := before.Clone()
	required.Members[2].RequireAck = true
	after, err := required.With(cluster.Change{ID: "x", Membership: &cluster.MembershipChange{Op: cluster.OpRebuild, Name: "c", Instance: "new"}})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"OKs would wait for c, which gets a new copy of its data"}, PlanChange(required, after, well, "a").Stops); d != "" {
		t.Errorf("a required node is rebuilt (-want +got):\n%s", d)
	}
	// Writes wait already, so that is no objection to the change.
	before.Durability = cluster.DurabilityAll
	after = before.Clone()
	after.Members[1].Weight = 3
	if d := cmp.Diff(cluster.Impact{}, PlanChange(before, after, cGone, "a")); d != "" {
		t.Errorf("it waits already (-want +got):\n%s", d)
	}
}

// TestTooFewVoters: no vote is taken from the last but one running voter while a node copies its data. That node may copy
// from the voter that would lose its data.
func TestTooFewVoters(t *testing.T) {
	three, nodes := threeToPlanFor()
	well := append(nodes(func(_, _ *Node) {}), Node{ID: 4, Name: "d", Reachable: true})
	take := func(s cluster.State, op cluster.MembershipOp, name string) cluster.State {
		t.Helper()
		c := cluster.MembershipChange{Op: op, Name: name, Instance: "new", Peer: "h:1", ID: 4, Kind: cluster.KindLogger}
		after, err := s.With(cluster.Change{ID: string(op) + name, Membership: &c})
		if err != nil {
			t.Fatal(err)
		}
		return after
	}
	rebuilt := take(three, cluster.OpRebuild, "b")
	demoted := take(three, cluster.OpDemote, "b")
	joined := take(demoted, cluster.OpAdd, "d")
	const left = ", and only one running voter would be left (a): wait until \"quorate status\" shows node "
	for _, c := range []struct {
		name   string
		before cluster.State
		op     cluster.MembershipOp
		take   string
		want   string
	}{
		{"the first rebuild", three, cluster.OpRebuild, "b", ""},
		{"a second rebuild", rebuilt, cluster.OpRebuild, "c", "node b is being rebuilt" + left + "b as full"},
		{"a demotion", rebuilt, cluster.OpDemote, "c", "node b is being rebuilt" + left + "b as full"},
		{"a removal", rebuilt, cluster.OpRemove, "c", "node b is being rebuilt" + left + "b as full"},
		{"the same once more", rebuilt, cluster.OpRebuild, "b", ""},
		{"its removal", rebuilt, cluster.OpRemove, "b", ""},
		{"one of two, nobody joins", demoted, cluster.OpRebuild, "c", ""},
		{"one of two, a logger joins", joined, cluster.OpRebuild, "c", "node d joins" + left + "d as logger"},
	} {
		if got := PlanChange(c.before, take(c.before, c.op, c.take), well, "a").TooFew; got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	// A node that joins may never come, so its removal is the way on.
	never := take(three, cluster.OpAdd, "d")
	for left, nodes := range map[string][]Node{
		"only one running voter would be left (a)": nodes(func(_, c *Node) { c.Reachable = false }),
		"no running voter would be left":           nil,
	} {
		want := "node d joins, and " + left + `: wait until "quorate status" shows node d as logger; it is not heard of: if it never comes, remove it first (quorate node remove d)`
		if got := PlanChange(never, take(never, cluster.OpRebuild, "b"), nodes, "a").TooFew; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestLongState: from half of the bound on, a change of the cluster state says so.
func TestLongState(t *testing.T) {
	before, nodes := threeToPlanFor()
	long := before.Clone()
	long.Removed = make([]cluster.NodeID, 20_000)
	if notes := PlanChange(before, long, nodes(func(_, _ *Node) {}), "a").Notes; len(notes) != 1 || !strings.Contains(notes[0], "has 39 KiB, and at most 64") {
		t.Errorf("%v", notes)
	}
}

// TestPlanCountsWhoRuns: a node that is down is not one of those that may still fail.
func TestPlanCountsWhoRuns(t *testing.T) {
	before, nodes := threeToPlanFor()
	cGone := nodes(func(_, c *Node) { c.Reachable = false })
	for name, c := range map[string]struct {
		change cluster.Change
		nodes  []Node
		want   cluster.Impact
	}{
		"remove one that is gone": {cluster.Change{Membership: &cluster.MembershipChange{Op: cluster.OpRemove, Name: "c"}}, cGone, cluster.Impact{Notes: []string{
			"after that the voters are a, b: a majority is 2 of 2, 0 may fail (before: 2 of 3, 0 may fail)"}}},
		"remove the other one": {cluster.Change{Membership: &cluster.MembershipChange{Op: cluster.OpRemove, Name: "b"}}, cGone, cluster.Impact{Notes: []string{
			"after that the voters are a, c: a majority is 2 of 2, writes cannot go on (before: 2 of 3, 0 may fail); c is not heard of",
			"after that no other node could take over from the primary"}}},
		"add, one is gone": {cluster.Change{Membership: &cluster.MembershipChange{Op: cluster.OpAdd, Name: "d", ID: 4, Peer: "h:1", Kind: cluster.KindLogger}}, cGone, cluster.Impact{Notes: []string{
			"once d has caught up it votes: a majority is 3 of 4, 0 may fail (before: 2 of 3, 0 may fail); c is not heard of"}}},
		"weight 0 of the primary": {cluster.Change{Node: &cluster.NodeChange{Name: "a", Weight: new(int)}}, nodes(func(_, _ *Node) {}), cluster.Impact{Notes: []string{
			"a stays the primary until it fails or is moved (quorate switchover); with weight 0 it does not become the primary again"}}},
	} {
		c.change.ID = "x"
		after, err := before.With(c.change)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff(c.want, PlanChange(before, after, c.nodes, "a")); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	// A learner gets a vote while a voter is away: a majority of four is three.
	withD := before.Clone()
	withD.Members = append(withD.Members, cluster.Member{ID: 4, Name: "d", Kind: cluster.KindLearner})
	promoted, err := withD.With(cluster.Change{ID: "x", Membership: &cluster.MembershipChange{Op: cluster.OpPromote, Name: "d", Kind: cluster.KindLogger}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"after that the voters are a, b, c, d: a majority is 3 of 4, 0 may fail (before: 2 of 3, 0 may fail); c is not heard of"}
	if d := cmp.Diff(want, PlanChange(withD, promoted, append(cGone, Node{ID: 4, Name: "d", Reachable: true, Role: RoleLogger, LogLast: 9000}), "a").Notes); d != "" {
		t.Errorf("promoted (-want +got):\n%s", d)
	}
}

// TestWithoutNode: no node takes over while maintenance is on, or if no node could.
func TestWithoutNode(t *testing.T) {
	s := sightOf(t, "a:primary b:replica c:replica:w0")
	for _, c := range []struct {
		name string
		held *cluster.Maintenance
		b    Role
		want []string
	}{
		{"a", nil, RoleReplica, []string{"the sessions of the primary, a, end in doubt, and another node takes over", "after that b could take over from the primary"}},
		{"a", nil, RoleFenced, []string{"the sessions of the primary, a, end in doubt", "after that no other node could take over from the primary"}},
		{"a", &cluster.Maintenance{Primary: "a"}, RoleReplica, []string{"the sessions of the primary, a, end in doubt, and there is no primary until maintenance is off, or a switchover",
			"no node takes over by itself while maintenance is on"}},
		{"b", nil, RoleReplica, []string{"after that no other node could take over from the primary"}},
		{"b", &cluster.Maintenance{Primary: "a"}, RoleReplica, []string{"no node takes over by itself while maintenance is on"}},
	} {
		s.Nodes[1].Role = c.b
		if d := cmp.Diff(c.want, WithoutNode(Sight{State: cluster.State{Maintenance: c.held}, Primary: "a", Nodes: s.Nodes}, c.name)); d != "" {
			t.Errorf("%s, maintenance %v, b is %s (-want +got):\n%s", c.name, c.held, c.b, d)
		}
	}
}

// TestWithoutNodeNorPrimary: there is no primary to take over from.
func TestWithoutNodeNorPrimary(t *testing.T) {
	s := sightOf(t, "a:replica b:replica c:replica:away")
	for name, want := range map[string]string{
		"a": "there is no primary now: after that b could become it",
		"c": "there is no primary now: after that a, b could become it",
	} {
		if d := cmp.Diff([]string{want}, WithoutNode(Sight{Nodes: s.Nodes}, name)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// TestRestartNotes: while mysqld restarts, the agent still votes, but the node could not take over.
func TestRestartNotes(t *testing.T) {
	const stays = "a stays the leader: its sessions end, and writes wait until its mysqld is back"
	only := func(name string) string {
		return "meanwhile the cluster survives no failure: 3 of 3 voters run; maintenance is on, no node but " + name + " may be the primary"
	}
	for _, c := range []struct {
		sight, name, primary string
		with                 func(*Sight)
		want                 []string
	}{
		{"a:primary b:replica c:replica", "b", "", nil, []string{"meanwhile the cluster survives the failure of any 1 node: 3 of 3 voters run"}},
		{"a:primary b:replica c:replica:away", "b", "", nil, []string{"meanwhile the cluster survives no further failure: 2 of 3 voters run, c is not heard of"}},
		{"a:primary b:replica c:logger", "b", "", nil, []string{"meanwhile the cluster survives no failure: 3 of 3 voters run; without a no node could be the primary"}},
		{"a:primary b:replica c:replica:away", "a", "a", nil, []string{stays, "meanwhile the cluster survives no further failure: 2 of 3 voters run, c is not heard of"}},
		{"a:primary b:logger c:logger", "a", "a", nil, []string{stays, "meanwhile writes cannot go on: 3 of 3 voters run"}},
		{"a:primary b:replica c:replica", "a", "b", nil, []string{"meanwhile the cluster survives the failure of any 1 node: 3 of 3 voters run"}},
		{"a:primary b:replica c:replica", "a", "b", maintenanceOf("a"), []string{only("b")}},
		{"a:primary b:replica c:replica", "c", "", maintenanceOf("a"), []string{only("a")}},
		{"a:primary b:replica c:replica", "a", "a", maintenanceOf("a"), []string{stays, "meanwhile writes cannot go on: 3 of 3 voters run"}},
	} {
		s := sightOf(t, c.sight)
		if c.with != nil {
			c.with(&s)
		}
		held := s.State.Maintenance
		if d := cmp.Diff(c.want, RestartNotes(s, c.name, c.primary)); d != "" {
			t.Errorf("%s, %s (-want +got):\n%s", c.sight, c.name, d)
		}
		if s.Nodes[0].Role != RolePrimary || held != nil && held.Primary != "a" {
			t.Errorf("%s: the sight was changed", c.sight)
		}
	}
}
