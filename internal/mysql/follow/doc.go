// Package follow decides how a primary takes over the transactions of a MySQL server that is not part of
// the cluster: which statements a session executes for a transaction, and which transactions may run at the
// same time.
//
// Such a transaction is binlogged with its own GTID, as if mysqlbinlog had written it, and takes the way of
// a client's transaction: tap, log, majority. A replication channel would not do, because a primary's
// applier does not binlog (log_replica_updates=OFF).
//
//	source's events ──► Translator ──► Step … ──► Session ──► SQL
//	GTID event      ──► Clock: may it begin beside those that run?
//
// Row events go into BINLOG statements, which a session decodes as an applier does. Each BINLOG statement is complete
// in itself: the table maps of the source's statement, row events, and the mark that the statement ends. So the rows
// of a statement can be cut into pieces of chunkBytesMin, and no transaction is ever held as a whole. The
// FORMAT_DESCRIPTION comes before, once for each file in a session, outside of any transaction. A statement (DDL)
// runs with the session variables that its event describes.
//
// A client differs from an applier in one respect: mysqld takes the account of the session as the current user, and
// not the account that the event names. So an ALTER EVENT gets a DEFINER clause, and CURRENT_USER is refused where it
// would have another meaning. A statement that makes a routine is marked (Step.Routine), because its author does not
// get the privileges on the routine that it has at the source.
//
// Where the meaning cannot be carried over, the transaction is refused (UnsupportedError), never guessed:
// statements in place of row events, XA, transactions without a GTID or with a tagged GTID.
//
// The package is pure: no goroutine, clock, I/O, randomness or logger.
//
// Sources: client/mysqlbinlog.cc, sql/sql_binlog.cc, sql/rpl_mta_submode.cc of MySQL 9.7.4.
package follow
