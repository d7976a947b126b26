package cluster

import (
	"testing"
	"time"
)

// TestDone checks the sentence that says what a change has brought about.
func TestDone(t *testing.T) {
	s, err := testState(), error(nil)
	for _, c := range []struct {
		change Change
		want   string
	}{
		{Change{Maintenance: &MaintenanceChange{On: true, For: 2 * time.Hour, Reason: "x test"}}, "Maintenance is on until 2026-01-02 14:00:00 UTC (2h): x test."},
		{Change{Maintenance: &MaintenanceChange{On: true, Reason: "y"}}, "Maintenance is on until 2026-01-02 14:00:00 UTC: y."},
		{Change{Maintenance: &MaintenanceChange{}}, "Maintenance is off: failover is automatic again."},
		{Change{Maintenance: &MaintenanceChange{On: true}}, "Maintenance is on until it is switched off."},
		{Change{Node: &NodeChange{Name: "b", Weight: new(7), Site: new("east")}}, `Node b is set to weight 7, site "east".`},
		{Change{Durability: new(DurabilityAll)}, "The cluster is set to durability all."},
		{Change{Settings: &SettingsChange{Errant: new(ErrantRebuild)}}, "The cluster is set to errant rebuild."},
		{Change{Membership: &MembershipChange{Op: OpAdd, Name: "d", ID: 4, Peer: "d:1", Kind: KindFull}}, "Node d is added. It gets its vote, as a full node, once it has caught up."},
		{Change{Membership: &MembershipChange{Op: OpPromote, Name: "d", Kind: KindFull}}, "Node d has a vote now, as a full node."},
		{Change{Membership: &MembershipChange{Op: OpRebuild, Name: "d", Instance: "i"}}, "Node d will be rebuilt. It gets its vote back once it has caught up: see quorate status."},
		{Change{Membership: &MembershipChange{Op: OpRemove, Name: "d"}}, "Node d is removed from the cluster."},
		{Change{Membership: &MembershipChange{Op: OpAdd, Name: "e", ID: 5, Peer: "e:1", Kind: KindLearner}}, "Node e is added, as a learner."},
		{Change{Membership: &MembershipChange{Op: OpDemote, Name: "c"}}, "Node c has no vote any more: it is a learner."},
	} {
		if s, err = s.With(change(c.change)); err != nil {
			t.Fatalf("%s: %v", c.change, err)
		}
		if got := c.change.Done(s); got != c.want {
			t.Errorf("%s: %q, want %q", c.change, got, c.want)
		}
	}
}
