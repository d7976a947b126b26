// Package strangers bounds the connections that have not shown yet who they are: strangers.
//
// Each port has a Room. A connection enters the Room when it is accepted, and leaves it when it has
// logged in. So a stranger that says nothing takes no place from clients that have logged in.
//
// No connection waits for a place. A few strangers of each source may stay as long as the port lets
// them. A further stranger of that source is safe only for a time (Limits.Spare) in which any login ends: after
// it, the next stranger from any source expels it. If the whole Room is full, the oldest stranger of the source
// with the most strangers is expelled at once. So a burst of real clients from one address loses no connection
// while it is smaller than the Room; a port that knows how many clients can come says how it keeps to that.
//
// A port may know the sources from which clients have logged in. Strangers from known sources are expelled last,
// when there are no others. Strangers from other sources take turns at work that costs this host much: a few of each
// source at a time, and all sources together at a pace. Of the others some wait, and the rest are turned away.
//
// A source is an IPv4 address, or the first 64 bits of an IPv6 address, because one host may use any
// address of its network.
//
// A Log bounds the lines that strangers cause in the agent's log: a few lines a minute about each source. A Burst bounds
// the lines about clients that have logged in.
//
// The package starts no goroutine and keeps nothing on disk. Its types may be used from any
// goroutine.
package strangers
