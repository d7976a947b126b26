// Package mysqlwire speaks MySQL's replication protocol with the local mysqld,
// in both directions.
//
// The tap is mysqld's semi-synchronous replica. It turns the binlog stream of
// the primary into entries for Raft and acknowledges what was committed: the
// only thing that lets mysqld answer a client. The feed is the source of a
// mysqld that is a replica: it serves the committed log.
//
// # Wire
//
// A packet is a payload behind a 3-byte length and a sequence number. Login
// and commands are exchanges; their sequence numbers are kept by wire. Streams
// have a framing of their own, because the directions are independent there:
//
//	source to tap       | header | 00 | EF | flag | event |
//	tap to source       | header, sequence 0 | EF | u64 position | base name |
//	feed to replica     | header | 00 | event |
//
// A payload of 2^24-1 bytes or more is cut into packets of that length and a
// shorter, possibly empty, last one. Handshakes use caching_sha2_password: the tap
// is on a Unix socket, where mysqld takes the password in clear when it must; the
// feed verifies the scramble. TLS is for downstream readers alone: the feed of our
// own mysqld is on loopback.
//
// # Tap
//
//	            readLoop                       proposeLoop            ackLoop
//	socket ──► packetReader ─► tap.Machine ─► growing batch ─► propose()
//	                               │      │                                  socket
//	                               │      └──► positions ────────────────►  ACK
//	                               ▼               ▲ Ack(number)
//	                          StageWriter
//
// Package tap decides everything (I2, I9, what makes a batch); here are the
// connection, the clock and three goroutines, which Run owns. They wait for the socket, or by
// clock.Tasks, so the simulator runs them, too. The reader gives
// every event to the machine. As soon as it has nothing more at hand, it proposes the
// whole transactions of the one growing batch itself; where that would block, or a
// batch is full, the proposer does, and keeps taking one batch at a time. Ack writes an
// acknowledgement itself where the socket takes it at once; the third goroutine writes
// the others, several commits' as one. While propose blocks, the batch grows to its
// limit, then the reader stops, then mysqld's dump thread: back-pressure, never a drop. Close ends it
// all, and with it every position that waits: a new tap starts empty, so that no
// position of one incarnation of mysqld can reach another.
//
// A transaction above StageBytesMin goes to a stage, which the reader opens once
// everything before it was taken, writes as the bytes arrive, and finishes; then
// the batch that names it is handed out. A stage that blocks is back-pressure
// too. Of an event longer than 1 MiB, unless it is a statement, the machine sees
// the header, and the rest passes in parts of at most 1 MiB. When the tap ends, an
// unfinished stage is aborted.
//
// Durability: none of its own. The tap says what is to be made durable, and is
// told when it is.
//
// # Feed
//
// Run owns the accept loop and one goroutine per connection, at most
// strangersMax that have not logged in, and connectionsMax that have; a dump has two more: one waits for the log, one sees the
// replica leave. All end before Run returns. The log's transactions are
// sent whole, committed, in log order (I4, the cursor's duty), and as they are but
// for two things: most are wrapped (binlog.WrapPayload), and as many may be applied
// at the same time as the replica has workers (binlog.LimitParallel). At
// each boundary (epoch, rotation) the feed sends an artificial ROTATE to a new
// name and the FORMAT_DESCRIPTION, which restarts the logical clock. It counts
// the position as the replica does, 4 plus the lengths of all events since the
// ROTATE, because a heartbeat with another position stops the replica. A
// replica that connects again ends its previous dump.
//
// A staged transaction is read from where it is while it is sent, in parts of at
// most 1 MiB. Each event's checksum is verified before its last packet is whole:
// if it is wrong the connection ends there, and the replica has no such event.
//
// # Door
//
// A Door logs a client of another host in by a password of its own, and itself in to
// mysqld for it: another node's mysqld, which copies this one's data. Without TLS, as the
// feed: the agents' connection is around it. Afterwards bytes are passed on unread.
//
// # Readers
//
// A Feed with ReadersConfig serves downstream readers instead of our own mysqld:
// accounts of their own, a bounded number of connections, from where an account may
// come from (others are closed without a word), dumps by GTID or by file
// and position, and the queries that such clients ask first. What they get differs
// in four ways. Transactions that a reader has are left out. Last committed is as it
// was. Events get the position that they have in the reader's file, and with it a new
// checksum, after the old one was verified. And where the reader wants it,
// TRANSACTION_PAYLOAD events are unpacked.
//
// A reader may ask for TLS as of a real source: the greeting offers it, the reader answers with
// the beginning of a login, and the login comes inside of TLS. Who is not on this host has to, or
// gets error 3159 whatever it says of itself. The certificate is that of the moment.
//
// A file's name is the index of the log's entry with which it begins; ROTATE ends
// it before an epoch, before a rotation of the primary's binlog, and behind each
// staged transaction. All of that follows from committed entries, so that every
// node means the same by a position. To find one, its file is read from the
// beginning, and nothing is sent before it.
//
// A reader with SQL has a session in the local mysqld, too, from its first statement to its dump, by mysqld's account of the same
// name and password. The capabilities of both sides are the same, so answers are passed on packet by packet; the reader's goroutine does
// it. statement.judge says which statements are passed on. Where the log ends is then the place of what that mysqld has, so
// that it goes with what the reader sees there.
//
// # Foreign
//
// A Foreign reads the binlog of a server that is not part of the cluster, over TCP, as its replica: TLS if it is asked for,
// caching_sha2_password or mysql_native_password, a dump by GTID. Without TLS the password goes out encrypted by the
// server's own key. It has no goroutine: Next waits, for four heartbeats at most. It holds one event.
//
// Bounds: the tap holds one batch of max(1 MiB, one transaction that is
// not staged), the read buffer, and one event of at most 1 MiB or one statement;
// a dump holds three pieces, writeBytesMin and, of a stage, 1 MiB. Events have at
// most 1 GiB, commands of a client 16 MiB, packets before login 64 KiB.
//
// Sources: sql/rpl_binlog_sender.cc, sql/rpl_replica.cc, plugin/semisync and
// sql/auth/sha2_password.cc of MySQL 9.7.4.
package mysqlwire
