// Package ownport is mysqld's own port, on an address that clients reach: which packets pass there now, and
// that the kernel has heard of it (docs/architecture/clients.md). Package netfence is the fence.
//
//	lease, role, orders ──► Input ──► StateOf (pure) ──► Refresh ──► netfence ──► the kernel's windows
//
// A Port owns the fence, and what the kernel was told last. Take, Unfence and Close are for one goroutine,
// before and after all others. Refresh is for all: the decision and the call of the kernel are one step under
// a mutex, so a later one never loses to an earlier one. Told is Refresh for who cannot wait longer than a context.
//
// Windows end by themselves: an agent that stands still lets nothing pass for longer than its lease.
// A window that is shorter than what the kernel has is set at once; the same one is set again when half of
// it is over. After an error the kernel may have either state, so the next Refresh sets it whatever it is.
//
// Run is one goroutine: it refreshes when something changes, and at intervals. Nothing here is durable.
package ownport
