package cluster

import (
	"math"
	"time"
)

// NodeID is a node's Raft id: never 0, never used again for another node.
type NodeID uint64

// Valid tells whether a node can have this id: by the two highest ones Raft's library means a node's own log.
func (id NodeID) Valid() bool { return id != 0 && id < math.MaxUint64-1 }

// Kind says what a node is made of.
type Kind string

// The node kinds.
const (
	// KindFull votes, keeps the log and runs a mysqld.
	KindFull Kind = "full"
	// KindLogger votes and keeps the log; it runs no mysqld.
	KindLogger Kind = "logger"
	// KindLearner keeps the log without a vote.
	KindLearner Kind = "learner"
)

// Member is one node as the cluster state has it.
type Member struct {
	ID   NodeID `json:"id,string"`
	Name string `json:"name"`
	// Peer is the host:port where its agent listens for other agents.
	Peer string `json:"peer"`
	Kind Kind   `json:"kind"`
	// Key is that of the node, "" = none is known. NextKey counts as well, while the key is changed.
	Key     Key `json:"key,omitempty"`
	NextKey Key `json:"next_key,omitempty"`
	// Weight says how much this node is wanted as the leader, 0 (never) to
	// WeightMax. It is a full node's: a logger leads in need only.
	Weight int `json:"weight"`
	// Site is where it stands; "" = nobody said.
	Site string `json:"site,omitempty"`
	// RequireAck: a commit also waits for this node. DropAfter says for how long;
	// 0 = as long as it takes.
	RequireAck bool          `json:"require_ack,omitempty"`
	DropAfter  time.Duration `json:"drop_after_ns,omitempty"`
	// Becomes is what a learner that joins is made, with a vote, once it has caught
	// up; "" = it stays a learner.
	Becomes Kind `json:"becomes,omitempty"`
	// Instance is the id of the data directory that the last rebuild gave to the node; "" =
	// the node was never rebuilt, and has the directory with which it came.
	Instance string `json:"instance,omitempty"`
	// Source is the name of the node that feeds a learner in place of the leader; "" =
	// the leader does. SourceApplied: with no more than what its mysqld has applied.
	Source        string `json:"source,omitempty"`
	SourceApplied bool   `json:"source_applied,omitempty"`
}

// The weights of nodes.
const (
	WeightDefault = 5
	WeightMax     = 9
)

// ElectionHeartbeatsMin heartbeats must fit into an election timeout, so that a few lost
// or late ones (a long fsync, a scheduler pause) do not depose a healthy leader, and the
// lease, which is shorter than the timeout, can be renewed several times before it ends.
const ElectionHeartbeatsMin = 5
