package cluster

import (
	"fmt"

	"github.com/quorate/quorate/internal/config/units"
)

// Done says in one sentence what a change has done; s is the state after it.
func (c Change) Done(s State) string {
	switch {
	case c.Node != nil:
		return fmt.Sprintf("Node %s is set to %s.", c.Node.Name, c.Node.settings())
	case c.Maintenance != nil:
		return c.Maintenance.done(s)
	case c.Durability != nil:
		return fmt.Sprintf("The cluster is set to durability %s.", *c.Durability)
	case c.Settings != nil:
		return fmt.Sprintf("The cluster is set to %s.", c.Settings)
	case c.Membership != nil:
		return c.Membership.done(s)
	case c.Variables != nil:
		return fmt.Sprintf("It is done: %s.", c.Variables)
	case c.Follow != nil:
		return c.Follow.done()
	case c.Site != nil:
		return c.Site.done()
	}
	return ""
}

func (c MaintenanceChange) done(s State) string {
	m := s.Maintenance
	if m == nil {
		return "Maintenance is off: failover is automatic again."
	}
	text := "Maintenance is on until it is switched off"
	switch {
	case !m.Until.IsZero() && c.For > 0:
		text = fmt.Sprintf("Maintenance is on until %s (%s)", units.Time(m.Until), units.Duration(c.For))
	case !m.Until.IsZero():
		text = "Maintenance is on until " + units.Time(m.Until)
	}
	if m.Reason != "" {
		text += ": " + m.Reason
	}
	return text + "."
}

func (c MembershipChange) done(s State) string {
	switch m, err := s.Member(c.Name); {
	case err != nil:
		return fmt.Sprintf("Node %s is removed from the cluster.", c.Name)
	case c.Op == OpAdd && m.Becomes != "":
		return fmt.Sprintf("Node %s is added. It gets its vote, as a %s node, once it has caught up.", c.Name, m.Becomes)
	case c.Op == OpAdd:
		return fmt.Sprintf("Node %s is added, as a learner.", c.Name)
	case c.Op == OpPromote:
		return fmt.Sprintf("Node %s has a vote now, as a %s node.", c.Name, m.Kind)
	case c.Op == OpRebuild:
		return fmt.Sprintf("Node %s will be rebuilt. It gets its vote back once it has caught up: see quorate status.", c.Name)
	}
	return fmt.Sprintf("Node %s has no vote any more: it is a learner.", c.Name)
}
