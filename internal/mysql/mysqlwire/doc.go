// Package mysqlwire speaks MySQL's replication protocol with the local mysqld,
// in both directions.
//
// The tap is mysqld's semi-synchronous replica. It turns the binlog stream of the primary into
// entries for Raft and acknowledges what was committed. Only that ACK lets mysqld answer a
// client. The feed is the source of a mysqld that is a replica: it serves the committed log.
//
// # Wire
//
// A packet is a payload behind a 3-byte length and a sequence number. Login and commands are
// exchanges; type wire keeps their sequence numbers. Streams have a framing of their own,
// because their two directions are independent:
//
//	source to tap       | header | 00 | EF | flag | event |
//	tap to source       | header, sequence 0 | EF | u64 position | base name |
//	feed to replica     | header | 00 | event |
//
// A payload of 2^24-1 bytes or more is cut into packets of that length and a shorter, possibly
// empty, last one. Handshakes use caching_sha2_password: the tap is on a Unix socket, so it may
// send the password in clear where mysqld asks for that; the feed verifies the scramble. Only
// downstream readers use TLS: the feed of our own mysqld is on loopback.
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
// Package tap decides everything (I2, I9, what makes a batch). This package has the connection, the
// clock and three goroutines, which Run owns. They wait for the socket, or by clock.Tasks, so the
// simulator runs them, too. The reader gives every event to the machine. As soon as it has nothing
// more at hand, it proposes the whole transactions of the one growing batch itself. Where that would
// block, or a batch is full, the proposer goroutine takes the batches, one at a time. Ack writes an
// acknowledgement itself where the socket takes it at once. The third goroutine writes the others,
// one for several commits. While propose blocks, the batch grows to its limit, then the reader stops,
// then mysqld's dump thread: back-pressure, never a drop. Close ends the tap and drops every position
// that waits. A new tap starts empty, so no position of one incarnation of mysqld can reach another.
//
// A transaction above StageBytesMin goes to a stage. The reader opens the stage once every
// batch before it was taken, writes the bytes as they arrive, and finishes it; then the batch
// that names it is handed out. A stage that blocks is back-pressure, too. An event longer than
// 1 MiB that is no statement passes in parts of at most 1 MiB; the machine needs only its
// header. When the tap ends, an unfinished stage is aborted.
//
// The tap makes nothing durable itself. It says what must be durable, and is told when it is.
//
// # Feed
//
// Run owns the accept loop, one goroutine that looks for hosts that have died, and one per connection: at most
// strangersMax connections that have not logged in, and connectionsMax that have. A dump, and a statement that mysqld
// answers, have one goroutine more, which sees the client leave. All end before Run returns. The feed sends whole
// committed transactions in log order (I4; the cursor sees to that). It changes them in two ways: most are wrapped
// (binlog.WrapPayload), and no more may be applied at the same time than the replica has workers
// (binlog.LimitParallel). At each boundary (epoch, rotation) the feed sends an artificial ROTATE to a new name and the
// FORMAT_DESCRIPTION, which restarts the logical clock. It counts the position as the replica does, 4 plus the lengths
// of all events since the ROTATE, because a heartbeat with another position stops the replica. A replica that connects
// again ends its previous dump.
//
// A staged transaction is read from the log while it is sent, in parts of at most 1 MiB. The
// checksum of each event is verified before its last packet is complete. If it is wrong, the
// connection ends there, and the replica does not get that event.
//
// # Door
//
// A Door lets the mysqld of another node in, which copies the data of this one. That client
// logs in to the Door with a password of the Door's own, and the Door logs in to mysqld for it.
// There is no TLS, because the connection between the agents already protects the bytes.
// Afterwards the Door passes on commands that copy data and refuses all others.
//
// # Readers
//
// A Feed with ReadersConfig serves downstream readers instead of our own mysqld: accounts of
// their own, a bounded number of connections, addresses from which an account may connect
// (other connections are closed without an answer), dumps by GTID or by file and position, and
// answers to the queries that such clients ask first. Their dumps differ in four ways.
// Transactions that a reader has are left out. last_committed stays as the primary wrote it.
// Events get the position that they have in the reader's file, and with it a new checksum,
// after the old one was verified. TRANSACTION_PAYLOAD events are unpacked where the reader
// wants it.
//
// A reader may ask for TLS as it would ask a real source: the greeting offers it, the reader
// answers with the beginning of a login, and the login comes inside of TLS. A reader on another
// host must use TLS: otherwise it gets error 3159, whatever account it names. The certificate is
// the one in force when the reader connects.
//
// A file's name is the index of the log's entry with which it begins; ROTATE ends it before an
// epoch, before a rotation of the primary's binlog, behind each staged transaction, and behind
// the entry that makes it longer than 4 GiB. All of that follows from committed entries, so a
// position means the same on every node. To find a position, the feed reads the file from its
// beginning and sends nothing that is before the position.
//
// A reader with SQL also has a session in the local mysqld, from its first statement to its dump, as mysqld's account
// of the same name and password. The capabilities of both connections are the same, so the reader's goroutine passes
// answers on packet by packet. statement.classify says which statements are passed on. The position that such a reader
// is told as the end of the log is where that mysqld is, so it fits the rows that the reader sees there.
//
// # Foreign
//
// A Foreign reads the binlog of a server that is not part of the cluster, over TCP, as its replica: with TLS if the
// configuration asks for it, caching_sha2_password or mysql_native_password, a dump by GTID. Without TLS it encrypts
// the password with the server's public key. It has no goroutine: Next waits, and gives up when nothing has
// come for four heartbeat periods. It holds one event.
//
// Bounds: the tap holds one batch of max(1 MiB, one transaction that is not staged), the read
// buffer, and one event of at most 1 MiB or one statement; a dump holds one piece,
// writeBytesMin and 1 MiB of a stage. Events have at most 1 GiB, a client's dump requests 16 MiB,
// its other commands 1 MiB, packets before login 64 KiB.
//
// Sources: sql/rpl_binlog_sender.cc, sql/rpl_replica.cc, plugin/semisync and
// sql/auth/sha2_password.cc of MySQL 9.7.4.
package mysqlwire
