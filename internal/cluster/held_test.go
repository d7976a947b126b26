package cluster

import (
	"strings"
	"testing"
)

// TestMaintenanceKeepsItsPrimary: the one node that may open while maintenance is on
// is neither removed nor demoted, rebuilt, or given weight 0.
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
