// Package operate carries out operators' requests: it finds the node whose agent is to do
// it, has it done there, and writes the line of the audit log. Requests between agents
// come in, too.
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
//   - A request is carried out once at most. One that has gone out, and whose answer did
//     not come, is uncertain, and never tried again by itself.
//   - Who carries out a request that changes something, or refuses it, has a line of it in
//     the audit log. A committed change has its line with its entry.
//   - What is said to be not committed never will be: the newest epoch was read behind a
//     barrier, before anything was looked up.
//   - Every request has a bound of time.
//
// # Goroutines
//
// None: each request runs in its caller's.
package operate
