package router

import "sync/atomic"

// Stats are the router's figures. Open, Held and Sessions are present numbers, the others count
// since the start.
type Stats struct {
	// Open is the number of client connections. Held of them wait for a node, Sessions of them
	// are connected to a node.
	Open, Held, Sessions int64

	// Accepted counts clients that connected to this port. Routed counts clients that peers
	// forwarded to it, RoutedRefused those that it refused.
	Accepted, Routed, RoutedRefused int64
	// Rejected counts clients turned away because a bound was reached,
	// HoldTimeouts those that waited in vain.
	Rejected, HoldTimeouts int64
	// Denied counts the clients of this port whose login the server refused, as far as the
	// router can tell.
	Denied int64
	// Refused counts clients from addresses that are not allowed. Expelled counts clients that
	// did not log in and had to make room for others.
	Refused, Expelled int64
	// AcceptErrors and DialErrors count failed attempts.
	AcceptErrors, DialErrors int64
	// Sessions that were closed by CloseAll, because of a change (of the primary, for example),
	// and because a chunk came without a lease.
	ClosedByFence, ClosedByChange, ClosedByLease int64
}

type counters struct {
	sessions, accepted, routed, routedRefused    atomic.Int64
	rejected, holdTimeouts, denied               atomic.Int64
	acceptErrors, dialErrors                     atomic.Int64
	closedByFence, closedByChange, closedByLease atomic.Int64
}

// Stats returns the figures of the moment.
func (r *Router) Stats() Stats {
	r.mu.Lock()
	open := r.open
	r.mu.Unlock()
	strangers := r.strangers.Stats()
	c := &r.stats
	return Stats{
		Open: int64(open), Held: int64(r.held.Stats().Inside), Sessions: c.sessions.Load(),
		Accepted: c.accepted.Load(), Routed: c.routed.Load(), RoutedRefused: c.routedRefused.Load(),
		Rejected: c.rejected.Load(), HoldTimeouts: c.holdTimeouts.Load(), Denied: c.denied.Load(),
		Refused: int64(strangers.Refused), Expelled: int64(strangers.Expelled),
		AcceptErrors: c.acceptErrors.Load(), DialErrors: c.dialErrors.Load(),
		ClosedByFence: c.closedByFence.Load(), ClosedByChange: c.closedByChange.Load(), ClosedByLease: c.closedByLease.Load(),
	}
}
