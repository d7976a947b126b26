// Package cluster holds the read-only view types that the other packages share
// when they speak of the cluster: members, node kinds, roles, positions and
// the status that a node shows of itself.
//
// A value of these types is a snapshot: whoever receives one owns it and
// nobody changes it behind the receiver's back. The JSON field names are an
// interface (`quorate status --json`, the agent's /status); they are only
// added to, never renamed.
//
// The package is pure: no goroutine, clock, I/O or randomness.
package cluster
