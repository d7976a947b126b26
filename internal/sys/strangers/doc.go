// Package strangers bounds the connections of those who have not shown yet who they are.
//
// Each port has a Room. A connection enters it when it is accepted, and leaves it when it has
// logged in. So a stranger that says nothing takes no place of those who have logged in.
//
// Nobody waits for a place. A source may have a few strangers for as long as the port lets
// them; of more, each stays only for a time that any login ends in, and then the next stranger,
// wherever it comes from, expels it. If the whole room is full, the oldest stranger of the source
// that has the most goes at once. So a burst of real clients from one address loses nobody while
// it is smaller than the room; a port that knows how many can come says how it keeps to that.
//
// A port may know where those are at home that log in there. Strangers from there go last, where
// no others are left. Those from elsewhere take turns at what costs this host much, a few of each
// source at a time, and all sources together at a pace: of more some wait, the others are turned away.
//
// A source is an IPv4 address or, as one host may use any address of its network, the first
// 64 bits of an IPv6 address.
//
// A Log bounds what strangers make the agent log: a few lines a minute about each source. A Burst bounds
// the lines about those who have logged in.
//
// The package starts no goroutine and keeps nothing on disk. Its types may be used from any
// goroutine.
package strangers
