// Package sim runs whole clusters on virtual time: production code for every decision, a model of everything
// around it, and one seed for all randomness. The same seed gives the same run, byte for byte.
//
//	clients ─► router's rule ─► fakemysqld ─► mysqlwire.Tap ─► consensus.Runner ─► seglog.Log
//	              (lease)          ▲   │                        │    │             │
//	                               │   └ ACK ◄── commit check ◄─┘    │          vfs.Mem
//	                 role.Machine ─┘                              network        (disk)
//	         mysqlwire.DumpWriter ─┴◄── replay.Cursor ◄── committed log
//
// # What is real and what is not
//
// Real: member.Member, and everything that it ties together, from the role machine and consensus.Runner to the
// tap's and the feed's ends of their connections; how a node joins, is healed, or is recovered; the small
// files. docs/simulation.md has the list. This code is called as it is: it has no hook for the simulator.
//
// Adapters: node_*.go give the product its world, where the product asks for one. docs/simulation.md lists what
// is written twice, with the reasons.
//
// Modelled: the network, disks' times and crashes, clocks, mysqld (fakemysqld),
// clients.
//
// # Goroutines
//
// The package starts none. A task is a coroutine (iter.Pull) of the one goroutine that calls Run. It runs from
// one wait to the next, on real contexts and channels. After anything has happened on a machine, those of its
// tasks go on whose channel is ready, in the order in which they began to wait. life is the clock.Tasks of the
// product's code. There is one run at a time in a process: raft draws its election timeouts from
// crypto/rand.Reader, which is replaced during a run. cmd runs many seeds in many processes.
//
// # The world
//
//	World      the run: nodes, network, clients, faults, judgement
//	scheduler  virtual time: a heap of (time, sequence, function)
//	node       a machine: clocks (up to 0.5 % off; they jump, or stand still), disks, power,
//	           standstills
//	life       a process: what belongs to it ends with it, and stands still with
//	           its machine
//	host       what each process has; a node that has accepted a recovery without it
//	           has nothing else
//	healer     runs instead of an agent while the log is damaged
//	joiner     runs instead of an agent until the node has joined
//	operator   changes the members, in worlds where they change
//	sources    gives learners a source, and injects faults into sources
//	losses     takes a majority away for good, and forces recoveries
//	agent      one life of the agent's process, with epoch (tap),
//	           feedSession, stages (bulk, over conn)
//	mysqld     one life of the server
//	injector   the faults: a list made from the seed before the run, each at a
//	           time or at the next moment of a kind (an ACK, an append, a rotation)
//	workload   clients that append to tables, read them, create them; some of
//	           what they append is large enough for a stage
//
// Each part draws from a random stream of its own. So leaving out a fault changes as little else as possible:
// Shrink depends on that.
//
// # What is checked
//
// The checker sees all nodes at once, at the moment when something happens. It checks:
//
//	I1  an OK, and every commit: on the disks of a majority of the voters. Until a change of
//	    the voters is complete, the voters before it count; after its end, only the new ones
//	I2  an ACK: every transaction of the binlog before it is committed; no ACK after
//	    the tap was closed
//	I3  every engine commit is of a committed transaction, always
//	I4  engine commits are a prefix of the log, in its order, each once, except
//	    no-ops; no no-op runs where it destroys data
//	I5  one node serves; one node acknowledges in a term
//	I6  no graceful stop while a session waits
//	I7  what a log promised is there after every crash; at the end every commit is
//	    on a majority, every acknowledged value in every table
//	I9  a GTID is committed once
//
//	policy     an ACK that was sent, and every OK: on the disks that the durability
//	           policy and a node's require-ack name; a require-ack is dropped only
//	           where that is allowed, and it is reported
//	members    a node that opens has a vote and a weight; once everything has healed, the
//	           members are those that were asked for, and no node stands for election
//	directory  a data directory that the cluster gives a node is used once
//	plan       what a member offers to a joining node is by the newest cluster state
//	gives-up   a node gives up its data only after a voter has on its disk that this vote
//	           is gone
//	reseed     a leader rebuilds by itself only nodes that cannot go on as they are
//	settle     a deposed primary whose mysqld lives on: no session waits in it, it takes no
//	           writes, its binlog has nothing that is not committed; when it lets sessions
//	           go, no session waits for their locks
//	tidy       a former primary is made a replica once
//	agreement  an index has the same entry on every node that commits it
//	feed       a replica is sent nothing that it does not accept
//	source     a leader leaves a learner to its source while that works; a learner gets what
//	           is committed, whatever happens to its source
//	stage      an entry that names a stage is proposed once a majority has that on disk
//	lag        the bound on the apply lag holds writers back, and only for a replica that applies
//	recovery   a forced recovery: its log stays; what it gives up was named, or only nodes
//	           had it that did not answer; former members accept or reject it by the rules of
//	           package recovery, and form no second cluster unless they reject it
//	errant     the judge refuses no mysqld that only its agent has touched;
//	           no mysqld passes with what is not committed, whoever touched it
//	xa         the log ends what it has prepared, once; a node that opens has prepared what
//	           the log has, and would binlog its end; what was prepared with OK is there until
//	           somebody ends it, and is committed, or not, as its client has decided
//	ledger     each table's history is linearizable (porcupine), up to its final
//	           content, which all servers have
//	liveness   after the last fault the cluster serves and agrees in time
//
// A broken invariant of production code (package invariant) is a failure, too.
package sim
