// Package follow says how a primary takes over the transactions of a MySQL server that is not part of the
// cluster: which statements a session executes for them, and which transactions may be executed at the same
// time.
//
// A transaction that is written so is binlogged with its own GTID, as mysqlbinlog would have it, and so goes
// the way of each client's: tap, log, majority. A replication channel would not do: a primary's applier does
// not binlog (log_replica_updates=OFF).
//
//	source's events ──► Translator ──► Step … ──► Session ──► SQL
//	GTID event      ──► Clock: may it begin beside those that run?
//
// Row events go into BINLOG statements, which a session decodes as an applier does. Each of these is whole by
// itself: the table maps of the statement, row events, and the mark that the statement ends. The
// FORMAT_DESCRIPTION comes before, once for each file in a session, outside of any transaction. So a statement's rows are cut into pieces of chunkBytesMin, and a transaction of any
// size is never held as a whole. A statement (DDL) runs in the session that its event describes.
//
// A client is not an applier in one respect: for mysqld the current user is the account of the session, and not the one
// that the event names. So ALTER EVENT is told its definer, CURRENT_USER is refused where that would matter, and who has made a
// routine is told apart, as the account does not get the privileges on it that it has at the source.
//
// What cannot be carried over with its meaning is refused (UnsupportedError), never guessed: statements in
// place of row events, XA, transactions without a GTID or with a tagged one.
//
// The package is pure: no goroutine, clock, I/O, randomness or logger.
//
// Sources: client/mysqlbinlog.cc, sql/sql_binlog.cc, sql/rpl_mta_submode.cc of MySQL 9.7.4.
package follow
