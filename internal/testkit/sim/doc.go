// Package sim runs whole clusters on virtual time: production code for every
// decision, a model of everything around it, one seed for all that is left to
// chance. The same seed is the same run, byte for byte.
//
//	clients ─► router's rule ─► fakemysqld ─► mysqlwire.Tap ─► consensus.Runner ─► seglog.Log
//	              (lease)          ▲   │                        │    │             │
//	                               │   └ ACK ◄── commit check ◄─┘    │          vfs.Mem
//	                 role.Machine ─┘                              network        (disk)
//	         mysqlwire.DumpWriter ─┴◄── replay.Cursor ◄── committed log
//
// # What is real and what is not
//
// Real: member.Member, and all that it ties together, from the role machine and consensus.Runner to the
// tap's and the feed's ends of their connections; how a node joins, is healed, or is recovered; the small
// files. docs/simulation.md has the list. They are called as they are; there is no hook for the simulator
// in them.
//
// Adapters: node_*.go give the product its world, where it asks for one. What is written once more is
// in docs/simulation.md, with the reasons.
//
// Modelled: the network, disks' times and crashes, clocks, mysqld (fakemysqld),
// clients.
//
// # Goroutines
//
// None of its own. A task is a coroutine (iter.Pull) of the one goroutine that
// calls Run, which runs from one wait to the next, on real contexts and channels: after
// whatever happens on a machine, its tasks whose channel is ready go on, in the order in
// which they began to wait. life is the clock.Tasks of the product's code. One run at a time in a
// process: raft draws its election timeouts from crypto/rand.Reader, which is
// replaced for the time of a run. cmd runs many seeds in many processes.
//
// # The world
//
//	World      the run: nodes, network, clients, faults, judgement
//	scheduler  virtual time: a heap of (time, sequence, function)
//	node       a machine: clocks (up to 0.5 % off; they jump, or stand still), disks, power,
//	           standstills
//	life       a process: what belongs to it ends with it, and stands still with
//	           its machine
//	host       what each process has: alone, that of a node that has accepted a recovery
//	           without it
//	healer     what runs in an agent's place while the log is damaged
//	joiner     likewise, until the node has joined
//	operator   who changes the members, where they change
//	sources    who gives learners a source, and what happens to those
//	losses     a majority that is lost, and who forces a recovery
//	agent      one life of the agent's process, with epoch (tap),
//	           feedSession, stages (bulk, over conn)
//	mysqld     one life of the server
//	injector   the faults: a list made from the seed before the run, each at a
//	           time or at the next moment of a kind (an ACK, an append, a rotation)
//	workload   clients that append to tables, read them, create them; some of
//	           what they append is large enough for a stage
//
// Each part draws from a random stream of its own, so that leaving a fault out
// changes as little else as can be: Shrink lives on that.
//
// # What is checked
//
// By checker, which sees all nodes at once, at the moment when it happens:
//
//	I1  an OK, and every commit: on the disks of a majority of the voters: of those before
//	    a change of them until that is complete, of those of now alone behind its end
//	I2  an ACK: every transaction of the binlog before it is committed; none after
//	    the tap was closed
//	I3  every engine commit is of a committed transaction, always
//	I4  engine commits are a prefix of the log, in its order, each once, but for
//	    no-ops; no no-op runs where it destroys data
//	I5  one node serves; one node acknowledges in a term
//	I6  no graceful stop while a session waits
//	I7  what a log promised is there after every crash; at the end every commit is
//	    on a majority, every acknowledged value in every table
//	I9  a GTID is committed once
//
//	policy     an ACK, once let go, and every OK: on the disks that the durability
//	           policy and a node's require-ack name; a require-ack is dropped only
//	           where it may be, and said to be
//	members    who opens has a vote and a weight; once all has healed, the members are
//	           those that were asked for, and nobody stands for election
//	directory  a data directory that the cluster gives a node is used once
//	plan       what a member offers a node that joins is by the newest cluster state
//	gives-up   a node gives up its data once a voter has on its disk that this vote is gone
//	reseed     who leads has nodes rebuilt by itself only that cannot go on as they are
//	settle     a deposed primary whose mysqld lives on: nobody waits in it, it takes no
//	           writes, its binlog has nothing that is not committed; when it lets sessions go
//	           nobody waits for their locks
//	tidy       a former primary is made a replica once
//	agreement  an index has the same entry on every node that commits it
//	feed       a replica is sent nothing that it does not take
//	source     a leader leaves a learner to its source while that works; a learner has what is
//	           committed, whatever becomes of its source
//	stage      an entry that names a stage is proposed once a majority has that on disk
//	lag        the bound on the apply lag holds writers back, and only for a replica that applies
//	recovery   a forced recovery: its log stays; what it gives up was named, or only nodes
//	           had it that did not answer; former members accept or reject it by the rules of
//	           package recovery, and form no second cluster unless they reject it
//	errant     no mysqld is refused by the judge that only its agent has touched;
//	           none passes with what is not committed, whoever touched it
//	xa         the log ends what it has prepared, once; who opens has prepared what the log
//	           has, and would binlog its end; what was prepared with OK is there until
//	           somebody ends it, and is committed, or not, as its client has decided
//	ledger     each table's history is linearizable (porcupine), up to its final
//	           content, which all servers have
//	liveness   after the last fault the cluster serves and agrees in time
//
// A broken invariant of production code (package invariant) is a failure, too.
package sim
