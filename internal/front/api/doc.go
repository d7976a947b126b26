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
// The names and meanings of the health endpoints are the same as in Patroni, which HAProxy and
// Kubernetes set-ups know. "No" is 503. The body is the node's own status.Node in JSON in both
// cases, so that curl shows the reason.
//
// The port has no TLS. Without tokens (Config.TokensFile) everybody who reaches it may read, and
// nobody may change anything. If there is a token with the role read, reading needs a token; only
// the health endpoints do not, but then they say only the node's name and role. A token with the
// role operate may POST, from this host alone. Tokens come in the header Authorization; there are no
// cookies. A request from this host with a foreign name in Host, or a POST with a foreign origin,
// may come from a foreign page, and is refused; health endpoints then say only the name and role.
//
// On the socket the kernel says which account asks (SO_PEERCRED). Allowed are root, the agent's own
// account, and the accounts of one group (mode 0660). So the name in the audit log is a fact, not a
// claim.
//
// TestOpenAPI makes openapi.json from the routes and the types, and fails where the file differs from
// them. Other tests compare the answers of the handlers with it.
//
// Server.Run owns all goroutines: those of net/http, those that wait for the end, and the one that
// reads the file of tokens every second, so that no request waits for its disk. Except for the tokens
// the package keeps no state of the cluster: every answer is made from a fresh snapshot of the
// Provider. A stream of events has the goroutine of its request; there are at most streamsMax,
// streamsPerSource of one address, for streamTime each. A copy has the goroutine of its request and one
// that waits for the end; there are at most copiesMax.
package api
