// Package feed is what the local mysqld's replication is given: the committed log, as the
// cursor of a mysqlwire dump, from where mysqld's own engine ends (I4).
//
// It owns nothing, starts no goroutine and waits for nothing: a cursor names the channel that
// is closed when there may be more. The simulator runs it as it is.
package feed
