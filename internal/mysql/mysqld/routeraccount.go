package mysqld

import (
	"database/sql"
	"io"
	"log"

	"github.com/go-sql-driver/mysql"
)

const (
	// RouterUser is the account with which the agent of a primary writes what MySQL Router
	// reads, and which events run: @localhost, and into RouterSchema and EventsSchema alone.
	RouterUser = "quorate_router"
	// RouterSchema is where MySQL Router looks for a cluster's members.
	RouterSchema = "mysql_innodb_cluster_metadata"
)

// Router returns the password of RouterUser, derived as Clone's is.
func (s Secrets) Router() string { return s.derived("quorate-router") }

// routerStatements make RouterUser. SYSTEM_USER: dba must not change it. CONNECTION_ADMIN: after
// a failover it comes in although clients take every connection. Neither lets it write elsewhere.
func (c Config) routerStatements() []string {
	name := "'" + RouterUser + "'@'localhost'"
	return []string{
		"DROP USER IF EXISTS " + name,
		"CREATE USER " + name + identifiedBy(c.Secrets.Router()),
		"GRANT SYSTEM_USER, CONNECTION_ADMIN ON *.* TO " + name,
		"GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES, CREATE VIEW, SHOW VIEW ON " + RouterSchema + ".* TO " + name,
		"GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON " + EventsSchema + ".* TO " + name,
		"GRANT SELECT ON performance_schema.global_variables TO " + name, // a view names it, for the server's UUID
	}
}

// OpenOwnSchemas returns sessions of RouterUser, one at a time, each for one use. What they write goes
// the way of a client's transactions: through the binlog, and with an OK once a majority has it. A lock is
// waited for 2 s, so that a transaction which waits for its OK has few others behind it.
func (p *Process) OpenOwnSchemas() (*sql.DB, error) {
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd = RouterUser, p.server.cfg.Secrets.Router()
	cfg.Net, cfg.Addr = "unix", p.server.cfg.Socket
	cfg.InterpolateParams = true
	cfg.Params = map[string]string{ // whatever the operator sets for clients
		"autocommit": "1", "sql_mode": "'STRICT_ALL_TABLES'", "lock_wait_timeout": "2", "innodb_lock_wait_timeout": "2",
		"max_execution_time": "0", "sql_big_selects": "1", "completion_type": "0",
		"transaction_isolation": "'READ-COMMITTED'",
	}
	cfg.Logger = log.New(io.Discard, "", 0) // what the driver would print is returned as an error, too
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	db.SetMaxIdleConns(-1)
	return db, nil
}
