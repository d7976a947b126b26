package status

import (
	"fmt"
	"slices"
	"strings"
)

// TimeZone is the time zone of a mysqld.
type TimeZone struct {
	// Global is its time_zone; SYSTEM = the zone of its host.
	Global string `json:"global"`
	// January and July are the offsets from UTC of its host's zone, such as +01:00.
	January string `json:"january"`
	July    string `json:"july"`
	// Rules is a digest of the offsets of its host's zone in all weeks from 2000 to 2037. Zones of several names
	// may have the same rules.
	Rules string `json:"rules"`
}

// zoneSystem is the time_zone of a mysqld that has the zone of its host.
const zoneSystem = "SYSTEM"

// String says what the host's zone is.
func (z TimeZone) String() string {
	if z.January == z.July {
		return z.January
	}
	return fmt.Sprintf("%s, in July %s", z.January, z.July)
}

// TimeZones says that the nodes' hosts have different time zones where that matters; "" = they have one, or it
// does not matter. TimeZonesRemedy is what to do.
//
// A statement of a session whose time_zone is SYSTEM is replicated with that word, so DDL gives times the
// values of each node's own zone. Rows are not concerned: they are replicated with their values. The zone of
// each node counts, also of one that is never the primary, as soon as the time_zone of any node is SYSTEM.
func (c Cluster) TimeZones() string {
	type group struct {
		zone  TimeZone
		nodes []string
	}
	var groups []group
	matters := false
	for _, n := range c.Nodes {
		if n.TimeZone == nil {
			continue // it has no mysqld, has not had one yet, or its quorate is older
		}
		matters = matters || n.TimeZone.Global == zoneSystem
		i := slices.IndexFunc(groups, func(g group) bool { return g.zone.Rules == n.TimeZone.Rules })
		if i < 0 {
			i = len(groups)
			groups = append(groups, group{zone: *n.TimeZone})
		}
		groups[i].nodes = append(groups[i].nodes, n.Name)
	}
	if !matters || len(groups) < 2 {
		return ""
	}
	var texts []string
	for _, g := range groups {
		texts = append(texts, fmt.Sprintf("%s: %v", list(g.nodes, "and"), g.zone))
	}
	return fmt.Sprintf("time_zone is SYSTEM, and the hosts' zones differ (%s): DDL may store other times on each node", strings.Join(texts, "; "))
}

// TimeZonesRemedy says what to do about different time zones.
const TimeZonesRemedy = "set one zone on all hosts, or an offset such as default_time_zone = \"+02:00\" in [mysql.variables] of all nodes, and restart the agents"
