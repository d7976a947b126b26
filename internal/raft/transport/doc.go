// Package transport carries Raft messages, status blobs, routed client streams,
// bulk copies and calls between the agents of one cluster, over TCP with frames of
// its own.
//
// # What it owns
//
// The peer port, every connection between agents until a routed stream is
// handed over, and the queues in front of them. It holds nothing durable.
//
// A Door decides who may connect, and to whom this node talks: by cluster, name, key and address of both sides,
// and then by the Handler, which knows the data directories.
//
// The package does not interpret messages. Raft tolerates lost, late and repeated messages, so a message that
// cannot be sent is dropped and counted. What the package promises:
//
//   - Messages of one class from one peer process arrive in the order in which
//     they were sent, also across a reconnect.
//   - Send never blocks. Every queue is bounded (queue.go), and Raft hears of a
//     dropped append through Handler.PeerUnreachable.
//   - Received bytes reach the handler only if magic, length and CRC32C are
//     right, the message is from and to the nodes of the handshake, and agents
//     do send such messages (unsent). Anything else ends the connection.
//   - PeerDown(id, true) is called only after every address of the peer has
//     refused a new dial. An address that its name had before, and that no name
//     server confirms, does not count. A peer closes its listener as the last act of its
//     Run, so this means that its process is gone while its host is alive. (Or
//     that a firewall answers with a reset: never configure REJECT between
//     nodes.)
//
// # Connections
//
// Each node dials every peer. A dialled connection carries only what the dialler sends; the other direction has
// only the answer to the handshake.
//
//	          control: votes, heartbeats, answers, status
//	node a  ────────────────────────────────────────────►  node b
//	          append: MsgApp
//	        ────────────────────────────────────────────►
//	        ◄────────────────────────────────────────────
//	          the same two, dialled by b
//	        ◄───────────────────────────────────────────►
//	          route, read: one client stream, dialled by either
//	        ◄───────────────────────────────────────────►
//	          bulk: one copy (package bulk), dialled by either
//	        ◄───────────────────────────────────────────►
//	          call: one question, one answer (package control), dialled by either
//
// There are two classes so that a large append never delays a heartbeat. MsgApp without entries travels with
// the control messages (classOf says why).
//
// For each connection the handshake chooses the highest protocol version that both sides speak, so agents can
// be upgraded one after the other. A feature that a peer's version lacks is not used towards that peer
// (version.go). testdata/v1 has the bytes of an agent of version 1.
//
// # Keys
//
// A connection is plain, or TLS 1.3 around the same bytes (secure.go). Its first byte tells which. Each side
// knows the other one by its key (package nodekey), which Peer has. Names and times in certificates are not
// checked. Config.Security and SetSecurity say which connections are made and accepted:
//
//	          dials                          accepts
//	plain     plain                          both
//	both      TLS, or else plain             both
//	require   TLS                            TLS; a node without a peer's key is told no reason
//
// The node that dials checks the key of the peer that it wants, before it says who it is. The node that answers
// checks that the key is a peer's, and then that it belongs to the peer that the greeting names.
//
// A Handler that is a Hearer hears who dials, also if that node is refused. While it wants to know, a node whose key
// is no peer's may say who it is, and is told a code and nothing else.
//
// SetPeers changes the peers, while Run is under way.
//
// A lost connection that had lasted a second is dialled again at once: that shows whether the peer's process is
// dead. Further dials wait: 50 ms to 1 s, or 1 s after a rejection. A peer that connects to this node ends that
// wait. A silent host is noticed by TCP_USER_TIMEOUT (5 s) on the sending side, and after 10 s without a byte
// on the receiving side; idle senders ping. Raft has its own, faster timers and does not wait for any of these.
// Once nothing has come from a peer for 10 s on either class, its routed streams are closed, on both sides.
//
// A peer's name is looked up at each dial. If that fails, or takes half of a dial's time, the addresses that the name
// had last are dialled (names.go).
//
// # Goroutines
//
// New starts none. Run owns, and ends after:
//
//	accept    one; takes connections
//	inbound   one for each accepted connection: handshake, then reads and calls
//	          Handler.Raft and Handler.Status; ends after Handler.Route,
//	          Handler.Bulk or Handler.Call
//	link      one for each peer and class: dials, then writes what Send has not
//	          written itself (pen.go): what the kernel did not take at once, long
//	          batches, pings, the status
//	lookup    at most one for each peer: looks its name up, for the dials that
//	          wait for it, and for later ones
//	watcher   one for each established outgoing connection: blocked in a read
//	          that only ends with the connection
//	notifier  one; calls Handler.PeerUnreachable, so that Send never does, and looks for peers that are silent
//
// # Frames
//
// Behind the handshake, control and append connections carry frames (package frame, "QF").
//
// MsgApp is the hot path and has a layout of its own. The entries' data is written from where it lies (writev),
// and the receiver's entries alias the one buffer into which they were read. Measured on two cores: encode and
// decode of a 1 MiB entry took 0.26 ms against 0.87 ms for protobuf; of 64 entries of 1 KiB, 25 µs and 7
// allocations against 36 µs and 335 (BenchmarkCodec). A 1 KiB append and its answer take 22 µs over loopback
// (BenchmarkRoundTrip).
//
// The handshake and all payloads are in docs/formats.md, "Peer protocol".
package transport
