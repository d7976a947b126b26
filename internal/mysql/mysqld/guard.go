package mysqld

import (
	"slices"
	"strconv"
	"strings"

	"github.com/quorate/quorate/internal/mysql/install"
)

// setting is one option that quorate writes into the option file.
type setting struct {
	name, value string
	// want is the value of the global variable as performance_schema shows it; "" = there is no
	// such variable, or the agent itself changes it at run time.
	want string
	// checkOnly says that the option is not written, because the server's default is right.
	checkOnly bool
	// among has the values that the operator may choose from. Any other value is refused, and
	// counts as a drift.
	among []string
	// includes says that the value is a list of the operator's choice, which must have this in
	// it. It is not compared at run time: without it the agent could not ask the server.
	includes string
	// excludes says which values the operator may not choose. It is not compared at run time.
	excludes []string
}

// defaultSettings are quorate's choices where safety does not dictate the value. The operator's
// settings come after them and win.
func defaultSettings() []setting {
	return []setting{
		// Errors and warnings. System messages are always logged.
		{name: "log_error_verbosity", value: "2"},
		{name: "replica_parallel_workers", value: "4"},
		// The default since 9.x is 10 M entries, which is much memory. 100 000 rows of history
		// cover far more than the commits in flight.
		{name: "binlog_transaction_dependency_history_size", value: "100000"},
		// Large transactions are staged, but an event is one piece. An UPDATE writes a row
		// twice into one event, and mysqld sends no event of more than 1 GiB: the tap would
		// end, on one primary after the other. With this bound no single value does that;
		// several columns of one row still can.
		{name: "max_allowed_packet", value: "469762048"},
		// The source is the local agent, with a heartbeat every second.
		{name: "replica_net_timeout", value: "10"},
		// The binlog is disposable once it is acknowledged, and a rotation waits until
		// everything in the old file is acknowledged. So a purge never takes what the tap still
		// needs, only what is in Raft already. A file that a dump thread reads is not purged at
		// all. So keep little: at 100 MB/s one minute is 6 GB.
		{name: "binlog_expire_logs_auto_purge", value: "ON"},
		{name: "binlog_expire_logs_seconds", value: "60"},
	}
}

// guardedSettings are the options that quorate's promise rests on. Each is written into the
// option file and compared at run time by CheckGuarded. The reasons are beside each group
// below, and in docs/architecture/replicas.md.
func (c Config) guardedSettings(o StartOptions) []setting {
	return slices.Concat(binlogSettings(), innodbSettings(), semiSyncSettings(o), replicaSettings(o), fenceSettings(), c.versionedSettings())
}

// binlogSettings give the binlog the form that the tap needs, without an fsync: the agent's log
// has the only fsync on the commit path.
func binlogSettings() []setting {
	return []setting{
		{name: "gtid_mode", value: "ON", want: "ON"},
		{name: "enforce_gtid_consistency", value: "ON", want: "ON"},
		// This is the default. Setting it has been deprecated since 8.0.34.
		{name: "binlog_format", want: "ROW", checkOnly: true},
		{name: "binlog_checksum", value: "CRC32", want: "CRC32"},
		{name: "binlog_error_action", value: "ABORT_SERVER", want: "ABORT_SERVER"},
		// Engine commits in log order: the prefix rule.
		{name: "binlog_order_commits", value: "ON", want: "ON"},
		{name: "binlog_group_commit_sync_delay", value: "0", want: "0"},
		{name: "max_binlog_size", value: strconv.Itoa(binlogBytesMax), want: strconv.Itoa(binlogBytesMax)},
		// Functions are replicated as rows. Without this option, only an account with SUPER
		// could create one, and none has it.
		{name: "log_bin_trust_function_creators", value: "ON", want: "ON"},
		{name: "sync_binlog", value: "0", want: "0"},
	}
}

