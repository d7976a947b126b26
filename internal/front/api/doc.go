// Package api is the agent's HTTP server: a port that people, load balancers and
// Prometheus read from, and a Unix socket for operators' requests.
//
//	GET /status     the cluster as this node sees it: status.Cluster in JSON
//	GET /health     200 if mysqld runs, or the node is a logger
//	GET /liveness   200 if the agent answers
//	GET /readiness  200 if the node is the primary, or a replica or a logger that has
//	                a leader
//	GET /primary    200 if the node is the primary
//	GET /replica    200 if the node is a replica that has a leader (and with lag=2s no older data): without one its
//	                data may be of any age
//	GET /metrics    figures in Prometheus' text format
//	GET /debug/pprof/  Go's own profiles of the agent, from this host alone, if
//	                they are asked for (Config.Pprof)
//
// and on the socket, beside all of these:
//
//	POST /control/NAME  an operator's request: control.Request and control.Answer
//	                in JSON
//
// The names and meanings of the health endpoints are Patroni's, which HAProxy
// and Kubernetes set-ups know. "No" is 503. The body is the node's own
// status.Node in JSON either way, so that the reason is one curl away.
//
// The port has no authentication and no TLS: bind it to loopback or to a network
// that may read it. It changes nothing. On the socket the kernel says who asks
// (SO_PEERCRED): root, the agent's own account, and those of one group (mode 0660)
// may. So who asked is a fact in the audit log, not a claim.
//
// Server.Run owns all goroutines: net/http's and those that wait for the end.
// The package keeps no state; every answer is made from the Provider's
// snapshot of that moment.
package api
