// Package mysqld runs a node's MySQL server as a supervised child process.
//
// It owns the process (pid and phase), the server's configuration file, the
// internal accounts, and everything below the node's mysql directory. Nobody
// else starts, signals or reconfigures mysqld.
//
//	DataDir/
//	  data/                    the server's data directory (I3: judged by the agent)
//	  binlog/0000000017/       one directory per incarnation, base name q0000000017
//	  relay/ tmp/ run/         relay logs, temporary files, socket + pid file
//	  my.cnf init.sql          option file; init file, until Ready
//	  incarnation              the last incarnation number: decimal digits, newline
//	  foreign-xa               a client committed what the applier had prepared: its data differ
//	  mysqld.lock              flock'ed by every mysqld that runs on this directory
//
// Where the agent is root and mysqld is not, mysqld's account owns data, relay, tmp, run and
// what is in binlog, and nothing else: with what it owned it could lead root to any other file.
// In these directories the agent follows no link (tree.go).
//
// # Why a graceful stop is forbidden (I6)
//
// A server that shuts down answers OK to every session that waits for a
// semi-sync ACK. So a Process is stopped by SIGKILL, unless SetSuperReadOnly
// returned, which proves that nothing waits; StopGracefully shuts all clients out and
// asks the server again before it believes it. A shutdown that was not ordered here (a SIGTERM
// from systemd or a terminal, SHUTDOWN or RESTART from a client) is answered
// with SIGKILL at once, before anybody is told: the error log says so first,
// and while a replica is connected the server waits seconds for it, which is
// the window. With no replica connected there is no window: sessions are let go
// the moment the signal arrives. The agent therefore keeps its tap connected
// for as long as writes are open. A canary session is the second witness.
//
// # Incarnations
//
// Crash recovery commits what it finds prepared in an old binlog, acknowledged
// or not. Every start therefore has a new number, durable before the process
// exists, and a new binlog directory and base name; older directories are
// removed afterwards. A half-finished removal does no harm, and the position of
// an old incarnation never names a file of a new one.
//
// # Prepared XA transactions
//
// What an applier does is not binlogged (log_replica_updates=OFF). Of an XA
// transaction that was prepared so, the server binlogs no XA COMMIT and no XA
// ROLLBACK either, without an error: a primary would acknowledge what no log
// holds. A server that starts rolls such a transaction back and loses its GTID,
// so it is applied again. With StartOptions.ReplicaBinlog it is applied with a
// binlog, and its end is binlogged like that of any other. (The server accepts
// log_replica_updates beside replicate_same_server_id if gtid_mode is ON.) An
// incarnation with that option serves one promotion and is never a replica
// afterwards: its applier would wait for ACKs.
//
// What a client ends on a replica of what the applier has prepared leaves no GTID:
// see Process.ForeignXA.
//
// # One server per directory
//
// The child inherits a descriptor on mysqld.lock, which carries a flock. The
// kernel drops the lock when the last such descriptor closes, that is when the
// process is really gone, even if it died in an uninterruptible sleep after its
// agent did. Start waits for that lock before it touches a file. Config.Inherit
// are further files that the child keeps open for as long.
//
// The child lives in a session of its own (terminal signals do not reach it)
// and dies with the thread that spawned it (parent-death SIGKILL). That thread
// is locked to a goroutine for the life of the child, because the Go runtime
// ends idle threads. It does not pass CAP_NET_ADMIN and CAP_NET_RAW on, which are the agent's.
// Privileges are dropped by the spawn, before the parent-death signal is set:
// mysqld's own --user would clear it. Signals go through os.Process, which holds
// a pidfd, so they cannot hit a recycled pid.
//
// # Accounts
//
// An init file, run by the server before it accepts connections and with
// sql_log_bin=0, creates the accounts and resets their passwords at every start
// (a CLONE brings another node's mysql.user). Its last statement writes the
// incarnation number into the admin account; Ready reads it back, since a
// server goes on after an init file that failed.
//
//	quorate_admin@localhost   this agent; every privilege
//	quorate_tap@localhost     REPLICATION SLAVE; SYSTEM_USER, so that only its like can change it; CONNECTION_ADMIN,
//	                          so that no limit of connections keeps it out
//	quorate_clone@localhost   BACKUP_ADMIN, and those two: another node's mysqld, which copies this one's data
//	quorate_router@localhost  SYSTEM_USER and CONNECTION_ADMIN, and all on the schema that MySQL Router reads: the agent of
//	                          a primary writes there, into the binlog
//	dba@localhost             the operator's: whatever cannot bypass the ACK, WITH GRANT OPTION
//	root@localhost            random password, locked
//	quorate_dba@'%'           a role with what dba has, for people's own accounts
//
// With skip_name_resolve, 'localhost' matches the Unix socket only: none of
// these can come in over TCP or through the router. partial_revokes keeps dba
// from writing the grant tables, which would give it everything else.
//
// Secrets live in a TOML file of mode 0600 (see Secrets).
//
// # Goroutines
//
// New starts none. A Process has: the spawner (locked thread, waits for the
// child), the error log reader, and,
// after Ready, the canary. Done is closed when all of them have ended.
//
// # Durability
//
// The incarnation number, the secrets and an initialised data directory are
// fsynced, file and directory, before they are used. mysqld itself runs with
// sync_binlog=0 and innodb_flush_log_at_trx_commit=2: the agent's log is what
// an acknowledgement stands on, and what a restarted server is brought forward
// from.
package mysqld
