package mysqld

import (
	"database/sql"

	"github.com/go-sql-driver/mysql"
)

const (
	// RouterUser is the account with which the agent of a primary writes what MySQL Router
	// reads, and which events run. It is @localhost, and may write into RouterSchema and
	// EventsSchema alone.
	RouterUser = "quorate_router"
	// RouterSchema is where MySQL Router looks for a cluster's members.
	RouterSchema = "mysql_innodb_cluster_metadata"
)

// Router returns the password of RouterUser, derived like the password of CloneUser.
func (s Secrets) Router() string { return s.derived("quorate-router") }

// routerStatements make RouterUser. With SYSTEM_USER, dba cannot change it. With CONNECTION_ADMIN
// it can connect after a failover although clients take every connection. Neither lets it write
// to other schemas.
func (c Config) routerStatements() []string {
	name := "'" + RouterUser + "'@'localhost'"
	return []string{
		"DROP USER IF EXISTS " + name,
		"CREATE USER " + name + identifiedBy(c.Secrets.Router()),
		"GRANT SYSTEM_USER, CONNECTION_ADMIN ON *.* TO " + name,
		"GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES, CREATE VIEW, SHOW VIEW ON " + RouterSchema + ".* TO " + name,
		"GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON " + EventsSchema + ".* TO " + name,
		"GRANT SELECT ON performance_schema.global_variables TO " + name, // a view reads the server's UUID from it
	}
}

// OpenOwnSchemas returns a pool with one session of RouterUser at a time, and no idle session. Its
// transactions take the way of a client's: through the binlog, and with an OK once a majority has them. A
// statement waits at most 2 s for a lock, so that few of these transactions queue behind one that waits
// for its OK.
func (p *Process) OpenOwnSchemas() (*sql.DB, error) {
	cfg := socketConfig(p.server.cfg.Socket, RouterUser, p.server.cfg.Secrets.Router())
	cfg.InterpolateParams = true
	cfg.Params = map[string]string{ // these must not follow what the operator sets for clients
		"autocommit": "1", "sql_mode": "'STRICT_ALL_TABLES'", "lock_wait_timeout": "2", "innodb_lock_wait_timeout": "2",
		"max_execution_time": "0", "sql_big_selects": "1", "completion_type": "0",
		"transaction_isolation": "'READ-COMMITTED'",
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	db.SetMaxIdleConns(-1)
	return db, nil
}