// innodbSettings are what the durable mark rests on, and so the purge of the log: a power
// failure takes nothing that InnoDB had before a FLUSH ENGINE LOGS.
func innodbSettings() []setting {
	return []setting{
		{name: "innodb_flush_log_at_trx_commit", value: "2", want: "2"},
		{name: "innodb_flush_log_at_timeout", value: "1", want: "1"},
		{name: "innodb_doublewrite", value: "ON", want: "ON"},
		// The other methods leave out fsyncs: nosync, littlesync, and O_DIRECT_NO_FSYNC, which
		// 8.0 chooses by itself with innodb_dedicated_server.
		{name: "innodb_flush_method", checkOnly: true, among: []string{"fsync", "O_DSYNC", "O_DIRECT"}},
		// Recovery ends at the first block of the redo log that is torn.
		{name: "innodb_log_checksums", value: "ON", want: "ON"},
		{name: "innodb_checksum_algorithm", checkOnly: true, among: []string{"crc32", "strict_crc32"}},
	}
}

// semiSyncSettings make each commit wait for the ACK: the plugin cannot be unloaded, and the
// wait never ends by itself. An applier that binlogs would wait, too, but nobody sends ACKs to
// a replica. So there semi-sync is off until EnableSemiSync.
func semiSyncSettings(o StartOptions) []setting {
	enabled := setting{name: "rpl_semi_sync_source_enabled", value: "ON", want: "ON"}
	if o.ReplicaBinlog {
		enabled.value, enabled.want = "OFF", ""
	}
	return []setting{
		{name: "plugin_load_add", value: "rpl_semi_sync_source=semisync_source.so"},
		{name: "rpl_semi_sync_source", value: "FORCE_PLUS_PERMANENT"},
		enabled,
		{name: "rpl_semi_sync_source_timeout", value: "18446744073709551615", want: "18446744073709551615"},
		{name: "rpl_semi_sync_source_wait_no_replica", value: "ON", want: "ON"},
		{name: "rpl_semi_sync_source_wait_point", value: "AFTER_SYNC", want: "AFTER_SYNC"},
		{name: "rpl_semi_sync_source_wait_for_replica_count", value: "1", want: "1"},
		{name: "replication_sender_observe_commit_only", value: "ON", want: "ON"},
		{name: "replication_optimize_for_static_plugin_config", value: "ON", want: "ON"},
	}
}

// replicaSettings make a replica apply the log exactly, and after a crash ask for the
// transactions that gtid_executed lacks.
func replicaSettings(o StartOptions) []setting {
	updates := "OFF"
	if o.ReplicaBinlog {
		updates = "ON"
	}
	return []setting{
		{name: "sync_relay_log", value: "0", want: "0"},
		{name: "log_replica_updates", value: updates, want: updates},
		{name: "replicate_same_server_id", value: "ON"},
		{name: "relay_log_recovery", value: "ON", want: "ON"},
		{name: "skip_replica_start", value: "ON", want: "ON"},
		{name: "replica_preserve_commit_order", value: "ON", want: "ON"},
		{name: "replica_exec_mode", value: "STRICT", want: "STRICT"},
		{name: "replica_sql_verify_checksum", value: "ON", want: "ON"},
		{name: "replica_skip_errors", want: "OFF", checkOnly: true},
		// A longer event would stop the applier. On the primary, max_allowed_packet is the
		// bound.
		{name: "replica_max_allowed_packet", value: "1073741824", want: "1073741824"},
		{name: "relay_log_purge", value: "ON", want: "ON"},
	}
}

