// Package following writes the transactions of a server that is not part of the cluster into this primary's
// mysqld, as a client of it, until the cutover. It also asks that server what has to be known of it. A Service
// follows while its node is the primary and the cluster state names a source. Meanwhile it keeps clients from
// writing. It carries out the requests to follow, and to cut over.
//
//	the source ──► mysqlwire.Foreign ──► follow.Translator ──► follow.Clock ──┬─► session ──► mysqld ──► binlog, tap, log
//	                                                                          └─► session …
//
// Each transaction keeps the GTID that it has at the source, and is committed like a client's, once a majority
// has it. So gtid_executed says what is done, however it ended: a break of either connection, SIGKILL, another
// primary. Nothing else is kept.
//
// # Cutovers
//
// A cutover is noted in the cluster state from before it closes the source until it has taken over, or the source
// is open again. It acts at the source only while it holds a lock there (Hold). So the next primary (RunUndo) can
// undo an attempt whose node is gone, or is no longer the primary, in this order:
//
//	the next primary                         an earlier attempt, wherever it still runs
//	call off: another state ───────────────► it takes over no more: its change is judged on the earlier state
//	hold: ends the session of the lock ────► it closes and opens the source no more
//	open the source; opened
//
// If another account has closed the source since, or the source applies what another server has, it is left closed,
// and that is noted (Closing.Left). From then on only an operator opens it, goes on with a cutover (a new note, which
// an undo would have to call off first), or ends the following. That the source stays closed over its restart is
// persisted there before the cluster takes over; an undo takes that back, too.
//
// # Sites
//
// A cluster can be followed, too: another site, which the configuration names. Then the readers' ports of its nodes
// are read, one node after the other, and through these ports the sites ask each other (AskedBySite). The cluster
// state says who may write here (Doors): everybody, if the cluster follows nobody; only the agent, if it follows;
// nobody, while it is closed for an attempt of the other site to take over. Code that relies on that asks what was
// last done to this mysqld, and for which request: that is unknown while it is being changed.
//
//	the site that takes over                     the other site
//	attempt: a new ballot ─────── yield ───────► close: super_read_only
//	awaits and compares   ◄────── look ───────── closed for this token, behind a barrier
//	take over: opens
//	                      ◄────── look ───────── begin: the token is void, it follows
//
// An attempt that fails before "take over" is taken back by its token (resume), and only once it is certain that this
// site goes on following. Older ballots are refused, so a late request changes nothing.
//
// # Goroutines
//
// Service.Run has one while it follows, and one that looks how far that is; RunFence, RunUndo and RunHeard are others.
// A look at a site has one for each of its nodes, for at most askTimeout. Follower.Run owns its own: one reads the
// source, and each session has one. They end before it returns. One session runs a transaction from its first step to
// its last. Steps go through a channel of stepsMax: a transaction of any size passes, and if mysqld is slow the source
// waits.
//
// Bounds: sessionsMax sessions; each holds stepsMax steps of 512 KiB (or of one event that is longer).
// Durability: none of its own, except a hint: what the other site was heard to have (RunHeard). Each node of this site
// tells that to the others in its status, and keeps it in site.json.
package following
