// Package operate carries out operators' requests. It finds the node whose agent is to carry
// a request out, has that done there, and writes the line of the audit log. It also takes the
// requests of other agents.
//
//	api's control socket ──► Serve ─────┬─► here ─► Handler.Run ─► line ─► answer
//	another node's agent ──► ServeCall ─┤
//	                                    └─► Forward ─► the leader's agent, or the one of the node that is meant
//
// It owns the table of requests, the plans of changes of the cluster state (Change), and
// the answers to "was it committed?". Requests whose state another package owns are added
// to the table by the package that composes both (Handle).
//
// # Invariants
//
//   - A request is carried out once at most. A request that was sent and got no answer is
//     uncertain, and the agent never tries it again.
//   - A node that carries out, or refuses, a request that changes something has a line of it
//     in its audit log. A committed change has its line with its entry.
//   - A transaction that is said to be not committed never will be: the newest epoch was read
//     behind a barrier, before anything was looked up.
//   - Every request has a time limit.
//
// # Goroutines
//
// None: each request runs in its caller's goroutine.
package operate