// fenceSettings close the ways to get around the settings above.
func fenceSettings() []setting {
	const engines = "MyISAM,MEMORY,CSV,ARCHIVE,BLACKHOLE,MRG_MYISAM,FEDERATED"
	disabled := append(strings.Split(engines, ","), "HEAP", "MERGE") // other names of MEMORY and MRG_MYISAM
	return []setting{
		// Only InnoDB keeps the GTID with the data.
		{name: "disabled_storage_engines", value: engines, want: engines},
		{name: "default_storage_engine", checkOnly: true, excludes: disabled},
		{name: "default_tmp_storage_engine", checkOnly: true, excludes: disabled},
		// Read-only and quiet until the agent opens it.
		{name: "super_read_only", value: "ON"},
		{name: "read_only", value: "ON"},
		{name: "event_scheduler", value: "OFF"},
		{name: "offline_mode", value: "OFF", want: "OFF"},
		{name: "persisted_globals_load", value: "OFF", want: "OFF"},
		{name: "partial_revokes", value: "ON", want: "ON"},
		{name: "skip_name_resolve", value: "ON", want: "ON"},
		{name: "secure_file_priv", value: "NULL", want: "NULL"},
		// The sessions of the agent, the tap and the clone account are not compressed: they stay
		// on this host.
		{name: "protocol_compression_algorithms", checkOnly: true, includes: "uncompressed"},
		// Here the agent sees sessions, dump threads and metadata locks.
		{name: "performance_schema", value: "ON", want: "ON"},
		{name: "performance_schema_max_thread_instances", value: "-1", want: "-1"},
		{name: "performance_schema_max_thread_classes", value: "100", want: "100"},
		{name: "performance_schema_max_metadata_locks", value: "-1", want: "-1"},
		// From it, ApplyWork reads how far a DDL has come.
		{name: "performance_schema_consumer_events_stages_current", value: "ON"},
		{name: "loose_mysqlx", value: "OFF"},
		// The agent reads the error log from a pipe (I6). That is the default; log_error=stderr
		// would mean a file of that name.
		{name: "log_error", want: "stderr", checkOnly: true},
		{name: "log_error_services", value: "log_filter_internal;log_sink_internal", want: "log_filter_internal;log_sink_internal"},
		// These print the text of clients' statements there, line breaks included: any client could write a line that
		// tells of a shutdown, or of a full disk.
		{name: "innodb_print_all_deadlocks", value: "OFF", want: "OFF"},
		{name: "innodb_status_output", value: "OFF", want: "OFF"},
		{name: "innodb_status_output_locks", value: "OFF", want: "OFF"},
	}
}

// versionedSettings are settings that only some versions of the server have.
func (c Config) versionedSettings() []setting {
	if c.Installation.Version.AtLeast(8, 4, 0) {
		// Later servers have no other choice than these values.
		return nil
	}
	// Removed with 8.4: the default there is COMMIT_ORDER, which keeps replicas
	// from applying in parallel.
	return []setting{
		{name: "binlog_transaction_dependency_tracking", value: "WRITESET", want: "WRITESET"},
		{name: "replica_parallel_type", want: "LOGICAL_CLOCK", checkOnly: true},
	}
}

// ownedOptions are names that the operator may not set although the guard does not compare
// their values: places, identity, and options that would keep transactions out of the binlog,
// skip transactions, or open another way in. Names are normalised (see normalizeOption). The
// values say why.
func ownedOptions() map[string]string {
	const (
		place    = "quorate places mysqld's files and sockets"
		identity = "quorate gives mysqld its identity"
		bypass   = "it would let transactions past the replicated log"
		equal    = "replicas hold exactly what the primary holds"
		broken   = "a server with it cannot do its part"
	)
	return map[string]string{
		"basedir": place, "datadir": place, "tmpdir": place, "replica_load_tmpdir": place,
		"socket": place, "pid_file": place, "port": place, "bind_address": place,
		"plugin_dir": place, "lc_messages_dir": place, "character_sets_dir": place, "log_bin_index": place,
		"relay_log": place, "relay_log_index": place, "chroot": place, "daemonize": place, "log_bin_basename": place,
		"innodb_data_home_dir": place, "innodb_log_group_home_dir": place, "innodb_undo_directory": place,
		"server_id": identity, "server_uuid": identity, "user": identity, "init_file": identity,
		"initialize": identity, "initialize_insecure": identity,
		"log_bin": bypass, "binlog_do_db": bypass, "binlog_ignore_db": bypass, "tc_heuristic_recover": bypass,
		"grant_tables": bypass, "plugin_load": bypass, "early_plugin_load": bypass, "mandatory_roles": bypass,
		"innodb_force_recovery": bypass, "innodb_read_only": bypass, "log_error_suppression_list": bypass,
		"source_info_repository": bypass, "relay_log_info_repository": bypass, "gtid_next": bypass, "sql_log_bin": bypass,
		"replica_type_conversions": equal, "innodb_native_foreign_keys": equal, "networking": place,
		"admin_address": place, "create_admin_listener_thread": place, "admin_listener_thread": place,
		"server_id_bits": identity, "init_replica": bypass, "innodb_force_load_corrupted": bypass,
		// In the order of the lines: mysqld does not start; the tap could not read (two
		// options); a stop of the applier must be waited for; the agent reads the binlog of an
		// errant server; the agent rolls back XA transactions that stay prepared for too long,
		// and can do so only if XA PREPARE detaches them from their session; with no-threads mysqld serves one session
		// at a time.
		"transaction_read_only": broken, "max_binlog_dump_events": broken, "sporadic_binlog_dump_fail": broken,
		"rpl_stop_replica_timeout": broken, "binlog_encryption": broken, "xa_detach_on_prepare": broken,
		"thread_handling": broken,
	}
}

