package bulk

import (
	"errors"
	"slices"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/seglog"
)

// tally counts who holds a stage on disk.
type tally struct {
	self   cluster.NodeID
	voters []cluster.NodeID
	// holders are voters, each once.
	holders []cluster.NodeID
	// full are voters whose disk had no room for it at the last attempt, lost
	// those whose last attempt failed otherwise. None holds it.
	full, lost []cluster.NodeID
}

// add counts a node; one that has no vote, or was counted, changes nothing.
func (t *tally) add(id cluster.NodeID) {
	if slices.Contains(t.voters, id) && !slices.Contains(t.holders, id) {
		t.holders = append(t.holders, id)
	}
	t.tried(id, nil)
}

// tried notes how an attempt at a node ended.
func (t *tally) tried(id cluster.NodeID, err error) {
	is := func(other cluster.NodeID) bool { return other == id }
	t.full, t.lost = slices.DeleteFunc(t.full, is), slices.DeleteFunc(t.lost, is)
	switch {
	case err == nil || !slices.Contains(t.voters, id):
	case errors.Is(err, seglog.ErrFull):
		t.full = append(t.full, id)
	default:
		t.lost = append(t.lost, id)
	}
}

// began notes that a node takes the stage: it is not lost. One whose disk was
// full is so until it holds it.
func (t *tally) began(id cluster.NodeID) {
	t.lost = slices.DeleteFunc(t.lost, func(other cluster.NodeID) bool { return other == id })
}

// blockedBy returns the voters with full disks, if there is no majority without
// them and those that are lost.
func (t *tally) blockedBy() []cluster.NodeID {
	if t.reached() || len(t.voters)-len(t.full)-len(t.lost) > len(t.voters)/2 {
		return nil
	}
	return slices.Sorted(slices.Values(t.full))
}

// reached says whether this node and a majority of the voters hold the stage.
// This node is the leader, and others fetch from it.
func (t *tally) reached() bool {
	return slices.Contains(t.holders, t.self) && len(t.holders) > len(t.voters)/2
}
