// Package founding makes the data directory of a running MySQL server the first node of a new
// cluster, in place ("quorate adopt"): it looks at what was read of the server (Check), and carries
// the adoption out, or undoes it (Record).
//
//	Check       what speaks against it, and what is to be known: pure
//	Make        adopting.json ──► rename to mysql/data ──► mysqld's UUID ──► log/, durable.json,
//	            cluster.json, identity.json ──► the file's name becomes adopted.json
//	Undo        adopting.json, with undo ──► all of that backwards ──► nothing is left
//	Finish      what was interrupted is done again, from the beginning, in its direction
//
// Nothing is copied: the time that it takes does not depend on how much data there is.
//
// # Where the log begins
//
// Entry 1 stands for the database as it was: it is in no log, as if it had been purged. The log
// begins at entry 2, an empty entry of Raft, of term 1, committed. The transactions before it
// are the server's gtid_executed. The durable mark is at entry 1, as the server was shut down in
// order. So every other node is seeded with a copy of the data, as after a purge of the log.
//
// # Invariants
//
//   - While adopting.json is there no agent starts (agent.New).
//   - The data are at one of two places: where they were, or in mysql/data. Nothing is removed
//     from either, and nothing in them is changed but 36 bytes of auto.cnf.
//   - It is undone only before the first start of mysqld (mysql/incarnation), or if that start has
//     changed nothing: a start that succeeds changes accounts. It is not undone after a rebuild,
//     which moves the data below old/, and that file with them.
//
// # Durability
//
// adopting.json is on disk before anything else is done, and loses its name last. A crash in
// between leaves it there, and Finish or Undo can begin at any state of the others.
//
// The package starts no goroutine.
package founding
