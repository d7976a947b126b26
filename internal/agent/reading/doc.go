// Package reading decides who may be read at the read-only port: which node a client is sent to, and when
// it has to leave again.
//
//	client ── router.Router ──► Port ──► this mysqld, as long as it is a replica's
//	                             │   └─► another node, by its agent
//
// Port is the router's backend. It owns whether this node's mysqld takes readers (open), and whether readers
// have come since their sessions were ended last (served). It keeps until when the data here are recent enough (fresh), by
// two clocks, because an agent that stood still looks too late. End shuts the port before a promotion opens mysqld
// for writes, and ends the connections that were let in before. Both are behind one mutex, so that no client
// is let in between. Run serves the port until its context ends; its goroutine looks at the nodes.
//
// Nothing here is durable.
package reading
