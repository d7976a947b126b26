package bulk

import (
	"errors"
	"slices"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
)

// failuresMin is how many pushes to a node must fail in a row before people are told:
// a lost connection is tried again at once, and is no news.
const failuresMin = 3

// Tally counts who holds a stage on disk, and says to whom it has to be pushed. It keeps
// what is known of every node: who votes may change while a stage is under way.
type Tally struct {
	self cluster.NodeID
	// voters are the present ones. outgoing are the old voters while a change of
	// them is not complete: then a majority of both is needed.
	voters, outgoing []cluster.NodeID
	// holders are nodes that hold it, each once.
	holders []cluster.NodeID
	// full are nodes whose disk had no room for it at the last attempt, lost those
	// whose last attempt failed otherwise. None holds it.
	full, lost []cluster.NodeID
	// failures are those of the lost, and of nodes that take it once more.
	failures map[cluster.NodeID]failures
	// pushed are the peers to which it is pushed, or was, and need not be again.
	pushed []cluster.NodeID
	// reached: this node and a majority held it once.
	reached bool
}

// failures are pushes to one node that failed in a row, and why the last one did.
type failures struct {
	times int
	err   error
}

// NewTally returns the tally of a stage of the node self, which nobody holds.
func NewTally(self cluster.NodeID) Tally { return Tally{self: self} }

// SetMembers counts by these voters from now on, and returns the peers to push the stage
// to: those to which it is not pushed, and again those that hold it and were given a vote,
// or lost it. They no longer count as holders: a node that is rebuilt has its id, but not its
// stages. To a node that is no member any more the push goes on, and counts for nothing.
func (t *Tally) SetMembers(voters, outgoing, peers []cluster.NodeID) (push []cluster.NodeID) {
	before := Tally{voters: t.voters, outgoing: t.outgoing}
	t.voters, t.outgoing = voters, outgoing
	t.holders = slices.DeleteFunc(t.holders, func(id cluster.NodeID) bool {
		if id == t.self || before.votes(id) == t.votes(id) {
			return false
		}
		t.pushed = slices.DeleteFunc(t.pushed, func(other cluster.NodeID) bool { return other == id })
		return true
	})
	t.look()
	for _, id := range peers {
		if !slices.Contains(t.pushed, id) {
			push = append(push, id)
		}
	}
	t.pushed = append(t.pushed, push...)
	return push
}

// Held counts a node that holds the stage.
func (t *Tally) Held(id cluster.NodeID) {
	if !slices.Contains(t.holders, id) {
		t.holders = append(t.holders, id)
	}
	t.tried(id, nil)
	t.look()
}

// tried notes how an attempt at a node ended.
func (t *Tally) tried(id cluster.NodeID, err error) {
	is := func(other cluster.NodeID) bool { return other == id }
	t.full, t.lost = slices.DeleteFunc(t.full, is), slices.DeleteFunc(t.lost, is)
	before := t.failures[id].times
	delete(t.failures, id)
	switch {
	case err == nil:
	case errors.Is(err, seglog.ErrFull):
		t.full = append(t.full, id)
	default:
		t.lost = append(t.lost, id)
		if t.failures == nil {
			t.failures = map[cluster.NodeID]failures{}
		}
		t.failures[id] = failures{before + 1, err}
	}
}

// began notes that a node takes the stage: it is not lost. One whose disk was
// full is so until it holds it.
func (t *Tally) began(id cluster.NodeID) {
	t.lost = slices.DeleteFunc(t.lost, func(other cluster.NodeID) bool { return other == id })
}

// votes tells whether a node is one of those whose majority counts.
func (t *Tally) votes(id cluster.NodeID) bool {
	return slices.Contains(t.voters, id) || slices.Contains(t.outgoing, id)
}

// blocked says what keeps the stage from a majority: the voters with full disks,
// if there is none without them and those that are lost; and the voters to which
// pushes fail otherwise, again and again, if there is none without these, too. why
// is one of their errors.
func (t *Tally) blocked() (full, failing []cluster.NodeID, why error) {
	if t.reached {
		return nil, nil, nil
	}
	fails := func(id cluster.NodeID) bool { return t.failures[id].times >= failuresMin }
	could := func(id cluster.NodeID) bool { return !slices.Contains(t.full, id) && !slices.Contains(t.lost, id) }
	if !cluster.Majority(t.voters, t.outgoing, could) {
		for _, id := range t.full {
			if t.votes(id) {
				full = append(full, id)
			}
		}
	}
	if !cluster.Majority(t.voters, t.outgoing, func(id cluster.NodeID) bool { return !slices.Contains(t.full, id) && !fails(id) }) {
		for id := range t.failures {
			if t.votes(id) && fails(id) {
				failing = append(failing, id)
			}
		}
	}
	slices.Sort(full)
	slices.Sort(failing)
	if len(failing) > 0 {
		why = t.failures[failing[0]].err
	}
	return full, failing, why
}

// Reached tells whether this node and a majority of the voters held the stage at once.
// That counts for good: its naming entry may be under way.
func (t *Tally) Reached() bool { return t.reached }

// look notes whether they do now. This node is the leader, and others fetch from it.
func (t *Tally) look() {
	holds := func(id cluster.NodeID) bool { return slices.Contains(t.holders, id) }
	t.reached = t.reached || t.votes(t.self) && holds(t.self) && cluster.Majority(t.voters, t.outgoing, holds)
}
