package install

// SmallServer returns variables that let several servers share a small machine, in a demo and in tests:
// with 128 MiB of buffer pool and 96 MiB of redo log each, three of them stay below 1 GiB. The server
// allocates and zeroes the log buffer, the table caches and the tables of performance_schema at every
// start: with MySQL's defaults that is 270 MiB, and a third of the cost of a start. Here they are
// small, or off where nobody reads them. The histories of transactions stay, because tests read them.
func SmallServer() map[string]string {
	return map[string]string{
		"innodb_buffer_pool_size":  "128M",
		"innodb_redo_log_capacity": "96M",
		"innodb_log_buffer_size":   "4M",
		"innodb_doublewrite_pages": "16",
		"max_connections":          "300",
		"table_open_cache":         "400",
		"table_definition_cache":   "400",

		// Without O_DIRECT a start reads what the page cache has: a tenth of its processor time, and a quarter of its wall time.
		"innodb_flush_method":     "fsync",
		"innodb_read_io_threads":  "1",
		"innodb_write_io_threads": "1",

		"performance_schema_max_memory_classes":                  "0",
		"performance_schema_max_mutex_classes":                   "0",
		"performance_schema_max_rwlock_classes":                  "0",
		"performance_schema_max_cond_classes":                    "0",
		"performance_schema_max_file_classes":                    "0",
		"performance_schema_max_socket_classes":                  "0",
		"performance_schema_hosts_size":                          "0",
		"performance_schema_users_size":                          "0",
		"performance_schema_error_size":                          "0",
		"performance_schema_digests_size":                        "200",
		"performance_schema_events_statements_history_size":      "0",
		"performance_schema_events_statements_history_long_size": "0",
		"performance_schema_events_stages_history_size":          "0",
		"performance_schema_events_stages_history_long_size":     "0",
		"performance_schema_events_waits_history_size":           "0",
		"performance_schema_events_waits_history_long_size":      "0",
	}
}
