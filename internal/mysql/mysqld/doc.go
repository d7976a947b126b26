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
//	  room                     1 MiB of the disk, held back for the next start
//	  foreign-xa               a client committed what the applier had prepared: its data differ
//	  mysqld.lock              flock'ed by every mysqld that runs on this directory
//
// Where the agent is root and mysqld is not, mysqld's account owns data, relay, tmp, run and
// the content of binlog, and nothing else: in a directory that it owns, it could put a link
// that leads root to any other file. In these directories the agent follows no link (tree.go).
//
// # Why a graceful stop is forbidden (I6)
//
// A server that shuts down answers OK to every session that waits for a semi-sync ACK. So a
// Process is stopped by SIGKILL, unless SetSuperReadOnly has returned nil, which proves that no
// session waits. StopGracefully also shuts all clients out, and asks the server again. A
// shutdown that was not ordered here (a SIGTERM from systemd or a terminal, SHUTDOWN or RESTART
// from a client) is answered with SIGKILL at once, before sessions get an OK. There is time for
// that: the server first writes to its error log, and while a replica is connected it waits
// seconds for the replica. With no replica connected there is no time: sessions get OK the
// moment the signal arrives. So the agent keeps its tap connected as long as writes are open. A
// canary session is the second sign of a shutdown.
//
// # Incarnations
//
// Crash recovery commits the prepared transactions that it finds in an old binlog, acknowledged
// or not. So every start has a new number, durable before the process exists, and a new binlog
// directory and base name. The start removes older directories without a transaction, and the judge
// of the new server the others. A half-finished removal does no harm. A position of an old
// incarnation never names a file of a new one.
//
// # A full disk
//
// InnoDB deletes the temporary tables of a killed mysqld when it starts, and the judge the old
// binlogs. So a mysqld whose disk is full must start. Start needs a few blocks for its files
// before that: they come from the file room, which is removed first, together with the content of
// tmp. It is made again when mysqld is ready or has ended, if there is space. A crash in between
// leaves no room: then the next start has what is free. Where the file system cannot set space
// aside (ZFS, NFS 3), room holds nothing, or there is none.
//
// # Prepared XA transactions
//
// An applier does not binlog what it applies (log_replica_updates=OFF). If it has prepared an
// XA transaction in that way, the server does not binlog the XA COMMIT or XA ROLLBACK either,
// and gives no error: a primary would acknowledge an end that no log has. When the server
// starts, it rolls such a transaction back and loses its GTID, so the transaction is applied
// again. With StartOptions.ReplicaBinlog the applier does binlog, and then the end of the
// transaction is binlogged like any other. (The server accepts log_replica_updates beside
// replicate_same_server_id if gtid_mode is ON.) An incarnation with that option serves one
// promotion and is never a replica afterwards: its applier would wait for ACKs.
//
// Where a client of a replica ends an XA transaction that the applier has prepared, no GTID
// shows it: see Process.ForeignXA.
//
// # One server per directory
//
// The child inherits a descriptor on mysqld.lock, which carries a flock. The kernel drops the
// lock when the last such descriptor closes, that is, when the process is really gone, even if
// it outlived its agent in an uninterruptible sleep. Start waits for that lock before it
// touches a file. The child keeps the files of Config.Inherit open for the same time.
//
// The child lives in a session of its own (terminal signals do not reach it) and dies with the
// thread that spawned it (parent-death SIGKILL). That thread is locked to a goroutine for the
// life of the child, because the Go runtime ends idle threads. CAP_NET_ADMIN and CAP_NET_RAW
// are for the agent only and are not passed on. Privileges are dropped by the spawn, before the
// parent-death signal is set: mysqld's own --user would clear it. Signals go through
// os.Process, which holds a pidfd, so they cannot hit a recycled pid.
//
// # Accounts
//
// An init file, run by the server before it accepts connections and with sql_log_bin=0, creates
// the accounts and resets their passwords at every start (a CLONE brings another node's
// mysql.user). Its last statement writes the incarnation number into the admin account. Ready
// reads it back, because a server goes on where its init file failed.
//
//	quorate_admin@localhost   this agent; every privilege
//	quorate_tap@localhost     REPLICATION SLAVE; SYSTEM_USER, so that only an account with SYSTEM_USER can change it;
//	                          CONNECTION_ADMIN, so that no limit of connections keeps it out
//	quorate_clone@localhost   BACKUP_ADMIN, SYSTEM_USER, CONNECTION_ADMIN: another node's mysqld, which copies this one's data
//	quorate_router@localhost  SYSTEM_USER, CONNECTION_ADMIN, and writes to the schema that MySQL Router reads and to that of
//	                          the events: the agent of a primary writes there, into the binlog
//	quorate_follow@localhost  every privilege: the agent of a primary writes the transactions of a followed source
//	dba@localhost             for the operator: every privilege that cannot bypass the ACK, WITH GRANT OPTION
//	root@localhost            random password, locked
//	quorate_dba@'%'           a role with the privileges of dba, for people's own accounts
//
// With skip_name_resolve, 'localhost' matches the Unix socket only: none of these accounts can
// connect over TCP or through the router. partial_revokes keeps dba from writing the grant
// tables, by which it could give itself every privilege.
//
// Secrets live in a TOML file of mode 0600 (see Secrets).
//
// # Goroutines
//
// New starts none. A Process has three: the spawner (locked thread, waits for the child), the
// error log reader, and the canary, which begins its session after Ready. Done is closed when
// all of them have ended.
//
// # Durability
//
// The incarnation number, the secrets and an initialised data directory are fsynced, file and
// directory, before they are used. mysqld itself runs with sync_binlog=0 and
// innodb_flush_log_at_trx_commit=2: an acknowledgement rests on the agent's log, and from that
// log a restarted server gets what it lacks.
package mysqld
