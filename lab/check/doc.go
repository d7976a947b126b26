// Package check compares a prober's ledger with the data of every server.
//
// A row is lost if it was acknowledged and is not on the server where clients now write (the first
// server that is given). Diverged counts every difference between servers: a row of the
// prober that one server has and another lacks, a table whose contents differ or that one server
// lacks, and a row that was refused and is there. A row whose outcome the
// clients do not know (unknown) may be there or not, but must be the same on all servers.
//
// The servers must have caught up, and nobody may write meanwhile. Compare is pure;
// Read only reads the servers. The package has no goroutines that outlive a call.
//
// # Limits
//
// The prober's ledger is bounded, and so is what is read of its table. Tables are
// compared by CHECKSUM TABLE, which the server computes row by row.
package check
