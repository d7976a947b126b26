// Package standstill notices a mysqld that stands still while its agent goes on: it is stopped, its disk hangs, or
// its disk is full.
//
// The agent of such a primary goes on leading, with perfect heartbeats. So no other node would end the wait of its
// clients. A Watch finds it, and has the primary fenced. A replica is left alone: its readers go on, and it takes
// up replication by itself. The status of both says what is wrong.
//
//	what                          how it is noticed                              a primary is fenced
//	mysqld answers nothing        it sends no greeting to a new connection       after GreetTimeout
//	its disk hangs                a write beside the tables does not end         after Patience, if it commits nothing
//	its disk is full              mysqld says so in its error log                at once
//
// # Goroutines
//
// Run is one: it writes one byte to mysqld's disk each second (the file probe). A write that hangs keeps a second
// one, which nothing can end; the Watch asks for no more meanwhile. WatchSpace is the goroutine of one mysqld.
// Greets, Disk and Commits are called by the goroutine that polls mysqld.
//
// Nothing here is durable: the probe's byte is always the same.
package standstill
