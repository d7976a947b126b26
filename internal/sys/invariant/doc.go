// Package invariant holds the checks that stay on in production.
//
// quorate's promise is that doubt never acknowledges. When a fact that the
// design guarantees turns out false, going on could acknowledge a transaction
// that is not safe; so a broken invariant panics, the agent dies, the kernel
// kills its mysqld (parent-death signal), and a majority of the other nodes
// goes on. Each message names the invariant (I1-I9, docs/architecture/invariants.md).
//
// The package owns no state and starts no goroutine.
package invariant
