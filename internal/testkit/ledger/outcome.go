package ledger

import (
	"database/sql/driver"
	"errors"

	"github.com/go-sql-driver/mysql"
)

// OutcomeOf returns the outcome of a transaction after the answer to its deciding statement: an
// INSERT with autocommit, or a COMMIT. If the answer does not rule a commit out, the outcome is unknown.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return Acknowledged
	}
	if errors.Is(err, driver.ErrBadConn) {
		return Failed // the driver says by this error that nothing was sent
	}
	if refused, ok := errors.AsType[*mysql.MySQLError](err); ok && rulesOutCommit(refused.Number) {
		return Failed
	}
	return Unknown
}

// rulesOutCommit says whether the transaction cannot have been committed anywhere, now or
// later, if a server answers an INSERT or a COMMIT with this error. It is false for codes
// that leave a doubt, in particular:
//
//   - 3100 and 3101, a commit hook refused or rolled back. A member that leaves its group
//     also rolls back the transactions that it has sent to the others. The others may commit them.
//   - 1180, an error during COMMIT. Galera's write set may have been sent.
//   - 1053 and 1317, shutdown and KILL. They may come while a commit waits for its replicas.
func rulesOutCommit(number uint16) bool {
	switch number {
	case 1047, // Galera: the node is not ready and executes nothing. MySQL: the command is unknown.
		1049, 1142, 1146, // no such database, no privilege, no such table: refused before it writes
		1062,       // duplicate key: the statement was rolled back, and with autocommit the transaction
		1197,       // larger than the binary log's cache: fails while the cache is written, before prepare
		1205,       // lock wait timeout: of a row, or at COMMIT of the commit lock, before prepare
		1213,       // deadlock: rolled back. Galera: every node refuses the write set.
		1290, 1792: // read-only server or transaction: refused before it writes, at COMMIT before prepare
		return true
	}
	return false
}
