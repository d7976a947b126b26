// Package cluster holds the replicated cluster state, and what operators ask of a cluster.
//
// State has the members, their weights and sites, and the policies. State.With returns the state after a
// change, or says why the change is not allowed. Every node applies the same changes in the same order.
// State.AckIndex and AckWatch say which commits may be acknowledged under a policy. The repair rules say what a
// node may do by itself.
//
// The requests and their answers (a switchover, a fence, a purge), the lines of the audit log and the history
// are types that agents and the command line share. So is a Check, of a host or a server. Their JSON field
// names are an interface: fields are added, and never renamed. What a node says of itself is in cluster/status.
//
// A value is a snapshot: the caller that gets it owns it. Only an AckWatch changes: it belongs to one
// goroutine. The package is pure: no goroutine, clock, I/O or randomness.
package cluster
