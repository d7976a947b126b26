// Package router owns the client-facing ports and every client connection. A Router has one port: that for all
// clients, whose target is the primary, or that for clients that only read, whose targets are replicas. What differs
// is the Backend's: which node a client goes to (Choose), whether it still takes it (Takes), and when sessions have to
// leave it (Leaves). What follows is told of the first; the other has replicas in place of the primary, any of them,
// and "is still a replica's mysqld" in place of the lease.
//
// It passes bytes and knows two packets of the MySQL protocol: the error it
// sends when it cannot connect a client, and the refusal of a login, which it counts. It
// logs each session that ends (a bounded number): mysqld does not know the client's address. A client may connect to any node. On
// the primary's node its bytes go to the local mysqld; on any other node they
// go through the peer port to the router of the primary's node, which passes
// them to its mysqld or refuses; it never forwards them again, so there are no
// loops. With Config.Refuse it refuses clients there.
//
// Where the kernel fences mysqld's own port (package netfence), it redirects new
// connections on the primary's node to that port: the router does not see them.
//
//	client ──► router (primary's node) ──────────────────► mysqld
//	client ──► router (other node) ──peer port──► router ──► mysqld
//
// # Holding
//
// A MySQL client waits for the server to speak first. While there is no
// primary, a new connection therefore simply waits, up to Config.HoldTimeout,
// and at most Config.HoldMax of them. Of more, the oldest client of the address that has
// the most gets an error at once.
// Connections that are open when a primary is lost are closed, not held: their
// session state is gone with it.
//
// # Strangers
//
// A client that has the greeting and does not answer it takes one of mysqld's places. Of one
// address a few may do so for long; the others are closed when the next client comes, from
// wherever (package strangers). Where Config.Allow has networks, a connection from
// elsewhere is closed at once, with a line in the log.
//
// # The lease (I5)
//
// A chunk that came from a client is written to the local mysqld only after
// Backend.Serving answered true, asked after the chunk was read. So whatever a
// client sends after the lease ended never reaches a mysqld that may have
// been replaced. Bytes that mysqld sent are passed on in any case: an OK among
// them was acknowledged by Raft, and a result answers a question that was
// asked under the lease. After a chunk passed without the lease, the
// connection is closed. A connection that waits for an answer is left until that
// comes, or Backend.Answering says that none will; all others are closed when the
// lease has ended.
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
// A refused client is held and tried again; it has not seen a byte.
//
// # Goroutines
//
// Run owns all: the accept loop, a watcher for a change of the primary,
// a goroutine that warns of sessions that were closed without a lease, and one per
// connection, with a second one per connected session (the server's direction)
// or per held client (which watches for its hang-up). Run returns after all of
// them have ended. There is no durable state.
package router
