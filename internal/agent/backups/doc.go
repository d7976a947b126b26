// Package backups is what a node gives for backups: a copy of its mysqld's data (Data), and its
// committed log, as it grows (Log). The commands "quorate backup" and "quorate archive" take both
// at the control socket, and keep them. Package archive has their format.
//
//	Data   where the log begins that the data need ──► mysqld clones itself to a directory beside its
//	       data ──► tar of that ──► up to which entry it may have something
//	Log    committed entries from one on, and the transactions that they name; a point each second,
//	       and where all was sent
//
// It also knows how far the archive is that is shipped from here, and for how long that may lack something (Archive).
//
// # Invariants
//
//   - The durable mark is read before the copy begins: the copy has what mysqld had on disk then.
//   - The commit index is read when the copy is complete: mysqld gets nothing that is not committed,
//     so the copy has nothing behind it.
//   - No copy is begun if there is too little room for it: the node needs its disk more.
//   - The copy of the data is removed at the end, also after an error, and at mysqld's next start. The end comes before
//     the disk is full, whether the client reads or not.
//
// # Goroutines
//
// One watches the room while Data runs. Data runs once at a time, Log as often as it is called. Both
// belong to their request, and end with its context. The clock is a clock.Clock. Nothing here is durable.
package backups
