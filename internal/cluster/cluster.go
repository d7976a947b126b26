package cluster

import (
	"math"
	"time"
)

// NodeID is a node's Raft id: never 0, never used again for another node.
type NodeID uint64

// Valid tells whether a node can have this id. With the two highest ids Raft's library means a node's own log.
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

// Member is one node in the cluster state.
type Member struct {
	ID   NodeID `json:"id,string"`
	Name string `json:"name"`
	// Peer is the host:port where its agent listens for other agents.
	Peer string `json:"peer"`
	Kind Kind   `json:"kind"`
	// Key is the key of the node; "" = none is known. NextKey is accepted as well, while the key is being
	// changed.
	Key     Key `json:"key,omitempty"`
	NextKey Key `json:"next_key,omitempty"`
	// Weight says how much this node is wanted as the leader, from 0 (never) to WeightMax. Only full nodes have
	// one: a logger leads only in need.
	Weight int `json:"weight"`
	// Site is where the node stands; "" = unknown.
	Site string `json:"site,omitempty"`
	// RequireAck: a commit also waits for this node. DropAfter says for how long; 0 = without a limit.
	RequireAck bool          `json:"require_ack,omitempty"`
	DropAfter  time.Duration `json:"drop_after_ns,omitempty"`
	// Becomes is the kind that a joining learner gets, with a vote, once it has caught up; "" = it stays a
	// learner.
	Becomes Kind `json:"becomes,omitempty"`
	// Instance is the id of the data directory that the last rebuild gave to the node; "" =
	// the node was never rebuilt, and has the directory with which it came.
	Instance string `json:"instance,omitempty"`
	// Source is the name of the node that feeds a learner in place of the leader; "" = the leader feeds it.
	// SourceApplied: the source gives only what its own mysqld has applied.
	Source        string `json:"source,omitempty"`
	SourceApplied bool   `json:"source_applied,omitempty"`
}

// The weights of nodes.
const (
	WeightDefault = 5
	WeightMax     = 9
)

// ElectionHeartbeatsMin heartbeats must fit into an election timeout. Then a few lost or late heartbeats (a
// long fsync, a scheduler pause) do not depose a healthy leader. And the lease, which is shorter than the
// timeout, can be renewed several times before it ends.
const ElectionHeartbeatsMin = 5
