package cluster

import "time"

// AuditEntry is one line of a node's audit log: what was asked for, and what
// became of it.
type AuditEntry struct {
	At time.Time `json:"at"`
	// By is who asked: an OS account and a host, as the kernel said there.
	By string `json:"by"`
	// Node did or refused it, and Seq is its number there, which grows;
	// none: it is a change of the cluster state, which every node has by the log.
	Node string `json:"node,omitempty"`
	Seq  uint64 `json:"seq,omitempty"`
	// What says in a line what it was.
	What   string `json:"what"`
	Result string `json:"result"`
	// Index is the entry of the log that brought a change of the cluster state, and
	// Version the state's; 0: it was none.
	Index   uint64 `json:"index,omitempty"`
	Version uint64 `json:"version,omitempty"`
	// Event is what a line of history.log is about; nil in audit.log.
	Event *Event `json:"event,omitempty"`
}

// AuditSince asks, between agents, for the oldest lines of the asked node's own
// with a higher number.
type AuditSince struct {
	Seq uint64 `json:"seq"`
}

// LinesMax bounds the lines that an agent gives at once.
const LinesMax = 10_000

// LastRequest asks for the newest lines of a node's audit log, or of its history: 1 to
// LinesMax.
type LastRequest struct {
	Last int `json:"last"`
}
