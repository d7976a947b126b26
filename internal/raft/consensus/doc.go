// Package consensus drives the Raft group: it owns term, vote and entries.
//
// It has a core without goroutines, clock or I/O, and a shell around it.
//
//	Group   one raft.RawNode, the proposal gate, the commit check, the lease.
//	        Input by method calls (Tick, Step, Propose, …), output by Ready.
//	Driver  what a node does around its Group: the order of what follows from a
//	        turn, the group commits of the log, a full and a hanging disk.
//	Runner  the shell: the lock and the clocks. A goroutine with work drives
//	        the Driver, and makes the write that follows if it may wait for a disk
//	        (runner_turn.go). Goroutines of its own are the keeper, for ticks,
//	        calls and what is left over, the writer, which only writes, and a waiter for
//	        what the log reads ahead. A Machine gives it clocks and goroutines: the
//	        simulator runs the same Runner on virtual time.
//
// What raft does otherwise than a Group needs, and what a Group does about it, is in
// quirks.go.
//
// A LagTracker knows how far a mysqld is behind the marks of the commit check.
//
// # The path of a proposal
//
//	TryPropose, Work ──► turn: gate ──► RawNode ──► MsgApp to peers (transport)
//	                                       │
//	                                       └─► MsgStorageAppend ─► a Write: log write
//	                                           + fdatasync of all that waits, by the
//	                                           same goroutine, then its Responses
//	committed entries ──► commit check ──► Commit callback (feed)
//	                                    └─► durability policy ──► Acknowledge (ACK)
//
// AsyncStorageWrites lets the leader's fsync overlap its followers'. Entries
// reach the commit check only when they are committed and in this node's own
// log on disk: raft hands them out from min(commit, own stable index), so ACK
// and feed never run ahead of this node's own disk.
//
// # Who learns of a commit, and when
//
// Followers learn a commit index with the next append, or from a notice that they
// do not answer: 5 ms after the commit, or at once where somebody may wait
// (notices.go). One commit takes four messages in a group of three.
//
// # Who stands for election first
//
// Raft draws its timeouts alone. Loggers and nodes of weight 0 miss some of its
// ticks after a silence, and after a refused dial the best node stands at once, the
// others a heartbeat later each (group_late.go). It only saves a hand-over.
//
// # The cluster state
//
// A change of it is an entry of no epoch (ProposeState); the commit check applies
// it, or ignores it where another one of the same version came first. One that
// changes the members is a change of Raft's configuration with the change as its
// context, through joint consensus where voters change (members.go). At a start the
// state, and so Raft's configuration, is the caller's StatePoint; the commit check
// starts early enough to find every later change.
//
// # What may be acknowledged
//
// All that is committed, unless the cluster state has a durability policy or a
// member whose ACK is required: then only what is, to this leader's knowledge and in
// this term, on the disks that they name (progress.go). Only ACKs go by it.
//
// # Invariants
//
//	I2  A proposal names its epoch (a term) and a consecutive number.
//	    The gate refuses a proposal that is not of the epoch in force or not the
//	    number after the last one accepted. A proposal that raft drops (a
//	    transfer under way, too much uncommitted) is held and retried in
//	    place with nothing passing it, until the epoch ends. The commit check
//	    verifies the same fields again on every node.
//	I5  LeaseUntil is the time until which this leader may serve: from the send
//	    time of the round that a majority answered, plus the shortest time for
//	    which a voter promised to vote for nobody else (lease.go). It ends before
//	    a transfer is asked for. A node that restarts votes for no other before
//	    what it may have promised is over, and stands before only where the
//	    leader's process is dead.
//	I9  A GTID is committed at most once.
//
// Every one of these is checked in production (package invariant).
//
// # Broken members
//
// A peer's message that no sound member sends is refused before raft sees it (refuse.go):
// what raft or the commit check would panic at, and what winds terms up.
//
// # Bounds
//
// Inbox has those of what waits for a turn, Driver those of what waits for the log,
// Group those of raft: uncommitted bytes, bytes in flight per peer. A full proposal
// queue blocks the tap, which blocks mysqld's dump thread: back-pressure up to the
// client.
package consensus
