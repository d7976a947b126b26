// Package replay decides how a mysqld and the committed log go together: which
// part of the log a mysqld holds, whether it may go on from there, and from
// which place it is fed.
//
//	                 first            prefix                 last committed
//	  purged           │                │                          │
//	┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄├────────────────┼──────────────────────────┤
//	  held: the durable │ held, but for │ fed by the cursor, in log order
//	  mark proves it    │ holes, which  │
//	                    │ were read     │
//
// The prefix rule is the ground of it: engine commits follow log order, so a
// mysqld holds a prefix of the log, and what its gtid_executed lacks before its
// last transaction is a hole, not a transaction that is missing. Each hole is
// looked at in the log. What the log no longer has cannot be looked at: there
// the node's durable mark has to show that mysqld held it, and nothing else
// does (trace: a log that starts at 101 and a mysqld with 1-50 must not lead to
// "51-100 were no-ops").
//
// # What it owns
//
// Nothing. A Cursor is a place in the log and belongs to its reader.
//
// # Goroutines, I/O
//
// None: the package is pure, but for reading the log through CommittedLog. It
// takes no lock, reads no clock, and never waits: a Cursor that has come to the
// end of what is committed says so, and its caller waits.
//
// # Invariants
//
// I3 (Judge), I4 (FindPrefix, Cursor).
package replay
