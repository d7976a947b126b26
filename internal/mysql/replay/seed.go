package replay

import (
	"slices"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/seglog"
)

// SeedSegment chooses the segment with which the log of a node that joins begins: the
// newest segment that is not behind anything that another member may still need, as for a
// purge. So the new node has everything that it is asked for later. nodes are the other members,
// own is what this node's cluster state needs, committed is the last committed index.
func SeedSegment(segments []seglog.SegmentInfo, nodes []status.Node, own Need, committed uint64) (at int) {
	if !slices.ContainsFunc(nodes, func(n status.Node) bool { return n.Mysqld != status.MysqldNone }) {
		return 0 // loggers alone: no mysqld's data could be copied, so the node takes all that there is
	}
	needs, _ := Needs(nodes)
	needs = append(needs, own)
	for i, s := range segments {
		needed := slices.ContainsFunc(needs, func(n Need) bool { return !n.Known || n.From < s.FirstIndex })
		if needed || s.FirstIndex > committed {
			break
		}
		at = i
	}
	return at
}
