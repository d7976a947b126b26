package bulk

import (
	"slices"

	"github.com/quorate/quorate/internal/cluster"
)

// tally counts who holds a stage on disk.
type tally struct {
	self   cluster.NodeID
	voters []cluster.NodeID
	// holders are voters, each once.
	holders []cluster.NodeID
}

// add counts a node; one that has no vote, or was counted, changes nothing.
func (t *tally) add(id cluster.NodeID) {
	if slices.Contains(t.voters, id) && !slices.Contains(t.holders, id) {
		t.holders = append(t.holders, id)
	}
}

// reached says whether this node and a majority of the voters hold the stage.
// This node is the leader, and others fetch from it.
func (t *tally) reached() bool {
	return slices.Contains(t.holders, t.self) && len(t.holders) > len(t.voters)/2
}
