// Command bench measures quorate against what it would replace, on one machine,
// in one run, and prints ratios; `make bench` builds and runs it.
//
//	sysbench  oltp_write_only and oltp_read_write at 1, 16 and 64 threads on
//	          quorate (three nodes; through the router and directly on the
//	          primary), on one standalone server, and on three servers in
//	          asynchronous GTID replication. The rivals run with sync_binlog=1
//	          and innodb_flush_log_at_trx_commit=1.
//	split     where a commit's time goes: the agents' own histograms
//	          (quorate_*_seconds) over a window of write load
//	kills     the write gap over SIGKILLs of the primary's mysqld, and of its
//	          agent and mysqld, with the ledger checked at the end
//	failures  the write gap, p50 and p99, over the ways in which a primary is
//	          lost: mysqld killed, agent and mysqld killed, the host frozen, the
//	          host cut off; beside what others need
//	switchover  the write gap, p50 and p99, of a primary that moves in order
//	large     the COMMIT of one transaction of 64 and of 256 MiB, and the longest
//	          commit of small ones meanwhile, on quorate (through the router), on
//	          one standalone server, and on a semi-synchronous pair
//	log       the log's own Go benchmarks: group commit beside the floor of the
//	          same disk, and beside a reader that catches up
//
// # What makes the figures comparable
//
// All servers are up all the time, with the same variables but for what the
// comparison is about, and take turns: A B C A B C. A ratio is the median of
// the ratios of each round, because the machine is shared and noisy. Before a
// turn, sync(2) takes what the turn before has left in the page cache off the
// bill of the next; how long that took is in the JSON output.
//
// Replicas must have everything at the end of a turn. Effective transactions
// per second are transactions / (time of the load + time to catch up): a system
// that only defers its work does not gain by it.
//
// CPU times are utime+stime of the processes (proc_pid_stat(5)) from the start
// of the load to the end of the catching up. The client runs on the same
// machine and takes its share, which is shown as well.
//
// One thing to know of the rival async: the coordinator of MySQL's
// multi-threaded applier waits for a free worker in a loop of sched_yield
// (Mts_submode_logical_clock::get_least_occupied_worker,
// sql/rpl_mta_submode.cc). Where the workers wait for fsyncs and cores are
// few, as on one small machine, the coordinators of two replicas take most of
// two cores from everybody else, which shows as CPU per transaction of its
// mysqlds. On machines of their own they would not. So the ratio to standalone
// is the harder one, and --set replica_parallel_workers=N shows the effect.
//
// # Authentication
//
// sysbench on Debian is linked to libmariadb, whose package brings the client
// plugin for caching_sha2_password. Over a Unix socket it sends the password,
// over TCP without TLS it asks the server for its RSA key, so the first
// connection to a server whose cache is cold succeeds as well: nothing is
// needed beyond the package. (Checked with 1.0.20 against 9.7.4, after FLUSH
// PRIVILEGES and with Ssl_finished_accepts = 0.) Replicas ask for the key by
// GET_SOURCE_PUBLIC_KEY=1.
//
// # What it owns
//
// One temporary directory and every process started in it. Servers die with
// this process (parent-death SIGKILL); SIGINT and SIGTERM end the run in order
// and remove the directory. After a failure the servers' logs stay.
package main
