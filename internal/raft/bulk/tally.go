package bulk

import (
	"errors"
	"slices"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
)

// failuresMin is how many pushes to a node must fail in a row before people are told. A push over a lost
// connection is tried again at once, and is no news.
const failuresMin = 3

// Tally counts which nodes hold a stage on disk, and says to which peers it has to be pushed. It keeps what is
// known of every node, because the voters may change while a stage is under way.
type Tally struct {
	self cluster.NodeID
	// voters are the present voters. outgoing are the old voters while a change of the voters is not complete:
	// then a majority of both is needed.
	voters, outgoing []cluster.NodeID
	// holders are nodes that hold the stage, each once.
	holders []cluster.NodeID
	// full are nodes whose disk had no room for the stage at the last attempt. lost are nodes whose last
	// attempt failed for another reason. No node in these lists holds the stage.
	full, lost []cluster.NodeID
	// failures has the lost nodes, and nodes that have begun to take the stage again.
	failures map[cluster.NodeID]failures
	// pushed are the peers to which the stage is being pushed, or was pushed and need not be again.
	pushed []cluster.NodeID
	// reached: this node and a majority held the stage at one time.
	reached bool
}

// failures counts the pushes to one node that failed in a row. err is the last error.
type failures struct {
	times int
	err   error
}

// NewTally returns the tally of a stage of node self. No node holds it yet.
func NewTally(self cluster.NodeID) Tally { return Tally{self: self} }

// SetMembers counts by these voters from now on, and returns the peers to which the stage has to be pushed.
// These are the peers to which it is not being pushed, and those that hold it but were given a vote or lost it
// meanwhile. The second group does not count as holders any more: a node that is rebuilt has the same id, but
// not its stages. To a node that is no member any more the push goes on, and counts for nothing.
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

// Held notes that a node holds the stage.
func (t *Tally) Held(id cluster.NodeID) {
	if !slices.Contains(t.holders, id) {
		t.holders = append(t.holders, id)
	}
	t.tried(id, nil)
	t.look()
}

// tried notes how an attempt to push to a node ended.
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

// began notes that a node takes the stage, so it is not lost. A node whose disk was full counts as full until
// it holds the stage.
func (t *Tally) began(id cluster.NodeID) {
	t.lost = slices.DeleteFunc(t.lost, func(other cluster.NodeID) bool { return other == id })
}

// votes tells whether a node is in one of the groups whose majority counts.
func (t *Tally) votes(id cluster.NodeID) bool {
	return slices.Contains(t.voters, id) || slices.Contains(t.outgoing, id)
}

// blocked says what keeps the stage from a majority. full: voters with full disks, if there is no majority
// without them and the lost nodes. failing: voters to which pushes fail again and again for another reason, if
// there is no majority without them and the full nodes. why is the error of one of these.
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

// Reached tells whether this node and a majority of the voters held the stage at one time. It stays true: the
// naming entry may be under way.
func (t *Tally) Reached() bool { return t.reached }

// look notes whether that is true now. This node must hold the stage, too: it is the leader, and others fetch
// from it.
func (t *Tally) look() {
	holds := func(id cluster.NodeID) bool { return slices.Contains(t.holders, id) }
	t.reached = t.reached || t.votes(t.self) && holds(t.self) && cluster.Majority(t.voters, t.outgoing, holds)
}
