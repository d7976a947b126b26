// Package experiment runs the cells of a plan: deploys a system, loads it, breaks it,
// checks it, and fills a row of results for each, also for those that fail.
//
// # A run
//
// One after the other, in the plan's order; one system at a time owns the machine
// (and one run: an abstract socket's name is the lock). Each cell has a directory
// of its own, a network of its own and a deployment of its own, but for those
// whose step says Reuse. Before the load sync(2) takes what the cell before has
// left in the page cache off the bill of this one; round trips are measured on the
// idle network and again while the load runs.
//
// Every wait has a limit, and every cell has one as a whole (cellWait). A cell that
// fails takes its deployment with it; the ends of its servers' logs are kept in
// OUT/logs. A cell that was interrupted (Ctrl-C) leaves no row.
//
// A row is on the disk before its system is taken down. What goes wrong then is noted in the row; the run
// ends only if a process is left, for it would share the machine with the next cell.
//
// # What the numbers are
//
// CPU per transaction is that of all processes of a component, from the start of the
// load until every replica has everything, and without the warm-up.
//
// In rto, who has no failover of its own (async, semisync) has an operator's script: when
// nothing was acknowledged for scriptWait, it kills the old primary for good and calls
// Deployment.Failover. It stands where the clients stand. In kill-city quorate has one, too: where a city of two is lost
// nobody can go on without a person.
//
// In rpo the servers' data are on disks that break (fault.Disks). majority-crash: the
// secondaries' writes are held; the clients write on for holdFor; the primary
// is killed and never comes back; the secondaries are killed, and what was held fails,
// for the thawing of a frozen disk would complete it; the disks are well again, the
// secondaries start, and people do what they must. power-loss: while clients write, every
// disk loses what was not synced, and every process dies; all come back.
//
// # Goroutines
//
// Run returns after all of its goroutines and processes have ended. It is to be called once at
// a time in a process.
package experiment
