package membership

import (
	"slices"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/raft/transport"
)

// Departure is why a node cannot go on as it is, and how its next life begins. The zero
// value: the cluster has removed it.
type Departure struct {
	// Instance is the id of the new data directory if the node is rebuilt, else "".
	Instance string
	// Superseded is the recovery without this node; nil = there was none.
	Superseded *cluster.Recovery
	// State is the cluster state from which the node starts again; nil = its own.
	State *cluster.StatePoint
}

// Error says what becomes of the node.
func (d *Departure) Error() string {
	switch {
	case d.Superseded != nil:
		return "the cluster was recovered without this node"
	case d.State != nil:
		return "this node has no leader, and another node has a newer voter list: this node starts again with that list"
	case d.Instance == "":
		return "this node was removed from the cluster"
	}
	return "this node is rebuilt: it starts again with a new copy of the data"
}

// Follow returns the departure that the cluster state on a node's own disk asks for; nil =
// the node stays. kept says up to which index each voter keeps the state on its disk
// (status.Node.StateKept): a node leaves only once a majority knows that it is not needed.
func Follow(p cluster.StatePoint, self Self, kept map[cluster.NodeID]uint64) *Departure {
	m, ok := p.State.MemberByID(self.ID)
	removed := slices.Contains(p.State.Removed, self.ID)
	rebuilt := ok && !m.Votes() && m.Instance != "" && m.Instance != self.Instance && !self.Fenced
	if !removed && !rebuilt || !p.MayLeave(kept) {
		return nil
	}
	return &Departure{Instance: m.Instance}
}

// Former returns which nodes this node, by a cluster state, tells that they are members no
// more. kept: the state is on this node's disk. See package doc.
func Former(s cluster.State, kept bool, self cluster.NodeID) transport.Former {
	f := transport.Former{Recovery: s.Recovered}
	if kept && slices.Contains(s.Voters(), self) {
		f.Removed = s.Removed
	}
	f.Keys = map[cluster.Key]cluster.NodeID{}
	for _, keys := range []map[cluster.NodeID]cluster.Key{s.RemovedKeys, s.RemovedNextKeys} {
		for id, k := range keys {
			f.Keys[k] = id
		}
	}
	if s.Recovered != nil {
		for _, m := range s.Recovered.Without {
			for _, k := range m.Keys() {
				f.Keys[k] = m.ID
			}
		}
	}
	return f
}

// Leaving tells whether a node with this status was told to begin again and, as far as is
// known, has not done so yet: then it needs nothing of the log any more. met are the data
// directories with which nodes last shook hands.
func Leaving(m cluster.Member, n status.Node, met Known) bool {
	return !m.Votes() && GivesUp(m, n) && met[m.ID] != m.Instance
}

// ForPurge returns the nodes as a purge on self counts them. While the voters change, what
// a leaving node has may still be needed; and as long as self has not left, its own mysqld
// needs its own log.
func ForPurge(p cluster.StatePoint, self cluster.NodeID, nodes []status.Node) []status.Node {
	nodes = slices.Clone(nodes)
	for i := range nodes {
		if len(p.Outgoing) > 0 || nodes[i].ID == self {
			nodes[i].Leaving = false
		}
	}
	return nodes
}
