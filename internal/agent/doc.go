// Package agent is the composition root: it builds all other packages of a node, connects them,
// and starts and stops them in order.
//
// # What it owns
//
// The goroutine tree, the order of start and stop, and what the other packages need of the
// machine: ports, the disk. Most decisions are made in other packages: member.Member ties together
// what takes part in the cluster, primary.Shell executes the effects of the role machine,
// primary.Judge checks I3, replay has the prefix rule, local.Mysqld has the server's process,
// feed.Reader reads the log for mysqld, board.Gossip exchanges the statuses.
//
// Some things are put together only here, because they need a whole node: the copy of mysqld's
// data for a node that joins (seed.go, join.go), and what is done while no agent runs: a recovery
// (recover.go), an adoption (adopt.go), a restore (restore.go).
// Package errant looks after transactions that the log lacks, package prepared after prepared XA
// transactions, package old after data that a rebuild gave up.
//
// The files of the data directory, and what each is for, are in docs/formats.md, "The data
// directory".
//
// # Goroutines (all under Run)
//
//	consensus, transport, bulk, log, feed, router, api   their packages' Run
//	role        primary.Shell: takes inputs, steps role.Machine, executes effects
//	operation   at most one: the operation under way, with its own context
//	epoch       the tap's Run, while an epoch is open
//	watch       primary.Watch: polls mysqld: applied position, guarded variables, replication
//	reads       reading.Port: looks which nodes may be read at the read-only port
//	lag bound   looks which replica the tap's batches wait for
//	gossip      board.Gossip: sends this node's status to its peers
//	state       writes cluster.json
//	records     writes audit.log and history.log, and fetches the other nodes' lines
//	promise     notes how long this node may have promised not to vote for others
//	members     membership.Follower: follows the members, promotes, repairs
//	keys        changes this node's key, step by step; says which keys the configuration lacks
//	source      follows the log of a learner's source
//	left behind asks former members whether they refuse the recovery of this cluster
//	port        ownport.Port: tells the kernel who passes mysqld's own port, where it is fenced
//	variables   sets the cluster's variables in mysqld
//	following   following.Service: follows a source outside of the cluster, while this node is the primary
//	fence       RunFence: closes the other site, or the source, for writes where a promotion or a cutover could not
//	undo        RunUndo: opens the source again that a cutover has left closed
//	heard       RunHeard: keeps what the other site was heard to have
//	tell router mysqlrouter.Service: writes what MySQL Router reads, while this node is the primary
//	events      scheduler.Service: has mysqld's scheduler run on the primary alone
//	ask leader  freshness.Heard: asks whether a majority still follows the leader, for that port
//	stages      fetches the stages that this node lacks, drops those that nobody names
//	readers     serves the committed log to readers downstream; looks at their port's certificate
//	disk        writes to mysqld's disk, to notice a disk that hangs
//	data disk   looks how full it is
//	in place    ends the agent once its data directory or log was removed or replaced
//	durable     makes durable what mysqld has and notes it, for purging
//	purge       removes the segments that no member needs
//	notify      tells the service manager how this node is
//	hook        runs the operator's program at changes of role and primary
//	old         deletes what is below old/, once its time is over or the disk gets full
//	process     one per mysqld: reports its end
//
// A node that heals, joins, or waits to begin runs fewer of them (heal.go, join.go, peers.go).
//
// A logger has no mysqld, and nothing that belongs to a mysqld: feed, watch, lag bound, port, ask
// leader, variables, following, fence, undo, tell router, events, disk, data disk, durable, process,
// secrets, mysql/, durable.json. Its role machine has one phase.
//
// # Stop order
//
// Router and writes end first, then leadership, then mysqld, then the log. The peers' listener
// ends last, because a refused dial tells the others that this process, and so its mysqld, is gone.
package agent
