// Package netfence makes the kernel enforce a lease on one TCP port: mysqld's own, on an
// address that clients reach. The agent renews the lease, and the kernel checks it for each
// packet. So even a frozen or slow agent lets no answer out that its lease does not cover.
//
// # Owns
//
// One nftables table, of family inet, with everything in it, and the netlink socket that the
// table belongs to. No other rule of the host is read or changed. A drop in any table is final,
// so other rules stay as strict as they were: an accept in this table does not overrule them.
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
// Packets without data always pass, because an ACK, a FIN or a reset tells nothing of mysqld's
// data. So connections stay alive while they wait, and a client hears at once that mysqld has
// closed its connection. TCP sends dropped data again, so a connection goes on after the lease
// was renewed.
//
// The kernel checks the window of redirect for the first packet of a connection only.
// Connection tracking then keeps the decision, longer than the connection lasts: a first packet
// that mysqld had no room for comes again, and a client may use its port again. So requests on
// redirected connections have a window of their own. Where no request comes in, no answer goes
// out.
//
// # Windows
//
// A window is one element of a set. It ends by the first of two clocks:
//
//   - Its key is an interval of the wall clock, [0, until), with which each packet is compared.
//     This end is absolute: it does not matter when the kernel takes the element, or how long
//     the agent stood still before that. The wall clock also counts the sleep of a suspended
//     machine.
//   - It has a timeout, which counts from the moment when the kernel takes the element. It
//     guards against a wall clock that is set back. The kernel counts in ticks of up to 10 ms,
//     without the time in which the machine sleeps. So the timeout is an eighth shorter than
//     the window, and if a call takes longer than that eighth, the windows are closed again.
//
// To renew is a transaction that empties a set and fills it again. So it also works with
// kernels before 6.12, which cannot change the timeout of an element. Older kernels may find
// nothing in a set while the transaction is under way (Linux commit a60f7bf4a152). So a window
// has two sets, and is open if it is open in one of them: they are renewed in turn. Where a
// window becomes shorter or is closed, both are emptied.
//
// # Life
//
// The table has the flag "owner" (Linux 5.12): the kernel removes it when the last descriptor
// of its socket is closed, nobody else can change it, and "nft flush ruleset" leaves it alone.
// mysqld inherits such a descriptor (File). So the table outlives a killed agent for exactly as
// long as that mysqld lives, and no table stays behind on a host that does not run quorate any
// more. mysqld can only hold the descriptor: the kernel demands CAP_NET_ADMIN of a process that
// sends on it.
//
// # Concurrency
//
// A Fence has no goroutine. Many goroutines may call its methods.
package netfence
