// Package api is the agent's HTTP server, for people, load balancers and
// Prometheus. All but two requests only read.
//
//	GET /status     the cluster as this node sees it: cluster.Status in JSON
//	GET /health     200 if mysqld runs, or the node is a logger
//	GET /liveness   200 if the agent answers
//	GET /readiness  200 if the node is the primary, a replica or a logger
//	GET /primary    200 if the node is the primary
//	GET /replica    200 if the node is a replica
//	GET /log/purge  what a purge of the log would remove: cluster.PurgePlan
//	POST /log/purge removes it; cluster.PurgeRequest in JSON. It never removes
//	                what a member needs, so the worst it can do is history
//	POST /control/NAME  an operator's request: control.Request and control.Answer
//	                in JSON. From this host alone, and from no browser
//	GET /metrics    figures in Prometheus' text format
//	GET /debug/pprof/  Go's own profiles of the agent
//
// The names and meanings of the health endpoints are Patroni's, which HAProxy
// and Kubernetes set-ups know. "No" is 503. The body is the node's own
// cluster.NodeStatus in JSON either way, so that the reason is one curl away.
//
// There is no authentication and no TLS: bind it to loopback or to a network
// that may read it.
//
// Server.Run owns all goroutines: net/http's and one that waits for the end.
// The package keeps no state; every answer is made from the Provider's
// snapshot of that moment.
package api
