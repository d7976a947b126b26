package cluster

import "slices"

// MayLeave tells whether a node that has no vote any more, or is no member, may give
// up what it has. kept says up to which index each voter keeps the state on its disk
// (status.Node.StateKept).
//
// A voter that starts again counts by what is on its disk, and that may be the old state:
// then it needs the old votes. So the change must be complete, and kept by a majority of
// the remaining voters. Those have applied it, so they hold everything before it in their
// logs: no commit rests on the node that leaves.
func (p StatePoint) MayLeave(kept map[NodeID]uint64) bool {
	voters, keep := p.State.Voters(), 0
	for _, id := range voters {
		if kept[id] >= p.Index {
			keep++
		}
	}
	return len(p.Outgoing) == 0 && keep > len(voters)/2
}

// TakenUpBy tells whether a voter that has had no leader for long should start again
// from this point, which another node keeps, in place of its own. instance is that of
// its data directory: the vote may be that of one that was made anew since.
//
// It may need that: the last voter of two has lost its power, and with it the
// knowledge that the other one has no vote any more; and that one, whose log is longer,
// neither votes for it nor stands for election. And it may: what is kept is committed,
// so a majority of these voters has everything up to it, whichever of them leads.
func (p StatePoint) TakenUpBy(id NodeID, instance string, own StatePoint) bool {
	votes := func(m Member) bool {
		return m.ID == id && m.Votes() && (m.Instance == "" || m.Instance == instance)
	}
	return p.Index > own.Index && len(p.Outgoing) == 0 && slices.ContainsFunc(p.State.Members, votes)
}
