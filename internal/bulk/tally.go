package bulk

import (
	"errors"
	"slices"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/seglog"
)

// failuresMin is how many pushes to a node must fail in a row before people are told:
// a lost connection is tried again at once, and is no news.
const failuresMin = 3

// tally counts who holds a stage on disk. It keeps what is known of every node: who
// votes may change while a stage is under way.
type tally struct {
	self cluster.NodeID
	// voters are those of now. outgoing are the voters of before while a change of
	// them is not complete: then a majority of both is needed.
	voters, outgoing []cluster.NodeID
	// holders are nodes that hold it, each once.
	holders []cluster.NodeID
	// full are nodes whose disk had no room for it at the last attempt, lost those
	// whose last attempt failed otherwise. None holds it.
	full, lost []cluster.NodeID
	// failures are those of the lost, and of nodes that take it once more.
	failures map[cluster.NodeID]failures
}

// failures are pushes to one node that failed in a row, and why the last one did.
type failures struct {
	times int
	err   error
}

// setVoters counts by these voters from now on. Peers that were given a vote, or lost
// it, count no longer as holders, and are returned: one that is rebuilt has its id, and
// not its stages.
func (t *tally) setVoters(voters, outgoing []cluster.NodeID) (forgotten []cluster.NodeID) {
	before := tally{voters: t.voters, outgoing: t.outgoing}
	t.voters, t.outgoing = voters, outgoing
	t.holders = slices.DeleteFunc(t.holders, func(id cluster.NodeID) bool {
		if id == t.self || before.votes(id) == t.votes(id) {
			return false
		}
		forgotten = append(forgotten, id)
		return true
	})
	return forgotten
}

// add counts a node that holds the stage.
func (t *tally) add(id cluster.NodeID) {
	if !slices.Contains(t.holders, id) {
		t.holders = append(t.holders, id)
	}
	t.tried(id, nil)
}

// tried notes how an attempt at a node ended.
func (t *tally) tried(id cluster.NodeID, err error) {
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
func (t *tally) began(id cluster.NodeID) {
	t.lost = slices.DeleteFunc(t.lost, func(other cluster.NodeID) bool { return other == id })
}

// votes tells whether a node is one of those whose majority counts.
func (t *tally) votes(id cluster.NodeID) bool {
	return slices.Contains(t.voters, id) || slices.Contains(t.outgoing, id)
}

// blocked says what keeps the stage from a majority: the voters with full disks,
// if there is none without them and those that are lost; and the voters to which
// pushes fail otherwise, again and again, if there is none without these, too. why
// is one of their errors.
func (t *tally) blocked() (full, failing []cluster.NodeID, why error) {
	if t.reached() {
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

// reached says whether this node and a majority of the voters hold the stage.
// This node is the leader, and others fetch from it.
func (t *tally) reached() bool {
	holds := func(id cluster.NodeID) bool { return slices.Contains(t.holders, id) }
	return t.votes(t.self) && holds(t.self) && cluster.Majority(t.voters, t.outgoing, holds)
}
