// Package peers deploys the systems that the lab compares, each as its own
// documentation and the best public advice say, on the nodes of one network:
// real servers, real routers, nothing reimplemented.
//
//	standalone  one mysqld
//	async       a source and two replicas with GTIDs
//	semisync    the same, AFTER_SYNC, without a timeout
//	mgr         Group Replication, single primary, consistency EVENTUAL
//	mgr-after   the same with consistency AFTER
//	mgr-multi   Group Replication, every node takes writes
//	galera      MariaDB and galera-4
//	router      mgr behind mysqlrouter
//	quorate     three nodes of quorate; or two clusters of three, of which one follows the other
//
// # What it owns
//
// Every process of a deployment, and the directory Options.Dir:
//
//	DIR/a/my.cnf      option file of node a (node.toml for quorate)
//	DIR/a/data/       its data directory, unless Options.DataDirs says otherwise
//	DIR/a/log         what the server printed, appended from start to start
//	DIR/a/s           its Unix socket
//	DIR/b/ …
//
// and Options.Templates: data directories that were initialised once for each
// installation and are copied. A copy has no identity of its own: server_uuid
// is made at its first start.
//
// # Fairness
//
// Every server has the settings of sharedVariables. Beside them a system has the settings that
// define it, and those of the best public advice. Facts lists all of
// them with the reason, and with the values that the servers reported: Deploy fails if a server has another value than
// it was given. Durability on every acknowledging server is (1, 1):
// sync_binlog and innodb_flush_log_at_trx_commit. The exceptions are Galera, which has no
// binary log, and quorate, which fsyncs its own log instead.
//
// # Steps of people
//
// Failover and Recover do what an operator (or his script) does if a system
// does not do it by itself, and return these steps: their number is a result.
// Restart does what the service manager does, with the option file as it is, and
// does not count as a step.
//
// # Processes and goroutines
//
// Deploy starts the processes through Net, which ends them with the lab, and
// leaves nothing else behind. A Deployment may be used from several goroutines; only
// one may kill, start, freeze or thaw a given node at a time.
//
// # Limits
//
// StopApply stops the appliers of a replica, which goes on receiving.
// For mgr, galera and quorate that is a global read lock, held by a session of
// the Deployment: if it stopped their appliers in another way, their own management would start
// them again. For galera the node is desynchronised first, else its flow control
// would stop the writers.
package peers
