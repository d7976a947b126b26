// Package workload has the clients with which the lab loads a system: sysbench, a
// prober that remembers what it was told, and large transactions.
//
// # Sysbench
//
// The real program, sysbench 1.0, run inside of the client's namespace with a fixed
// seed: every system sees the same keys. Tables are filled with explicit ids
// (--auto_inc=off): if several servers take writes, automatic ids have gaps, and
// reads by id would find no row for most keys. A warm-up is a run of its own,
// because sysbench 1.0 has none. Percentiles come from sysbench's own histogram.
//
// # TPC-C
//
// TPC-C runs the tables, statements and mix of sysbench-tpcc, without foreign keys, in the
// lab's own process, over connections from the client's namespace: Sample.ClientCPU is the CPU time
// of that process, including the lab's network. A warehouse is small (see its
// constants), so that loading takes seconds. There is no waiting for people, so
// the figures are no tpmC. After a run Check looks at each server: the
// standard's consistency conditions 1 to 4, and every order that was acknowledged.
//
// # Points
//
// Points reads or writes one row of sysbench's tables in each transaction, from the lab's own process and with TLS: it
// measures what is between clients and servers.
//
// Errors that a client answers by trying again (deadlocks, failed
// certification, a broken connection) are counted and do not end a run.
//
// # Prober
//
// Every ProbeEvery an idle worker of the Prober inserts a row with an id of its own.
// Each worker has a connection and at most one insert under way, so a
// connection that hangs does not end the probing. A worker does what a sane
// application does: it has a time limit of AttemptTimeout, and tries all endpoints in turn, first the one that
// worked last. The Prober's ledger has an Attempt for every insert:
//
//	acknowledged  the client holds the OK
//	unknown       the INSERT may have reached a server: it may be there or not
//	failed        it cannot have been committed
//
// An id is tried at another endpoint only if it has certainly not been committed.
//
// # Owns
//
// The processes and connections that it opens, until Run returns. Prober.Run has a
// goroutine for each worker, and ends after all of them have.
//
// # Limits
//
// A prober has at most attemptsMax attempts; then it ends with ErrLedgerFull.
package workload
