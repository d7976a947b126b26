// Package feed gives the committed log to the local mysqld's replication, as the cursor of a
// mysqlwire dump. It begins where the engine of mysqld ends (I4).
//
// It owns no state, starts no goroutine and does not wait: a cursor returns the channel that is
// closed when there may be more. The simulator runs this code unchanged.
package feed
