// Package status is what a node shows of itself, and what follows from what all of them show:
// who makes a majority, how many failures are survived, who could take over and how soon, what
// a change would bring.
//
//	Node (one for each member) ──► Sight (with the cluster state) ──► Quorum, Failover, Plan
//	                                                             └──► Cluster, as people see it
//
// A value is a snapshot: who gets it owns it. The JSON field names are an interface (`quorate
// status --json`, the agent's /status): fields are added, and never renamed. Texts of a Node that
// goes to peers are bounded (Bounded).
//
// The package is pure: no goroutine, clock, I/O or randomness. Nothing here is durable.
package status
