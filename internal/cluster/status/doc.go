// Package status has what a node shows of itself, and what follows from the statuses of all nodes: which nodes
// make a majority, how many failures the cluster survives, which node could take over and how soon, and what a
// change would mean.
//
//	Node (one for each member) ──► Sight (with the cluster state) ──► Quorum, Failover, Plan
//	                                                             └──► Cluster, as people see it
//
// A value is a snapshot: the caller that gets it owns it. The JSON field names are an interface (`quorate
// status --json`, the agent's /status): fields are added, and never renamed. Texts of a Node that goes to peers
// are bounded (Bounded).
//
// The package is pure: no goroutine, clock, I/O or randomness. Nothing here is durable.
package status
