package cluster

import "slices"

// MayLeave tells whether a node that has lost its vote, or is no member any more, may give up its data. kept
// says up to which index each voter keeps the state on its disk (status.Node.StateKept).
//
// A voter that starts again has the state that is on its disk. That may be the old state, and then the voter
// needs the old votes. So the change must be complete, and a majority of the remaining voters must keep it on
// disk. These voters have applied it, so they hold everything before it in their logs: no commit depends on the
// node that leaves.
func (p StatePoint) MayLeave(kept map[NodeID]uint64) bool {
	voters, keep := p.State.Voters(), 0
	for _, id := range voters {
		if kept[id] >= p.Index {
			keep++
		}
	}
	return len(p.Outgoing) == 0 && keep > len(voters)/2
}

// TakenUpBy tells whether a voter that has had no leader for long should start again from this point, which
// another node keeps, in place of its own. instance names the node's data directory: the vote may belong to a
// directory that was made again since.
//
// Two cases need it. In both, one of two voters lost its power, and the other one's log is longer: so that one
// must lead, and cannot.
//
//   - The longer log belongs to a node that has lost its vote. It does not stand for election, and the voter
//     that is left has forgotten with its power that its own vote is enough.
//   - The longer log belongs to a node that was just given its vote, and has not heard that this is committed.
//     It does not stand for election, because it takes itself for a learner.
//
// It is safe: what a node keeps is committed, so a majority of the old voters has everything up to it. While the
// change is not complete (Outgoing), an election needs a majority of these, too.
func (p StatePoint) TakenUpBy(id NodeID, instance string, own StatePoint) bool {
	votes := func(m Member) bool {
		return m.ID == id && m.Votes() && (m.Instance == "" || m.Instance == instance)
	}
	return p.Index > own.Index && slices.ContainsFunc(p.State.Members, votes)
}
