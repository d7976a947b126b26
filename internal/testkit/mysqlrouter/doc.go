// Package mysqlrouter runs the stock MySQL Router beside a cluster of a test: it is bootstrapped as Router's manual
// says, against a node's mysqld, and leads to three ports.
//
// A Router owns one directory, and one process from Start to Stop. The package starts no goroutine.
package mysqlrouter
