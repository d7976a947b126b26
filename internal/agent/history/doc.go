// Package history owns what a node remembers for people: audit.log, what operators did,
// and history.log, what became of the nodes. Every node has both, with the lines of all.
//
//	a request was carried out   ──► Log.Append ─────────────► audit.log
//	an entry was committed      ──► Records.Note ──► queue ──► audit.log
//	a step of role ─► Chronicle ──► Records.Tell ──► queue ──► history.log
//	another node's status       ──► Records.Copy ───────────► either
//	a join                      ──► Records.TakeOver ───────► both
//
// # Lines
//
// A line of a change of the cluster state has the index of its entry: each node writes it
// when it sees the entry. Each other line has the name of the node that wrote it, and a
// number there that grows. By these a Log takes no line twice.
//
// # Invariants
//
//   - When Append returns nil the lines are on disk, and a crash takes none away. A line
//     that a crash has cut does not count.
//   - The files are bounded, and so are the queues: a line that finds no room is counted.
//   - A status asks how far a log goes, and waits for no disk.
//
// # Goroutines
//
// None. Any goroutine may call the methods, except those of a Chronicle: only the role machine's
// goroutine may call these, but any may call CaughtUp.
package history
