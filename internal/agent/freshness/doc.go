// Package freshness knows how recent a replica's data are.
//
//	leader's answers ──► Heard ──► for how long this replica may be read, and whether its lag is known
//
// Heard is what the leader has said when this replica asked whether it still leads. An answer counts for an
// election timeout from when it was asked for, by two clocks. Heard has five answers at most. Its Run is the
// goroutine that asks.
//
// Nothing here is durable.
package freshness
