// Package tap decides what becomes of the primary's binlog: which transactions
// make a batch, that is an entry for Raft, and which binlog position may be
// acknowledged to mysqld. It is the pure half of the tap. Package mysqlwire has
// the connection, the goroutines and the clock.
//
//	event ──► Read ──► Step ──► Apply ──► growing batch ──► TakeBatch
//	          stream                │
//	                                └───► ackQueue ───────► NextAck
//	                                         ▲ Committed(number)
//
// An Intake keeps the order in which the reader works: the bytes of an event are in the stage
// before the machine goes on, and the reader may propose the batch itself. One batch is under
// way at a time, whichever goroutine took it.
//
// Held stands between the commits and Committed. Where the cluster's durability policy asks for
// more than a commit, Held keeps the commits until they may be acknowledged.
//
// A Machine belongs to one connection and one epoch. The stream half checks
// every event: checksum, place, position, GTID. The other half holds the one
// growing batch and the positions that wait for commits.
//
// A transaction whose GTID event says that it has more than StageBytesMin bytes becomes a batch
// of its own, of kind KindStaged, that only names it. Its events go to a stage, which belongs
// to the shell; the machine counts the bytes and computes their CRC. An event of more than 1
// MiB, unless it is a statement, may be read in parts: the header is enough for its place and
// position, and its checksum is computed as it passes. A transaction of another length than its
// GTID event said is an error, so a stage is never shorter or longer than announced.
//
// Config.CheckAccounts checks each statement on accounts as it arrives, so before anything of it is
// proposed or acknowledged.
//
// Invariants:
//
//   - I2: a position is released only when every transaction before it on this connection is in
//     a committed entry. Committed alone releases it. The position of a heartbeat queues behind
//     the last transaction received. It is taken only if it lies beyond that transaction: then
//     the source skipped transactions that the tap had excluded, and these are committed.
//   - Numbers of batches are consecutive from 1, a batch holds whole
//     transactions, and the order is the binlog's.
//   - I9: a GTID that comes twice, or is in the excluded set, is an error.
//   - A checksum, length, position or file name that does not fit is an error. After it
//     nothing is acknowledged.
//
// Memory is bounded by one batch of max(BatchBytesMax, one transaction that is not staged): a
// step for which there is no room says so, and the reader keeps its event and tries again.
//
// The package is pure: no goroutine, clock, I/O or randomness; the time is an argument. It
// makes nothing durable itself: it says what must be durable, and is told when it is.
package tap
