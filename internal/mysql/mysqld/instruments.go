package mysqld

// instrumentOption takes NAME=ON or NAME=OFF. It may be given several times. For each
// instrument the longest pattern that matches it counts; of patterns of equal length, the last.
const instrumentOption = "performance_schema_instrument"

// InstrumentsOff are instruments of the Performance Schema that MySQL has on and quorate
// switches off, because they make every statement dearer: those of memory, files, table locks
// and idle clients. The instruments of statements, digests and rows of tables stay on: without
// the last, sys.schema_unused_indexes would name indexes that are used. Where the operator sets
// performance_schema_instrument, none is switched off.
func InstrumentsOff() []string {
	return []string{"memory/%", "wait/io/file/%", "wait/lock/table/%", "idle"}
}

// InstrumentsKept are the instruments that the agent reads. They stay on, whatever the operator
// sets: metadata locks (KillBlockers, OpenTransactions), transactions (EndXA), XA statements
// and the states of a statement before it is parsed (xaStatements), the progress of a DDL
// (ApplyWork), and the threads that these belong to.
func InstrumentsKept() []string {
	return []string{
		"wait/lock/metadata/sql/mdl", "transaction",
		"statement/sql/xa_start", "statement/sql/xa_commit", "statement/sql/xa_rollback",
		"statement/abstract/new_packet", "statement/abstract/Query", "statement/abstract/relay_log",
		"stage/innodb/alter%", "thread/%",
	}
}
