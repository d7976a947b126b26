// Package membership decides about the members of a cluster as one node sees them: with
// which data directory a peer is accepted, what becomes of a node that others reject, and
// who gets a vote. Its Follower has a node follow these decisions. The agent runs it with
// real connections and files, the simulator with its own, so both go by the same rules.
//
//	a peer's handshake ──► Directories.Check ──► nil, or a rejection with an Order
//	a rejection        ──► React             ──► a Departure, a recovery to be judged, or a
//	                                             sentence for the status
//	the cluster state  ──► Follow            ──► a Departure
//	a peer's status    ──► CaughtUp          ──► whether a learner may get its vote
//	all peers' status  ──► Repairer.Look     ──► whom the leader has rebuilt by itself
//	both, as they come ──► Follower          ──► whom the node talks to, departures, votes, repairs
//	a Departure        ──► Departing         ──► the node ends, and is another one from then on
//
// # What it owns
//
// Directories owns which data directory each other node comes with. Two maps are durable, in a
// Store: the pinned directories, and those that were met. The rest is in memory: the members, their
// votes and the recovery in the newest cluster state; whether this node's own data came from other
// nodes, and whether it joins and knows nothing yet; which nodes have lately come with an empty
// directory.
//
// A Repairer owns which nodes this leader had rebuilt, a Follower what it saw at its last looks, a
// Departing why the node has to go: all three in memory. The rest are functions without state.
//
// # Invariants
//
//   - A node that comes with another data directory than the pinned one is rejected: an
//     empty log would vote away what the node had promised.
//   - An instance that the cluster gives a node (a rebuild) belongs to one directory: once
//     the node was met with it, the node is rejected with any other directory.
//   - Only a voter, by a state on its own disk, tells a node to discard its data
//     (Directories.Check): a learner may discard that state, and then no voter might know
//     that the node's vote is gone.
//   - What is noted is durable before it counts, and before others are told. One thing counts at once and is
//     durable a second later: that a node has begun again, by the word of another node (Directories.Hear).
//     It only makes this node wait for that node, and refuse the node's other directories.
//
// # Goroutines
//
// A Departing begins one, by a clock.Tasks, once the node has to go. It and Directories have
// locks, and may be called from any goroutine; a Repairer has none. Nothing of Directories waits for
// the disk but Note and what has to be written: a handshake with news, Learn, Expect, Forget. A status
// is taken by the reader of a peer's heartbeats, which must not wait.
// Follower.Run is run by its owner, and waits by a clock.Clock.
package membership
