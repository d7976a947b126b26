package cluster

import (
	"strings"
	"testing"
)

// TestMaintenanceKeepsItsPrimary: the one node that may open while maintenance is on cannot be removed,
// demoted, rebuilt, or given weight 0.
func TestMaintenanceKeepsItsPrimary(t *testing.T) {
	zero := 0
	s := testState()
	s.Maintenance = &Maintenance{By: "ann", Since: noon(), Primary: "a"}
	for _, c := range []Change{
		{Membership: &MembershipChange{Op: OpDemote, Name: "a"}},
		{Membership: &MembershipChange{Op: OpRemove, Name: "a"}},
		{Membership: &MembershipChange{Op: OpRebuild, Name: "a", Instance: "new"}},
		{Node: &NodeChange{Name: "a", Weight: &zero}},
	} {
		c.By, c.At, c.ID = "ann@db1", noon(), "1"
		if _, err := s.With(c); err == nil || !strings.Contains(err.Error(), "only node a may open") {
			t.Errorf("%s: %v", c, err)
		}
		free := s.Clone()
		free.Maintenance.Primary = "b"
		if _, err := free.With(c); err != nil {
			t.Errorf("%s, with maintenance for b: %v", c, err)
		}
	}
}

// TestDesignate: if a request for maintenance names no node, the leader may open, if it can.
func TestDesignate(t *testing.T) {
	for _, c := range []struct {
		kind   Kind
		weight int
		change MaintenanceChange
		want   string
	}{
		{KindFull, 5, MaintenanceChange{On: true}, "a"},
		{KindFull, 0, MaintenanceChange{On: true}, ""},
		{KindLogger, 0, MaintenanceChange{On: true}, ""},
		{KindFull, 5, MaintenanceChange{On: true, Primary: "b"}, "b"},
		{KindFull, 5, MaintenanceChange{}, ""},
	} {
		s := State{Version: 1, Members: []Member{{ID: 1, Name: "a", Kind: c.kind, Weight: c.weight}, {ID: 2, Name: "b", Kind: KindFull, Weight: 5}}}
		if c.change.Designate(s, 1); c.change.Primary != c.want {
			t.Errorf("a %s of weight %d leads: %q may open, want %q", c.kind, c.weight, c.change.Primary, c.want)
		}
		s.Maintenance = &Maintenance{Primary: "b"}
		again := MaintenanceChange{On: true}
		if again.Designate(s, 1); again.Primary != "" {
			t.Errorf("maintenance is on for b, and the change names %q", again.Primary)
		}
	}
}

// TestMayOpen: while maintenance is on, one node may open, or none.
func TestMayOpen(t *testing.T) {
	s := testState()
	if err := s.MayOpen("a"); err != nil {
		t.Errorf("without maintenance: %v", err)
	}
	for _, held := range []string{"a", "b", ""} {
		s.Maintenance = &Maintenance{By: "ann", Since: noon(), Primary: held}
		err := s.MayOpen("a")
		if (err == nil) != (held == "a") {
			t.Errorf("maintenance is on for %q: %v", held, err)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "maintenance is on since ") {
			t.Errorf("it says %q", err)
		}
	}
}
