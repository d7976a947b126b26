// Package workload is what the lab does to a system as its clients: sysbench, a
// prober that remembers what it was told, and large transactions.
//
// # Sysbench
//
// The real program, sysbench 1.0, run inside of the client's namespace with a fixed
// seed: every system sees the same keys. Tables are filled with explicit ids
// (--auto_inc=off): where several servers take writes these count in steps, and
// reads by id would hit nothing for most keys. A warm-up is a run of its own,
// since sysbench 1.0 has none. Percentiles are of sysbench's own histogram.
//
// # TPC-C
//
// The tables, statements and mix of sysbench-tpcc, without foreign keys, from the
// lab's own process, over connections from the client's namespace: Sample.ClientCPU is
// that of the process, with the lab's network in it. A warehouse is small (its
// constants), so that loading takes seconds; there is no waiting for people, so
// figures are no tpmC. After a run Check looks at each server: the
// standard's consistency conditions 1 to 4, and every order that was acknowledged.
//
// # Points
//
// One row of sysbench's tables read, or written, in each transaction, from the lab's own process and with TLS: for what is
// between clients and servers.
//
// Errors that a client answers by trying again (deadlocks, failed
// certification, a broken connection) are counted and do not end a run.
//
// # Prober
//
// Every ProbeEvery one insert of a row with an id of its own, by whichever of its
// workers is idle; each has a connection and at most one insert under way, so a
// connection that hangs does not end the probing. A worker does what a sane
// application does: a time limit of AttemptTimeout, all endpoints in turn, the one that
// worked last first. Its ledger has an Attempt for every insert:
//
//	acknowledged  the client holds the OK
//	unknown       the INSERT may have reached a server: it may be there or not
//	failed        it cannot have been committed
//
// An id is tried elsewhere only while it has certainly not been committed.
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
