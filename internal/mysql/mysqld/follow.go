package mysqld

import (
	"database/sql"

	"github.com/go-sql-driver/mysql"
)

// FollowUser is the account with which the agent of a primary writes the transactions of a source that the
// cluster follows: @localhost. It has every privilege. Its sessions count as sessions of a client: ShutOut ends
// them.
const FollowUser = "quorate_follow"

// Follow returns the password of FollowUser, derived like the password of CloneUser.
func (s Secrets) Follow() string { return s.derived("quorate-follow") }

// followStatements make FollowUser.
func (c Config) followStatements() []string {
	name := "'" + FollowUser + "'@'localhost'"
	return []string{
		"DROP USER IF EXISTS " + name,
		"CREATE USER " + name + identifiedBy(c.Secrets.Follow()),
		"GRANT ALL ON *.* TO " + name + " WITH GRANT OPTION",
	}
}

// OpenFollow returns a pool of sessions of FollowUser that keeps no idle session. A text is one statement: what a source
// has as one must not be several here.
func (p *Process) OpenFollow() (*sql.DB, error) {
	return FollowSessions(p.server.cfg.Socket, FollowUser, p.server.cfg.Secrets.Follow())
}

// FollowSessions is OpenFollow for the server at a Unix socket.
func FollowSessions(socket, user, password string) (*sql.DB, error) {
	cfg := socketConfig(socket, user, password)
	cfg.MaxAllowedPacket = 0        // = as much as the server accepts
	cfg.Params = map[string]string{ // these must not follow what the operator sets for clients
		"autocommit": "1", "completion_type": "0", "max_execution_time": "0", "sql_big_selects": "1", "wait_timeout": "31536000",
		// As an applier has it: a statement is executed as at the source, also where the source is
		// older.
		"pseudo_replica_mode": "1", "transaction_isolation": "'READ-COMMITTED'",
		// A reader that holds a table must not hold up all transactions for ever. The transaction
		// is tried again.
		"lock_wait_timeout": "60", "innodb_lock_wait_timeout": "60",
		// The texts in the log would be our BINLOG statements, and tables would differ from
		// those at the source.
		"binlog_rows_query_log_events": "0", "sql_generate_invisible_primary_key": "0",
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxIdleConns(-1)
	return db, nil
}
