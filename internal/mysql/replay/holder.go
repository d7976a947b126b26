package replay

import (
	"cmp"
	"slices"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
)

// Holder names a member that is away and keeps the log too long. excess is by how many bytes
// the log is too long: without this member retention would remove at least half of the excess
// more. "" = there is no such member. So no member's data are given up where that would free
// little, because members that are not away (a replica that lags) or an XA transaction need the
// log, too; and none while the needs of any member are not known. Of several members, one whose
// agent answers comes first, because it will be back the soonest. plan returns what retention
// would remove if these were all members.
func Holder(members []status.Node, excess int64, away func(name string) bool, plan func([]status.Node) cluster.PurgePlan) string {
	needs, _ := Needs(members)
	if slices.ContainsFunc(needs, func(n Need) bool { return !n.Known }) {
		return ""
	}
	from := map[string]uint64{}
	for _, n := range needs {
		from[n.Who] = n.From
	}
	var here, gone []status.Node
	for _, m := range members {
		if away(m.Name) {
			gone = append(gone, m)
		} else {
			here = append(here, m)
		}
	}
	slices.SortStableFunc(gone, func(a, b status.Node) int { return cmp.Compare(from[a.Name], from[b.Name]) })
	slices.SortStableFunc(gone, func(a, b status.Node) int {
		switch {
		case a.Reachable == b.Reachable:
			return 0
		case a.Reachable:
			return -1
		}
		return 1
	})
	without := plan(here)
	for _, m := range gone {
		with := plan(append(slices.Clone(here), m))
		if with.Blocked != "" && 2*(without.Bytes-with.Bytes) >= excess {
			return m.Name
		}
	}
	return ""
}
