package replay

import (
	"cmp"
	"slices"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
)

// Holder is the member that a log is too long for, by excess bytes, of those that are
// away: without it more would go, by at least half of the excess. "" = there is none:
// nobody's data are given up where that frees little or nothing, because members that
// are not away (a replica that lags) hold the log as well, or an XA transaction does.
// Nor is anybody's while it is not known what one needs: that may be next to nothing, or
// everything. Of several, one whose agent is there comes first: it is back the soonest.
// plan says what retention would remove if these were all members.
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
