// Package router owns the client-facing ports and every client connection. A Router has one port: the port for all
// clients, whose target is the primary, or the port for clients that only read, whose targets are replicas. The
// Backend makes the difference: to which node a client goes (Choose), whether that node still takes it (Takes), and
// when sessions must leave the node (Leaves). The text below describes the first port. For the other, read "a
// replica" in place of "the primary", and "is still a replica's mysqld" in place of the lease.
//
// It passes bytes, and knows little of the MySQL protocol: the error that it sends when it cannot connect a client,
// the refusal of a login, which it counts, the end of a login, also by the heads of TLS records, and the two commands
// that have no answer. It logs each session that ends (a bounded number), because mysqld does not know the client's
// address. A client may connect to any node. On the primary's node its bytes go to the local mysqld; on any other
// node they go through the peer port to the router of the primary's node, which passes them to its mysqld or refuses;
// it never forwards them again, so there are no loops. With Config.Refuse it refuses clients there.
//
// Where the kernel fences mysqld's own port (package netfence), the kernel redirects new
// connections on the primary's node to that port, and the router does not see them.
//
//	client ──► router (primary's node) ──────────────────► mysqld
//	client ──► router (other node) ──peer port──► router ──► mysqld
//
// # Holding
//
// A MySQL client waits for the server to speak first. So while there is no primary, a new
// connection simply waits, at most for Config.HoldTimeout. At most Config.HoldMax connections
// wait: when there are more, the oldest client of the address that has the most gets an error
// at once. Connections that are open when a primary is lost are closed, not held, because their
// session state is lost with it.
//
// # Strangers
//
// A client that got the greeting and does not answer it takes one of mysqld's places. A few
// clients of one address may do so for long; further ones are closed when the next client
// comes, from any address (package strangers). Where Config.Allow has networks, a connection
// from another network is closed at once, with a line in the log.
//
// # The lease (I5)
//
// A chunk from a client is written to the local mysqld only if Backend.Serving returns true,
// asked after the chunk was read. So nothing that a client sends after the lease has ended
// reaches a mysqld that may have been replaced. Bytes from mysqld are passed on in any case: an
// OK among them was acknowledged by Raft, and a result answers a question that was asked under
// the lease. After a chunk that passed without the lease, the connection is closed. When the
// lease has ended, connections are closed, except those that wait for an answer: they stay
// until the answer comes, or Backend.Answering returns false.
//
// # The stream between two routers
//
// The dialling side opens a stream through Backend.DialPeer and reads one
// byte. Everything after it is the MySQL connection.
//
//	+--------+----------------------------------
//	| status | 1 = accepted: mysqld's greeting …
//	+--------+----------------------------------
//	| status | 2 = refused: not serving, or full; then end of stream
//	+--------+----------------------------------
//
// A refused client has not seen a byte, so it is held, and the router tries again.
//
// # Goroutines
//
// Run owns all goroutines: the accept loop, a watcher for a change of the primary, one that
// warns of sessions that were closed without a lease, and one per connection. A connected
// session has a second one (for the direction from the server), and so has a held client (to
// see its hang-up). Run returns after all of them have ended. There is no durable state.
package router
