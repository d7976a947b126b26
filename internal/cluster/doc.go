// Package cluster holds what all packages share of the cluster.
//
// State is the replicated cluster state: the members, their weights and sites, and the
// policies. State.With says what a change makes of it, or why there may be no such change;
// every node applies the same changes in the same order. State.AckIndex and AckWatch say which
// commits may be acknowledged under a policy, the repair rules what a node may do by itself.
//
// The other types are views: roles, positions, and the status that a node shows of itself.
// A value of them is a snapshot: the receiver owns it. Their JSON field names are an
// interface (`quorate status --json`, the agent's /status); fields are only added, never
// renamed. Only an AckWatch changes: it belongs to one goroutine.
//
// The package is pure: no goroutine, clock, I/O or randomness.
package cluster
