package cluster

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestPlanChange: what is said before a change, and what would stop writes.
func TestPlanChange(t *testing.T) {
	before := NewState([]Member{
		{ID: 1, Name: "a", Kind: KindFull, Weight: 5, Site: "x"}, {ID: 2, Name: "b", Kind: KindFull, Weight: 5, Site: "y"},
		{ID: 3, Name: "c", Kind: KindFull, Weight: 5, Site: "x"},
	})
	nodes := func(change func(b, c *NodeStatus)) []NodeStatus {
		list := []NodeStatus{
			{ID: 1, Name: "a", Kind: KindFull, Weight: 5, Reachable: true, Role: RolePrimary, LogLast: 9000, LogCommit: 9000},
			{ID: 2, Name: "b", Kind: KindFull, Weight: 5, Reachable: true, Role: RoleReplica, LogLast: 8990},
			{ID: 3, Name: "c", Kind: KindFull, Weight: 5, Reachable: true, Role: RoleReplica, LogLast: 9000},
		}
		change(&list[1], &list[2])
		return list
	}
	well := nodes(func(_, _ *NodeStatus) {})
	cGone := nodes(func(_, c *NodeStatus) { c.Reachable = false })
	all, sites, waits, yes, second := DurabilityAll, DurabilitySiteMajority, time.Duration(0), true, time.Second
	for name, c := range map[string]struct {
		change Change
		nodes  []NodeStatus
		want   Plan
	}{
		"all, all there":                   {Change{Durability: &all}, well, Plan{}},
		"all, one gone":                    {Change{Durability: &all}, cGone, Plan{Stops: []string{"OKs would wait for c, which is not heard of"}}},
		"all, one behind":                  {Change{Durability: &all}, nodes(func(b, _ *NodeStatus) { b.LogLast = 100 }), Plan{Stops: []string{"OKs would wait for b, which lacks 8900 entries"}}},
		"all, one full":                    {Change{Durability: &all}, nodes(func(b, _ *NodeStatus) { b.LogState = LogFull }), Plan{Stops: []string{"OKs would wait for b, which has a log that is full"}}},
		"sites, one of two in a site gone": {Change{Durability: &sites}, cGone, Plan{}},
		"sites, the other site gone": {Change{Durability: &sites}, nodes(func(b, _ *NodeStatus) { b.Reachable = false }),
			Plan{Stops: []string{"OKs would wait for b, which is not heard of"}}},
		"require-ack of one that is gone": {Change{Node: &NodeChange{Name: "c", RequireAck: &yes, DropAfter: &waits}}, cGone,
			Plan{Stops: []string{"OKs would wait for c, which is not heard of"}}},
		"require-ack that ends by itself": {Change{Node: &NodeChange{Name: "c", RequireAck: &yes, DropAfter: &second}}, cGone, Plan{}},
		"remove": {Change{Membership: &MembershipChange{Op: OpRemove, Name: "c"}}, well, Plan{Notes: []string{
			"a, b vote then: a majority is 2 of 2, 0 may fail (now 2 of 3, 1 may fail)", "b could take over from the primary then"}}},
		"weight 0 of the last": {Change{Node: &NodeChange{Name: "b", Weight: new(int)}}, cGone, Plan{Notes: []string{
			"no other node could take over from the primary then"}}},
		"maintenance": {Change{Maintenance: &MaintenanceChange{On: true}}, well, Plan{Notes: []string{
			"if the primary fails there is none until it is back, or maintenance is off"}}},
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
	// A node that OKs wait for is made anew: they would wait that long.
	required := before.Clone()
	required.Members[2].RequireAck = true
	after, err := required.With(Change{ID: "x", Membership: &MembershipChange{Op: OpRebuild, Name: "c", Instance: "new"}})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"OKs would wait for c, which has its data made anew"}, PlanChange(required, after, well, "a").Stops); d != "" {
		t.Errorf("a required node is rebuilt (-want +got):\n%s", d)
	}
	// What waits already is no reason to keep anything from being done.
	before.Durability = DurabilityAll
	after = before.Clone()
	after.Members[1].Weight = 3
	if d := cmp.Diff(Plan{}, PlanChange(before, after, cGone, "a")); d != "" {
		t.Errorf("it waits already (-want +got):\n%s", d)
	}
}

// TestWithoutNode: nobody takes over while maintenance is on, nor where nobody could.
func TestWithoutNode(t *testing.T) {
	s := sightOf(t, "a:primary b:replica c:replica:w0")
	for _, c := range []struct {
		name string
		held *Maintenance
		b    Role
		want []string
	}{
		{"a", nil, RoleReplica, []string{"a is the primary: its sessions end, in doubt, and another node takes over", "b could take over from the primary then"}},
		{"a", nil, RoleFenced, []string{"a is the primary: its sessions end, in doubt", "no other node could take over from the primary then"}},
		{"a", &Maintenance{Primary: "a"}, RoleReplica, []string{"a is the primary: its sessions end, in doubt, and there is no primary until maintenance is off, or a switchover",
			"no node takes over by itself while maintenance is on"}},
		{"b", nil, RoleReplica, []string{"no other node could take over from the primary then"}},
		{"b", &Maintenance{Primary: "a"}, RoleReplica, []string{"no node takes over by itself while maintenance is on"}},
	} {
		s.Nodes[1].Role = c.b
		if d := cmp.Diff(c.want, WithoutNode(Status{Primary: "a", Nodes: s.Nodes, Maintenance: c.held}, c.name)); d != "" {
			t.Errorf("%s, maintenance %v, b is %s (-want +got):\n%s", c.name, c.held, c.b, d)
		}
	}
}
