// Package strangers bounds the connections of those who have not shown yet who they are.
//
// Each port has a Room. A connection enters it when it is accepted, and leaves it when it has
// logged in. So a stranger that says nothing takes no place of those who have logged in.
//
// A source has a few places. Who has one keeps it for a time that any login ends in; after that the next
// stranger of the same source takes it. A port refuses who finds none, which costs next to nothing: silence
// at any pace costs the host no more than those few. The clients' ports have them wait instead, as all clients of
// a pool come at once after a failover: each that has logged in lets the next one in. If the whole room is full, the
// source that has the most loses one at once: the last that waits, else the oldest.
//
// A port may know where those are at home that log in there. Strangers from there are not refused, and go last, where
// no others are left. Those from elsewhere take turns at what costs this host much, a few of each
// source at a time, and all sources together at a pace: of more some wait, the others are turned away.
//
// A source is an IPv4 address or, as one host may use any address of its network, the first
// 64 bits of an IPv6 address.
//
// A Log bounds what strangers make the agent log: a few lines a minute about each source.
//
// The package starts no goroutine and keeps nothing on disk. Its types may be used from any
// goroutine.
package strangers
