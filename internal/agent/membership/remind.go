package membership

import (
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
)

// remindAfter is for how long a node that is to begin again may stay connected before it is
// told so once more. It learns it from the log in a moment, unless it gets no log.
const remindAfter = 5 * time.Second

// Reminder finds the nodes that are to begin again and do not know that. A node learns it
// from the log. A node whose log disk is full, or that lacks what was purged since, gets
// no log, and an open connection tells it nothing: only a handshake does. The zero value
// is ready.
//
// It does not matter whether this node hears the other one: once it expects the new data directory, it no
// longer connects to the old one, but the connection that the other node has made stays open.
type Reminder struct {
	since map[cluster.NodeID]time.Duration
}

// Due returns the nodes whose connections are to be ended: the next handshake tells them what
// to do. now only grows.
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
