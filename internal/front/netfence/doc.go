// Package netfence has the kernel enforce a lease on one TCP port: mysqld's own, on an
// address that clients reach. The agent renews the lease, and the kernel looks at it for
// each packet. So a frozen or slow agent cannot let an answer out that its
// lease does not cover.
//
// # Owns
//
// One nftables table, of family inet, with everything in it, and the netlink socket
// that the table belongs to. Nothing else of the host's rules is read or changed. A drop
// of any table is final, so other rules stay as strict as they were; an accept of this
// one overrules nobody.
//
//	sets requests, answers, redirected, redirect   windows: until when something may pass
//	chain input     hook input   filter   to ROUTER, of no connection: drop; to SERVER: goto requests
//	chain output    hook output  filter   from SERVER, of no connection: drop; from SERVER: goto answers
//	chain requests  redirected, out of that window: goto closed; in the window of requests: accept; goto closed
//	chain answers   in the window of answers: accept; goto closed
//	chain closed    a new connection: reset; no data: accept; else drop
//	chain arriving  hook prerouting nat  to ROUTER, in the window of redirect: dnat to SERVER
//	chain leaving   hook output     nat  the same, for clients on this host
//
// What has no data passes always, as an ACK, a FIN or a reset says nothing of what mysqld
// holds: connections stay alive while they wait, and a client hears at once that mysqld
// has closed its connection. Data that were dropped TCP sends again: a connection goes
// on after renewal.
//
// The window of redirect is looked at for a connection's first packet only: what becomes of
// that connection tracking keeps, longer than the connection lasts. A first packet that mysqld
// had no room for comes again, and a client may use its port again. So requests on redirected
// connections have a window of their own. Where none of them has come in, there is no answer.
//
// # Windows
//
// A window is one element of a set, and ends by two clocks, whichever is first:
//
//   - Its key is an interval of the wall clock, [0, until), which each packet is compared
//     with. That end is absolute: it does not matter when the kernel takes the element, or
//     how long the agent stood still in between. The wall clock shows a suspended machine's
//     sleep.
//   - It has a timeout, which counts from when the kernel takes the element. That is for a
//     wall clock that is set back. The kernel counts in ticks of up to 10 ms, without the
//     time in which the machine sleeps. An eighth is taken off, and a call that took longer
//     than that closes the windows again.
//
// Renewing is a transaction that empties a set and fills it anew. It so works with kernels
// before 6.12 too, which cannot change an element's timeout. Older kernels may find nothing
// in a set while that is under way (Linux commit a60f7bf4a152). So a window has two sets, and
// is open where one of them says so: they are renewed in turns. Where a window becomes shorter,
// or is closed, both are emptied.
//
// # Life
//
// The table has the flag "owner" (Linux 5.12): the kernel removes it when the last
// descriptor of its socket is closed, nobody else can change it, and "nft flush ruleset"
// leaves it alone. mysqld inherits such a descriptor (File). So the table outlives a
// killed agent for exactly as long as that mysqld, and nothing is left behind that would
// fence a port of a host that has no quorate any more. mysqld can do nothing with the
// descriptor but hold it: the kernel asks for CAP_NET_ADMIN of who sends.
//
// # Concurrency
//
// A Fence has no goroutine. Its methods may be called by many.
package netfence
