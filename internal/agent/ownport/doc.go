// Package ownport is mysqld's own port, on an address that clients reach. It decides which packets pass there
// now, and tells the kernel (docs/architecture/clients.md). Package netfence is the fence.
//
//	lease, role, orders ──► Input ──► StateOf (pure) ──► Refresh ──► netfence ──► the kernel's windows
//
// A Port owns the fence, and what the kernel was told last. Take, Unfence and Close are for one goroutine,
// before and after all others. Any goroutine may call Refresh: the decision and the call of the kernel are one
// step under a mutex, so a later Refresh never loses to an earlier one. Told is Refresh for callers that can
// wait no longer than a context.
//
// Windows end by themselves: an agent that stands still lets nothing pass for longer than its lease.
// A window that is shorter than what the kernel has is set at once. A window that is only renewed is set when
// half of it is over. After an error the kernel may have either state, so the next Refresh always sets it.
//
// Run is one goroutine: it refreshes when something changes, and at intervals. Nothing here is durable.
package ownport