// normalizeOption returns the one name by which an option is compared: the
// server takes dashes and underscores, the old words master and slave, and the
// prefixes skip_, disable_, enable_, loose_ and maximum_.
func normalizeOption(name string) string {
	name = strings.ReplaceAll(strings.ToLower(name), "-", "_")
	name = strings.ReplaceAll(name, "slave", "replica")
	name = strings.ReplaceAll(name, "master", "source")
	for {
		rest := name
		for _, prefix := range []string{"loose_", "skip_", "disable_", "enable_", "maximum_"} {
			rest = strings.TrimPrefix(rest, prefix)
		}
		if rest == name {
			return name
		}
		name = rest
	}
}

// guardedBy says why the operator may not set name to value; "" = it is allowed.
func guardedBy(name, value string) string {
	n := normalizeOption(name)
	if why, owned := ownedOptions()[n]; owned {
		return why
	}
	for _, prefix := range []string{"replicate_", "rpl_semi_sync", "group_replication", "wsrep_"} {
		if strings.HasPrefix(n, prefix) {
			return "replication is quorate's"
		}
	}
	if n == "plugin_load_add" {
		if v := strings.ToLower(value); strings.Contains(v, "semisync") || strings.Contains(v, "group_replication") {
			return "replication is quorate's"
		}
		return ""
	}
	for _, s := range guardedOfAnyVersion() {
		switch {
		case n != normalizeOption(s.name):
		case s.includes != "" && s.allows(value):
			return ""
		case s.includes != "":
			return "it must have " + s.includes + ": quorate's own sessions are"
		case s.excludes != nil && s.allows(value):
			return ""
		case s.excludes != nil:
			return "quorate disables this engine: tables could not be made without ENGINE=InnoDB"
		case s.among == nil:
			return "its value is part of quorate's promise"
		case !s.allows(value):
			return "it may be " + strings.Join(s.among, " or ") + ", as part of quorate's promise"
		}
	}
	return ""
}

// allows tells whether the operator may choose value.
func (s setting) allows(value string) bool {
	if s.includes != "" {
		return slices.ContainsFunc(strings.Split(value, ","), func(v string) bool { return strings.EqualFold(strings.TrimSpace(v), s.includes) })
	}
	if s.excludes != nil {
		return !slices.ContainsFunc(s.excludes, func(v string) bool { return strings.EqualFold(v, value) })
	}
	return slices.ContainsFunc(s.among, func(v string) bool { return strings.EqualFold(v, value) })
}

// guardedOfAnyVersion is guardedSettings for any server version.
func guardedOfAnyVersion() []setting {
	c := Config{Installation: &install.Installation{Version: install.VersionMin()}}
	return c.guardedSettings(StartOptions{})
}
