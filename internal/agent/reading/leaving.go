package reading

import (
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
)

// leaving knows which nodes sessions have to leave: nodes that for longer than the grace may not be read.
type leaving struct {
	grace time.Duration
	since map[cluster.NodeID]time.Time
	over  map[cluster.NodeID]bool
}

// look takes the nodes as they are. news: a node may be read no more, or again, or its grace is over.
func (l *leaving) look(nodes []status.Node, policy status.Reads, now time.Time) (news bool) {
	since, over := map[cluster.NodeID]time.Time{}, map[cluster.NodeID]bool{}
	for _, n := range nodes {
		if policy.May(n) {
			continue
		}
		at, known := l.since[n.ID]
		if !known {
			at = now
		}
		since[n.ID], over[n.ID] = at, now.Sub(at) >= l.grace
		news = news || !known || over[n.ID] != l.over[n.ID]
	}
	for id := range l.since {
		_, still := since[id]
		news = news || !still
	}
	l.since, l.over = since, over
	return news
}
