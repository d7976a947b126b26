// Package join decides how a node with nothing begins (Introduction), and brings a node into a
// cluster that is there already: what the node does (Joiner), and what a member answers
// (Member). The agent runs it with its mysqld, files and connections, the simulator with its
// own.
//
//	an empty directory   ask initial members ──► begin, wait, join, or be rebuilt
//	the node that joins  ask all members ──► choose one ──► copy mysqld's data, the log ──► finish
//	a member             a read barrier  ──► Plan: from where on, and what it can give
//
// Until a node that joins has a log it takes no part in Raft, as one that is being healed: a
// leader must take each member that answers for one that has what was purged. So it copies,
// before anything else, what is committed now; and because its status says that it has
// nothing, nobody purges anything meanwhile that it knows this node as a member. What purged
// before that was committed, and so is in the copy, or before its beginning.
//
// A node that is stopped in between begins anew: nothing was promised, so what it has copied
// is nobody's, and is deleted.
//
// # Invariants
//
//   - A member answers only after a read barrier. What it knows of the node may be long ago:
//     it could seed a node that has its vote since, and has given votes over another data
//     directory.
//   - A node that joins tells nobody to go: it is told of states that are not on its disk.
//
// The package owns the state of one join, and which copies of a member's data other nodes may make now
// (DataCopies), in memory. It starts no goroutine, and waits by a clock.Clock.
package join
