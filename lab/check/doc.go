// Package check holds a prober's ledger against what every server has.
//
// Lost is what was acknowledged and is not where clients now write (the first
// server that is given). Diverged is every difference between servers: a row of the
// prober's that one has and another has not, a table that they have with different
// contents or that one lacks, and a row that was refused and is there. What the
// clients do not know (unknown) may be there or not, but the same everywhere.
//
// The servers must have caught up, and nobody may write meanwhile. Compare is pure;
// Read only reads the servers. The package has no goroutines that outlive a call.
//
// # Limits
//
// The prober's ledger is bounded, and so is what is read of its table. Tables are
// compared by CHECKSUM TABLE, which the server computes row by row.
package check
