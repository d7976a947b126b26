// Package board is the status table of a node: what it says of itself, and what each
// other node said last. What a node knows of others without asking, it knows from here:
// who is there, who is primary, what the role machine may count on, what the log is still needed for.
// The agent fills it from its transport, the simulator from its network.
//
//	own parts  ──► Update, SetRole, SetRaft ─┐
//	a status   ──► Received, PeerUp          ├──► ForRole, Primary, Nodes, Lives, LastPrimary
//	the log    ──► SetState                 ─┘
//	Gossip: the own status ──► the peers, and ForRole ──► the role machine
//
// # What it owns
//
// A Board owns the newest cluster state that the node knows, its own status, one report
// for each peer, the troubles that a status shows, and the newest sign of a primary. Nothing is
// durable here.
//
// # Invariants
//
//   - The cluster state only gets newer (SetState).
//   - A report counts as live only while the connection to its node stands and the report
//     is younger than four gossip intervals.
//   - What the cluster has agreed on about a member (kind, weight, site) is shown from the
//     cluster state, and never from what the member says.
//
// # Goroutines
//
// The package starts none. Gossip is a loop: its owner runs it until the context ends, and it waits
// by a clock.Clock. A Board has a lock, and may be called from any goroutine. Its owner gives it
// the time (Config.Now).
package board
