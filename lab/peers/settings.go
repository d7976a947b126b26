package peers

import (
	"fmt"
	"strconv"
)

// Setting is a setting that matters to a comparison, with the reason for its value.
// Those with an empty Name are remarks.
type Setting struct{ Name, Value, Why string }

// Facts are the facts of a deployment for the report.
type Facts struct {
	// Versions has a version for each program.
	Versions map[string]string
	Settings []Setting
}

const (
	// redoBytes is the capacity of the redo log: two processors need several minutes to write
	// so much.
	redoBytes = 256 << 20
	// connectionsMax leaves room for other sessions beside 256 threads of sysbench.
	connectionsMax = 1000
	// packetBytesMax is the server's own maximum, because large transactions are measured.
	packetBytesMax = 1 << 30
	// logBufferBytes and ioCapacity are the defaults of a current MySQL; MariaDB's defaults are less.
	logBufferBytes = 64 << 20
	ioCapacity     = 10_000
)

// sharedVariables are the settings of every server, also of MariaDB's.
func (o Options) sharedVariables() []Setting {
	return []Setting{
		{"innodb_buffer_pool_size", strconv.FormatInt(o.BufferPoolBytes, 10), "the same for all"},
		{"innodb_log_buffer_size", strconv.Itoa(logBufferBytes), "the same for all"},
		{"innodb_io_capacity", strconv.Itoa(ioCapacity), "the same for all"},
		{"innodb_io_capacity_max", strconv.Itoa(2 * ioCapacity), "the same for all"},
		{"max_connections", strconv.Itoa(connectionsMax), "the same for all"},
		{"max_allowed_packet", strconv.Itoa(packetBytesMax), "the same for all: the server's maximum"},
		{"performance_schema", "ON", "the same for all but galera: quorate and Group Replication are watched through it"},
		{"skip_name_resolve", "ON", "the same for all: there is no name service in the lab"},
		{"secure_file_priv", "NULL", "the same for all: as quorate has it"},
	}
}

// mysqlVariables are the settings of every MySQL server that replicates by itself.
func (o Options) mysqlVariables() []Setting {
	const history = "the same for all: what parallel appliers need, without the memory of the default"
	return append(o.sharedVariables(), []Setting{
		o.instruments(),
		{"innodb_redo_log_capacity", strconv.Itoa(redoBytes), "the same for all"},
		{"log_error_verbosity", "2", "the same for all"},
		{"loose_mysqlx", "OFF", "nobody speaks the X protocol"},
		{"sync_binlog", "1", "durable"},
		{"innodb_flush_log_at_trx_commit", "1", "durable"},
		{"gtid_mode", "ON", "needed"},
		{"enforce_gtid_consistency", "ON", "needed"},
		{"log_bin", "binlog", "needed"},
		{"relay_log", "relay", "needed"},
		{"max_binlog_size", "134217728", "as quorate has it"},
		{"replica_parallel_workers", strconv.Itoa(o.Workers), "the option --workers, the same for all"},
		{"binlog_transaction_dependency_history_size", "100000", history},
		{"binlog_transaction_compression", onOff(o.Compress), "the option --compress, the same for all"},
	}...)
}

func onOff(b bool) string {
	if b {
		return "ON"
	}
	return "OFF"
}

// variables makes an option file of the settings that have a name.
func variables(all ...[]Setting) map[string]string {
	vars := map[string]string{}
	for _, list := range all {
		for _, s := range list {
			if s.Name != "" {
				vars[s.Name] = s.Value
			}
		}
	}
	return vars
}

// remark is a Setting without a name: only a text.
func remark(format string, args ...any) Setting { return Setting{Why: fmt.Sprintf(format, args...)} }
