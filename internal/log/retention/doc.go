// Package retention removes from a node's log what no node needs any more, and says which member holds that
// back. Package replay decides what may go (PlanPurge, Holder, NewMark). This package collects the input for
// that and runs it at intervals. The agent runs it with its files and mysqld, the simulator with its own.
//
//	what mysqld has, flushed    ──► replay.NewMark      ──► durable.json     ──► what the node needs
//	what the members said last  ──► membership.ForPurge ──► replay.PlanPurge ──► Log.Purge
//	members that are not heard  ──► Heard (heard.json)  ──► replay.Holder    ──► which node is rebuilt
//
// # Invariants
//
//   - Heard counts only for Holder, never for a purge: a member that has not been heard
//     may have begun again with nothing.
//   - The log's segments are read before the members' statuses: what the log gets
//     in between is not part of the plan.
//
// # Goroutines
//
// None. The owner runs the Run methods of Marker and Purger, which wait by a clock.Clock. All other methods may
// be called from any goroutine. One purge runs at a time.
package retention
