// Package fakemysqld is a deterministic model of a mysqld for the simulator: the
// parts of the server's behaviour that acknowledged data depends on, and the real
// bytes of its binlog events.
//
// A Disk is what survives a process, a Server is one process on it. A client's transaction goes through a
// Server in this way:
//
//	Begin      Flush                        Ack
//	  │          │                           │
//	queue ─► flush group: GTID, prepare ─► waiting ─► engine commit ─► Results
//	         (redo written), binlog           behind ──┘ (a group of its own then)
//	         └─► Dump.Next sees it
//
// A transaction from the feed goes Receive ─► relay log ─► Apply ─► engine commit, or, with ReplicaBinlog,
// through a flush group of its own.
//
// # What is modelled
//
//   - The engine is a redo log of prepares and commits; a commit and its GTID are
//     one record. What a kill or a power loss leaves is a prefix of that log, so
//     engine state is always a prefix of the engine commits (the prefix rule).
//   - A no-op (DROP TABLE IF EXISTS of a missing table) has a GTID in the binlog
//     and in gtid_executed, and no record. On a primary a crash forgets it; a
//     rotation, a clean stop and FLUSH ENGINE LOGS save it, and so does a replica
//     without a binlog. If the table has rows, the same statement is no no-op:
//     the rows are gone.
//   - Crash recovery: without a binlog prepared transactions are rolled back; with
//     the old binlog they are committed, acknowledged or not. GTIDs are reused after
//     a rollback.
//   - Semi-sync: one group waits. Later ones form one group behind it and wait for
//     the highest of their positions. An ACK is never forgotten and is believed
//     blindly; names are compared by length first. A graceful stop releases all
//     sessions that wait.
//   - Rotation drains the pipeline; SET super_read_only=ON waits for it.
//   - The dump: refusals 1236, the start file, excluded ranges and their
//     heartbeats. The I/O thread: checksums, position arithmetic, heartbeat check.
//   - XA transactions: an XA PREPARE is a transaction with a GTID. Once it has its ACK
//     it is marked as to be kept, with its GTID, and any session may end it; before that
//     a crash rolls it back. An applier without a binlog marks nothing: a start rolls
//     back what it prepared, no statement keeps the GTIDs, and the ends go into no binlog.
//     Read-only refuses no end. The key that is written is locked until the end, for all
//     sessions.
//   - Metadata locks between a statement and the writers of its table: without them a
//     DROP could pass a write that waits.
//
// Where timing decides in the real server, Options.Rand or the caller does: the size of a flush group, when it
// flushes, and how much of the tail is lost. Losses are drawn from everything that the settings allow
// (sync_binlog=0, innodb_flush_log_at_trx_commit=2), which is more than what usually happens.
//
// # What is not
//
// Transaction compression, tagged GTIDs, parallel appliers, row locks, other replicas than the one tap, and
// every delay. How long a start, a shutdown, an apply or the ACK receiver after a reconnect (up to 1 s) take is
// up to the caller, who calls later.
//
// # Formats
//
// Events have the layouts of MySQL 9.7 with CRC32 (package binlog). The content of
// a row event is this package's own, behind the post-header; lengths are uvarint:
//
//	+---------------+---+-----------+-------+-----+-------+-------+
//	| 0 (10 bytes)  | 1 | pad bytes | bytes | key | bytes | value |   the operation
//	+---------------+---+-----------+-------+-----+-------+-------+
//	+---------------+---+--------- - -
//	| 0 (10 bytes)  | 2 | padding …                                   Tx.Bytes, cut
//	+---------------+---+--------- - -
//
// A statement has its key and value as text, quoted as in Go. XA statements are as MySQL writes them.
//
// The package has no goroutine, clock or randomness of its own. One goroutine may use it. Nothing in it
// iterates over a map in map order. It does no I/O; its durability contract is PowerLoss.
package fakemysqld
