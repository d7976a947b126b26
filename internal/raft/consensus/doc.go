// Package consensus drives the Raft group: it owns term, vote and entries.
//
// It has a core without goroutines, clock or I/O, and a shell around it.
//
//	Group   one raft.RawNode, the proposal gate, the commit check, the lease.
//	        Input by method calls (Tick, Step, Propose, …), output by Ready.
//	Driver  what a node does around its Group: the order of what follows from a
//	        turn, the group commits of the log, a full and a hanging disk.
//	Runner  the shell: the lock and the clocks. A goroutine that brings work drives
//	        the Driver. It also makes the write that follows, if it may wait for a
//	        disk (runner_turn.go). The Runner has goroutines of its own: the keeper
//	        (ticks, calls, and work that is left over), the writer, which only
//	        writes, and a waiter for what the log reads ahead. A Machine gives it
//	        clocks and goroutines: the simulator runs the same Runner on virtual time.
//
// quirks.go lists where raft does not do what a Group needs, and what the Group does about it.
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
// AsyncStorageWrites lets the leader's fsync overlap with its followers'. Entries reach the commit check only
// when they are committed and on disk in this node's own log: raft hands out entries up to min(commit, own
// stable index). So ACK and feed never run ahead of this node's own disk.
//
// # Who learns of a commit, and when
//
// Followers learn a commit index with the next append, or from a notice, which they do not answer. A notice is
// sent 5 ms after the commit, or at once where another node may wait for it (notices.go). One commit takes four
// messages in a group of three.
//
// # Who stands for election first
//
// Raft draws each node's timeout by itself. Loggers and nodes of weight 0 skip some of raft's ticks after a
// silence. After a refused dial the best node stands at once, and each other node one heartbeat later than the
// node before it (group_late.go). All of this only saves a hand-over.
//
// # The cluster state
//
// A change of the cluster state is an entry of no epoch (ProposeState). The commit check applies it, or ignores
// it if another change of the same version came first. A change of the members is a change of Raft's
// configuration that has the change of the state as its context. It goes through joint consensus if voters
// change (members.go). At a start the state, and so Raft's configuration, comes from the caller's StatePoint.
// The commit check starts early enough to find every later change.
//
// # What may be acknowledged
//
// Everything that is committed, unless the cluster state has a durability policy or a member whose ACK is
// required. Then only entries that are also on the disks that these name, as far as this leader knows in this
// term (progress.go). Only ACKs wait for that.
//
// # Invariants
//
//	I2  A proposal names its epoch (a term) and a consecutive number.
//	    The gate refuses a proposal that is not of the epoch in force or not the
//	    number after the last one accepted. A proposal that raft drops (a
//	    transfer under way, too much uncommitted) is blocked, and retried in
//	    place. No other proposal passes it, until the epoch ends. The commit check
//	    verifies the same fields again on every node.
//	I5  LeaseUntil is the time until which this leader may serve: the send time of
//	    the round that a majority answered, plus the shortest time for which a voter
//	    promised to vote for nobody else (lease.go). The lease ends before a transfer
//	    is asked for. A node that restarts votes for no other node until all promises
//	    that it may have made are over. Until then it stands for election only if the
//	    leader's process is dead.
//	I9  A GTID is committed at most once.
//
// Every one of these is checked in production (package invariant).
//
// # Broken members
//
// A message that no sound member sends is refused before raft sees it (refuse.go): a message at which raft or
// the commit check would panic, or that drives terms up.
//
// # Bounds
//
// Inbox has the bounds of what waits for a turn, Driver the bounds of what waits for the log, Group those of
// raft: uncommitted bytes, bytes in flight per peer. A full proposal queue blocks the tap, which blocks
// mysqld's dump thread: back-pressure up to the client.
package consensus
