// Package old owns the data that a node has given up: what is below old/ in its data directory.
//
// A node that is rebuilt gives up its data, also a node that its cluster was recovered without ("-recovered").
// They are not deleted at once: package datadir moves them into a directory of their own below old/, by
// renames, and a Keeper keeps that for a while. So a person can take back an order that was a mistake.
//
//	old/20261103T000000Z-rebuild            when, and why; what is in it is as it was
//	old/20261103T000000Z-rebuild.deleting   it is being deleted, and a crash does not end that; the name is on
//	                                        disk before the first file is deleted
//	old/anything else                       belongs to a person: it is left alone
//
// # What is deleted
//
// The oldest directory is deleted while more than 2 are kept, once the node has been a member again and 7 days
// are over, or while less than one part in 10 of the disk is free. All are deleted if the copy of another
// node's data needs the space. Each deletion has a line in the log and in the audit log. The status shows the
// rest, with their sizes.
//
// # Goroutines
//
// Run is one, for as long as the node takes part. While it joins, the goroutine of the join calls Tidy and Free.
// The two never run at the same time.
package old
