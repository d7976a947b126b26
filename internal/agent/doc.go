// Package agent is the composition root: it builds every other package, feeds
// package core with what happens and executes its effects.
//
// # What it owns
//
// The goroutine tree, the order of start and stop, and the glue between packages:
// the epoch (tap, proposals, ACKs), the feed's reader of the log, the judge of
// I3 and of the prefix rule, the exchange of node statuses.
//
//	data_dir/
//	  identity.json   who this directory belongs to; format version
//	  peers.json      the instance of each peer's data directory, pinned at
//	                  first contact: a node that lost its log may not vote
//	                  under its old name
//	  durable.json    the durable mark of its mysqld: how far into the log
//	                  InnoDB holds everything, its witness, the server_uuid
//	  heard.json      what the other members said last that they need of the log
//	  cluster.json    the newest cluster state that this node has applied, and how
//	                  far into the log it is known
//	  audit.log       package history; history.log, too
//	  fence.json      there while an operator wants no mysqld to run here
//	  lock            flock: one agent per directory
//	  log/            package seglog
//	  mysql/          package mysqld
//	  seed/           a mysqld's directory, while this node copies another one's data
//	  old/            what this node had before it was rebuilt, a directory each
//	  secrets.toml    the internal accounts' passwords (package mysqld), mode 0600
//
// # Goroutines (all under Run)
//
//	consensus, transport, feed, router, api   their packages' Run
//	core        takes inputs, steps core.Node, executes effects
//	operation   at most one: the operation under way, with its own context
//	epoch       the tap's Run and the ACLs it reports, while one is open
//	watch       polls mysqld: applied position, guarded variables, replication
//	gossip      sends this node's status to its peers
//	state       writes cluster.json, the audit log and the history
//	members     follows the members of the cluster state; promotes who has caught up
//	apart       asks whom a recovery left behind whether they refuse it
//	port        tells the kernel who passes mysqld's own port, where it is fenced
//	disk        writes to mysqld's disk, to notice one that hangs
//	durable     makes what mysqld has durable and notes it, for purging
//	purge       removes the segments that nobody needs
//	old         deletes what is below old/, once its time is over or the disk gets full
//	process     one per mysqld: reports its end
//
// A logger has no mysqld, and none of what belongs to one: feed, watch, durable,
// process, secrets, mysql/, durable.json. Its core has one phase.
//
// # Stop order
//
// Router and writes first, then leadership, then mysqld, then the log; the
// peer listener last, because a refused dial tells the others that this
// process, and so its mysqld, is gone.
package agent
