// Package mysqlrouter keeps the metadata by which MySQL Router finds the members, while this node is the primary. Package
// routing decides what they say and when they are looked at, mysql/routermeta reads and writes them. It looks twice a
// second, and when the node's status or the cluster state changes.
//
// Service.Run is one goroutine. What it has told is behind a mutex, for the metrics. What is durable is in mysqld's own tables, and
// replicated with the rest. A write has a time limit: nothing waits behind it but the next one.
package mysqlrouter
