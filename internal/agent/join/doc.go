// Package join decides how a node with nothing begins (Introduction), and brings a node into a
// cluster that is there already: what the node does (Joiner), and what a member answers
// (Member). The agent runs it with its mysqld, files and connections, the simulator with its
// own.
//
//	an empty directory   ask initial members ──► begin, wait, join, or be rebuilt
//	the node that joins  ask all members ──► choose one ──► copy mysqld's data, the log ──► finish
//	a member             a read barrier  ──► Plan: where the log begins, and what it can give
//
// Until a node that joins has a log it takes no part in Raft, like a node whose log is being
// healed: a leader must assume that every member that answers has what was purged. So the node
// first copies what is committed now. Meanwhile its status says that it has nothing, so no
// member that knows it purges anything. A member that did not know it yet may have purged
// entries before: those were committed, so they are in the copy, or before its beginning.
//
// A node that is stopped in between begins again: nothing was promised, so nobody relies on what
// it has copied, and that is deleted.
//
// # Invariants
//
//   - A member answers only after a read barrier. Otherwise what it knows of the node may be
//     old: it could seed a node that has got its vote since, and has voted with another data
//     directory.
//   - A node that joins tells nobody to go: the states that it is told of are not on its disk.
//
// The package owns the state of one join, and which copies of a member's data other nodes may make now
// (DataCopies), in memory. It starts no goroutine, and waits by a clock.Clock.
package join
