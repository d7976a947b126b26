// Package experiment runs the cells of a plan: it deploys a system, loads it, breaks it,
// checks it, and fills a row of results for each cell, also for a cell that fails.
//
// # A run
//
// Cells run one after the other, in the plan's order. One system at a time owns the machine,
// and one run does: an abstract socket's name is the lock. Each cell has a directory,
// a network and a deployment of its own, except those
// whose step says Reuse. Before the load, sync(2) writes what the cell before has left in the page cache, so that
// this cell does not pay for it. Round trips are measured on the
// idle network and again while the load runs.
//
// Every wait has a limit, and every cell has one as a whole (cellWait). If a cell
// fails, its deployment is taken down; the ends of its servers' logs are kept in
// OUT/logs. A cell that was interrupted (Ctrl-C) leaves no row.
//
// A row is on the disk before its system is taken down. If taking it down fails, that is noted in the row. The run
// ends only if a process is left, because it would share the machine with the next cell.
//
// # What the numbers are
//
// CPU per transaction is the CPU time of all processes of a component, from the start of the
// load until every replica has everything, without the warm-up.
//
// In rto, systems without a failover of their own (async, semisync) have an operator's script: when
// nothing was acknowledged for scriptWait, it kills the old primary for good and calls
// Deployment.Failover. It runs where the clients are. In kill-city quorate has a script, too: when one city of two is
// lost, a person must decide to go on.
//
// In rpo the servers' data are on disks that break (fault.Disks). majority-crash: the
// secondaries' writes are held, and the clients go on writing for holdFor. Then the primary
// is killed and never comes back. The secondaries are killed, and the held writes fail:
// thawing the disks would complete them. Then the disks are well again, the
// secondaries start, and people do what they must. power-loss: while clients write, every
// disk loses what was not synced, and every process dies; all come back.
//
// # Goroutines
//
// Run returns after all of its goroutines and processes have ended. Only one Run may be under way in
// a process.
package experiment
