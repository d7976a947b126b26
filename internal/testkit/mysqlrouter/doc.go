// Package mysqlrouter runs the stock MySQL Router beside a test's cluster. Router is bootstrapped as its manual says,
// against a node's mysqld, and has three ports.
//
// A Router owns one directory, and one process from Start to Stop. The package starts no goroutine.
package mysqlrouter
