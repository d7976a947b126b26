package cluster

import "time"

// AuditEntry is one line of a node's audit log: what was asked for, and the result.
type AuditEntry struct {
	At time.Time `json:"at"`
	// By is the OS account that asked, and its host, by what the kernel said there.
	By string `json:"by"`
	// Node is the node that carried it out or refused it. Seq is the number of the line there, and grows.
	// Without Node and Seq, the line is a change of the cluster state, which every node knows from the log.
	Node string `json:"node,omitempty"`
	Seq  uint64 `json:"seq,omitempty"`
	// What says in one line what was asked for.
	What   string `json:"what"`
	Result string `json:"result"`
	// Index is the log entry that brought a change of the cluster state, and Version the version of that state;
	// 0 = it was no such change.
	Index   uint64 `json:"index,omitempty"`
	Version uint64 `json:"version,omitempty"`
	// Event is the subject of a line of history.log; nil in audit.log.
	Event *Event `json:"event,omitempty"`
}

// AuditSince is a question between agents: it asks for the oldest lines of the asked node's own that have a
// higher number.
type AuditSince struct {
	Seq uint64 `json:"seq"`
}

// LinesMax bounds the lines that an agent gives at once.
const LinesMax = 10_000

// LastRequest asks for the newest lines of a node's audit log, or of its history: 1 to LinesMax.
type LastRequest struct {
	Last int `json:"last"`
}
