package membership

import (
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
)

// remindAfter is for how long a node that is to begin anew may stay connected before it is
// told so once more. It learns it from the log in a moment, unless it gets no log.
const remindAfter = 5 * time.Second

// Reminder finds the nodes that are to begin anew and do not know. A node learns that
// from the log. A node whose log disk is full, or that lacks what was purged since,
// gets none, and a connection that stands tells it nothing: only a handshake does. The
// zero value is ready.
//
// Whether this node hears the other one does not matter: once it expects the new data directory it refuses to
// dial, and the connection that the other one has made stands.
type Reminder struct {
	since map[cluster.NodeID]time.Duration
}

// Due returns the nodes whose connections are to be ended: what they are to do, the next
// handshake says. now only grows.
func (r *Reminder) Due(now time.Duration, nodes []status.Node) (due []cluster.NodeID) {
	since := map[cluster.NodeID]time.Duration{}
	for _, n := range nodes {
		if !n.Leaving {
			continue
		}
		began, ok := r.since[n.ID]
		if !ok {
			began = now
		}
		if now-began >= remindAfter {
			due = append(due, n.ID)
			began = now
		}
		since[n.ID] = began
	}
	r.since = since
	return due
}
