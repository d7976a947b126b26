// Package replay compares a mysqld with the committed log: which part of the log the mysqld
// holds, whether it may go on from there, and from which place it is fed.
//
//	                 first            prefix                 last committed
//	  purged           │                │                          │
//	┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄├────────────────┼──────────────────────────┤
//	  held: the durable │ held, but for │ fed by the cursor, in log order
//	  mark proves it    │ holes, which  │
//	                    │ were read     │
//
// All of it rests on the prefix rule: engine commits follow log order, so a mysqld holds a
// prefix of the log. A GTID that its gtid_executed lacks before its last transaction is a hole,
// not a missing transaction. Each hole is looked up in the log. Transactions that the log no
// longer has cannot be looked up: only the node's durable mark can show that mysqld held them.
// (Otherwise a log that starts at 101 and a mysqld with 1-50 would lead to "51-100 were
// no-ops".)
//
// # What it owns
//
// No state. A Cursor is a place in the log and belongs to its reader.
//
// # Goroutines, I/O
//
// None: the package is pure, except that it reads the log through CommittedLog. It takes no
// lock, reads no clock, and never waits: a Cursor at the end of the committed entries says so,
// and its caller waits.
//
// # Invariants
//
// I3 (Judge), I4 (FindPrefix, Cursor).
package replay
