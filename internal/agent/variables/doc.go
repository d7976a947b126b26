// Package variables keeps a node's mysqld at the server variables that the cluster state has.
//
//	option file at a start ──► Started ──┐
//	cluster state ─────────────────────► Keep ──► SET GLOBAL ──► Report
//
// It owns what is known of the mysqld that runs: with which of the cluster's variables it was
// started, which it was given since, and what it has refused. Nothing is durable here: the
// cluster state is, and each start begins with it.
//
// The cluster's value stands above that of the node's configuration. A variable that the cluster
// has no more gets the configuration's value again, else quorate's or the server's default. What
// a running server does not take waits for its next start. A value that the server always refuses is
// not tried again with the same server. What failed for another reason is tried again at the next
// Keep, and so is what a trial (Try) may have left behind.
//
// # Requests
//
// A Service carries out what operators ask for: a change is tried by one node's mysqld, is committed, and is then
// applied by all nodes that are heard. The answer says how each of them runs with it.
//
// # Goroutines
//
// A Keeper has a lock, which it holds while it speaks to the server, and no goroutine. A Service's Run is one. Its
// handlers are called from any goroutine.
package variables
