// Package prepared looks after XA transactions that are prepared.
//
// Such a transaction has locks, on the primary and on each replica, until somebody ends it. It also holds back the
// durable marks, and with them the purge of all logs. So a Watch names in the status what is prepared for longer than
// a minute, and the primary rolls back what is older than mysql.xa_prepared_max_age, if that is set.
//
// # What clients do on a replica
//
// super_read_only does not stop XA COMMIT and XA ROLLBACK of what the applier has prepared. Foreign finds that:
//
//	a client has said   the data                  the node
//	XA ROLLBACK         lack a transaction that   mysqld starts again, and prepares it, too (ErrEnded)
//	                    the log has as prepared
//	XA COMMIT           differ: no GTID shows it  is errant, until it is rebuilt (ErrCommitted)
//
// The second is noted durably before anything ends, in mysqld's directory (mysqld.NoteForeignXA): the next mysqld does
// not know of it. A crash of mysqld between the statement and the note loses that knowledge: see docs/dba.md.
//
// # Goroutines
//
// None. Any goroutine may use a Watch. Foreign.Poll runs in a goroutine of its own, one at a time (Begin).
package prepared
