// Package readers serves downstream readers: replicas of one's own, and tools that follow changes.
// They read the committed log, and no mysqld is asked, so a node without mysqld serves them, too. Only readers with SQL
// ask the local mysqld, by the connections of Local. Package mysqlwire speaks the protocol, and asks this package.
//
//	reader ── mysqlwire.Feed ──► Source ──► committed log, staged transactions
//	                 │
//	                 ├─ Account       who may log in: configuration, file of the password
//	                 ├─ Certificate   what the port shows, read again from its files
//	                 └─ Local         connections to the local mysqld; ended before it takes writes
//
// The files that a reader sees begin at the beginning of a segment, and at the epoch's or rotation's
// entry there. The same file has the same bytes on every node, whenever it is read. A reader is
// given what is committed, and nothing else. What was purged is refused as a real source refuses it.
//
// Local knows its open connections, behind a mutex. Source remembers how each segment begins, behind
// a mutex; it has no goroutine. Certificate keeps the last certificate that could be read. Look is for
// one goroutine, Current for all. Nothing here is durable.
package readers
