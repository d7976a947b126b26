// Package ledger is a write workload that remembers what it was told, and the
// checker that compares the servers with that.
//
// Writers insert rows with ids of their own into one table through the
// cluster's read/write ports. Of every transaction the writer records an
// outcome:
//
//	acknowledged  the client received OK: every row must be on every node
//	unknown       the connection broke after the deciding statement was sent:
//	              all of its rows are on all nodes, or none on any
//	failed        it ended before the deciding statement was sent, or with an
//	              error that rules a commit out: no row may be anywhere
//
// A transaction of unknown outcome is never tried again under the same ids, so
// a row that appears twice or in the wrong place cannot hide behind a retry.
//
// # What it owns
//
// A Workload owns its connections and its history. Run starts one goroutine
// per writer and returns when all of them have ended. Check opens one
// connection pool per node and closes it before it returns.
//
// # The table
//
//	id       BIGINT     primary key: writer << 32 | seq
//	writer   INT        who wrote it
//	seq      INT        counts the writer's rows from 1, never used again
//	payload  VARBINARY  follows from the id alone, so a wrong content is seen
//	written  DATETIME   set by the primary: equal on all nodes by replication only
//
// # Invariants
//
//   - An attempt is in the history, as unknown, before its first byte is sent.
//   - Compare is a pure function of the history and of the rows read: a checker
//     that cannot fail would be worthless, so its tests feed it every defect.
package ledger
