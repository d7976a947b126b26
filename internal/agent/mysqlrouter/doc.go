// Package mysqlrouter keeps the metadata by which MySQL Router finds the members, while this node is the primary.
// Package routing decides what the metadata say and when they are looked at, mysql/routermeta reads and writes them.
// A Service looks twice a second, and when the node's status or the cluster state changes.
//
// Service.Run is one goroutine. A mutex guards what it has told, which the metrics show. The metadata are durable in
// mysqld's own tables, and replicated with the rest. A write has a time limit: only the next write waits for it.
package mysqlrouter
