package cluster

import "time"

// AuditEntry is one line of a node's audit log: what was asked for, and what
// became of it.
type AuditEntry struct {
	At time.Time `json:"at"`
	// By is who asked: an OS user and a host, as the caller said.
	By string `json:"by"`
	// What says in a line what it was.
	What   string `json:"what"`
	Result string `json:"result"`
	// Index is the entry of the log that brought a change of the cluster state, and
	// Version the state's; 0: it was none.
	Index   uint64 `json:"index,omitempty"`
	Version uint64 `json:"version,omitempty"`
}

// AuditRequest asks for the newest lines of a node's audit log.
type AuditRequest struct {
	Last int `json:"last"`
}
