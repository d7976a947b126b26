package mysqld

// instrumentOption takes NAME=ON or NAME=OFF. It may be given several times: the
// longest pattern that an instrument matches counts, of equally long ones the last.
const instrumentOption = "performance_schema_instrument"

// InstrumentsOff are the instruments of the Performance Schema that MySQL has on, that
// cost every statement something, and that quorate has off: what is counted of memory,
// files, locks of tables and idle clients. Statements and their digests stay on, and so
// do the rows of tables: without them sys.schema_unused_indexes names indexes that are
// used. An operator who sets performance_schema_instrument has MySQL's instruments, and
// his own.
func InstrumentsOff() []string {
	return []string{"memory/%", "wait/io/file/%", "wait/lock/table/%", "idle"}
}

// InstrumentsKept are those that the agent reads, on whatever the operator sets: metadata
// locks (KillBlockers, OpenTransactions), transactions (EndXA), XA statements with what a
// statement is before it is parsed (xaStatements), and how far a DDL is (ApplyWork); of the
// threads that they are about.
func InstrumentsKept() []string {
	return []string{
		"wait/lock/metadata/sql/mdl", "transaction",
		"statement/sql/xa_start", "statement/sql/xa_commit", "statement/sql/xa_rollback",
		"statement/abstract/new_packet", "statement/abstract/Query", "statement/abstract/relay_log",
		"stage/innodb/alter%", "thread/%",
	}
}
