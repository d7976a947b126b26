package replay

import (
	"math"
	"slices"

	"github.com/quorate/quorate/internal/cluster"
)

// Holder is the member that a log is too long for, by excess bytes: it needs the oldest
// entries, and without it more would go, by at least half of the excess. "" = there is none:
// nobody's data are given up where that frees little or nothing, because others (a
// transaction that is prepared for long, a replica that lags) hold the log as well.
// plan says what retention would remove if these were all members.
func Holder(members []cluster.NodeStatus, excess int64, plan func([]cluster.NodeStatus) cluster.PurgePlan) string {
	needs, _ := Needs(members)
	name := neediest(needs)
	with := plan(members)
	if name == "" || with.Blocked == "" {
		return ""
	}
	without := plan(slices.DeleteFunc(slices.Clone(members), func(m cluster.NodeStatus) bool { return m.Name == name }))
	if 2*(without.Bytes-with.Bytes) < excess {
		return ""
	}
	return name
}

// neediest is who needs most of the log. It is nobody while of one it is not known what
// it needs: that may be next to nothing, and to rebuild another one would free nothing.
func neediest(needs []Need) (name string) {
	from := uint64(math.MaxUint64)
	for _, n := range needs {
		if !n.Known {
			return ""
		}
		if n.From < from {
			name, from = n.Who, n.From
		}
	}
	return name
}
