// Package api is the agent's HTTP server: a port with a page, an API, health checks and metrics,
// and a Unix socket for operators' requests.
//
//	GET /           a page for people; app.js, style.css and icon.svg are its files
//	/v1/…           the versioned API: openapi.json has its paths (docs/api.md)
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
//	POST /stream/NAME  a copy of the node's data or log, for root and the agent's own
//	                account alone; its trailers say whether it is whole
//
// The names and meanings of the health endpoints are Patroni's, which HAProxy
// and Kubernetes set-ups know. "No" is 503. The body is the node's own
// status.Node in JSON either way, so that the reason is one curl away.
//
// The port has no TLS. Without tokens (Config.TokensFile) who reaches it may read, and it changes
// nothing. A token with the role read keeps others from reading, but for the health endpoints, which
// then say the node's name and role alone. A token with the role operate may POST, from this host
// alone. Tokens come in the header Authorization; there are no cookies. A request from this host for
// a name that is none of its own, and a POST of a foreign origin, may be a foreign page's, and are
// refused; health endpoints then say the name and role alone.
//
// On the socket the kernel says who asks (SO_PEERCRED): root, the agent's own account, and those of
// one group (mode 0660) may. So who asked is a fact in the audit log, not a claim.
//
// openapi.json is made from the routes and the types by TestOpenAPI, which fails where it is not what
// they say; what the handlers answer is held against it by the other tests.
//
// Server.Run owns all goroutines: net/http's, those that wait for the end, and the one that reads
// the file of tokens every second: no request waits for its disk.
// The package keeps no state; every answer is made from the Provider's
// snapshot of that moment, but for the tokens.
// A stream of events is its request's goroutine; there are streamsMax, streamsPerSource of one address,
// for streamTime each. A copy is
// its request's goroutine and one that waits for the end; there are copiesMax.
package api
