// Package following writes the transactions of a server that is not part of the cluster into this primary's
// mysqld, as a client of it, until the cutover; and asks that server what there is to know of it. A Service decides
// when: while its node is the primary, and the cluster state names a source. It keeps clients from writing meanwhile, and
// carries out the requests to follow, and to cut over.
//
//	the source ──► mysqlwire.Foreign ──► follow.Translator ──► follow.Clock ──┬─► session ──► mysqld ──► binlog, tap, log
//	                                                                          └─► session …
//
// Each transaction has its own GTID of the source, and is committed like a client's, once a majority has it. So
// gtid_executed says what is done, after whatever end: a break of either connection, SIGKILL, another primary.
// Nothing else is kept.
//
// # Cutovers
//
// A cutover is noted in the cluster state before it closes the source, and until it has taken over, or the source is open again. What acts at
// the source holds a lock there (Hold). So an attempt whose node is gone, or is primary no more, is undone by the next primary (RunUndo), in this order:
//
//	the next primary                         an earlier attempt, wherever it still runs
//	call off: another state ───────────────► it takes over no more: its change is judged on the earlier state
//	hold: ends the session of the lock ────► it closes and opens the source no more
//	open the source; opened
//
// Where another account has closed it since, or it applies what another server has, it is left closed, which is noted (Closing.Left): from then on
// an operator alone opens it, goes on (a new note, which an undo would have to call off first), or ends the following. That the source stays closed over its restart is persisted before the cluster takes over, and undone likewise.
//
// # Sites
//
// A cluster can be followed, too: another site, which the configuration names. Then it is its nodes' readers' ports that are
// read, one after the other, and by these ports the sites ask each other (AskedBySite). Who may write here is what the
// cluster state says (Doors): all, where it follows nobody; the agent alone, where it follows; nobody, while it is closed
// for an attempt of the other site to take over. Whoever relies on that asks what was done last to this mysqld, and for
// which request: that is unknown while it is changed.
//
//	the site that takes over                     the other site
//	attempt: a new ballot ─────── yield ───────► close: super_read_only
//	awaits and compares   ◄────── look ───────── closed for this token, behind a barrier
//	take over: opens
//	                      ◄────── look ───────── begin: the token is void, it follows
//
// An attempt that fails before "take over" is taken back by its token (resume), and only once it is certain that this site
// follows on. Older ballots are refused, so what is late changes nothing.
//
// # Goroutines
//
// Service.Run has one while it follows, and one that looks how far that is; RunFence, RunUndo and RunHeard are others. A look at a site has one
// for each of its nodes, for at most askTimeout. Follower.Run owns its own: one reads the
// source, and each session has one. They end before it returns. One session runs a transaction
// from its first step to its last. Steps go through a channel of stepsMax: a transaction of any size passes,
// and where mysqld is slow the source waits.
//
// Bounds: sessionsMax sessions; each holds stepsMax steps of 512 KiB (or of one event that is longer).
// Durability: none of its own, but for a hint: what the other site was heard to have (RunHeard). The status of each node of this site
// has it for the others, and site.json on its disk.
package following
