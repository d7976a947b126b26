// Package retention removes from a node's log what nobody needs any more, and says who holds
// it back. What may go is decided by package replay (PlanPurge, Holder, NewMark); here is what
// that is asked with, and when. The agent runs it with its files and mysqld, the simulator
// with its own.
//
//	what mysqld has, flushed   ──► replay.NewMark      ──► durable.json     ──► what the node needs
//	what the members said last ──► membership.ForPurge ──► replay.PlanPurge ──► Log.Purge
//	of whom was never heard    ──► Heard (heard.json)  ──► replay.Holder    ──► who is rebuilt
//
// # Invariants
//
//   - Heard counts for Holder alone, never for a purge: who has not been heard may have begun
//     anew.
//   - The log's segments are read before what the members said: what comes to the log
//     meanwhile is needed by nobody less.
//
// # Goroutines
//
// None. Run of both is run by its owner, and waits by a clock.Clock; all other methods may be
// called from any goroutine. One purge runs at a time.
package retention
