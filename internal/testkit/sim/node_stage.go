package sim

import (
	"context"
	"log/slog"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/bulk"
	"github.com/quorate/quorate/internal/raft/consensus"
)

// Stages and their chunks are so small that faults come between them.
const (
	chunkBytesMax = 3 << 10
	stageBytesMin = 4 << 10
)

// copies returns the settings with which a process copies beside the log: it uses the simulated connections.
func (n *node) copies(l *life) bulk.Config {
	return bulk.Config{
		ChunkBytesMax: chunkBytesMax, Logger: slog.New(slog.DiscardHandler),
		Dial: func(_ context.Context, id cluster.NodeID) (bulk.Conn, error) { return n.dial(l, id), nil },
	}
}

// copiesOf starts the copying for a log without Raft. end stops it.
func (n *node) copiesOf(log *seglog.Log, l *life) (copies *bulk.Bulk, end context.CancelFunc) {
	cfg := n.copies(l)
	cfg.Self, cfg.Learners, cfg.Tasks = n.id, n.others(), l
	cfg.Stages = bulk.LogStages{Log: log, Epoch: func() uint64 { return 0 }}
	copies = bulk.New(cfg)
	ctx, end := context.WithCancel(context.Background())
	l.start(func() { _ = copies.Run(ctx) })
	return copies, end
}

// others returns the ids of all other nodes.
func (n *node) others() (ids []cluster.NodeID) {
	for _, peer := range n.w.nodes {
		if peer != n {
			ids = append(ids, peer.id)
		}
	}
	return ids
}

// onBroken fails the run: all members of a simulated cluster are sound.
func (a *agent) onBroken(b consensus.Broken) {
	a.n.w.fail("broken", "node %d takes node %d for broken: %v", a.n.id, b.From, b.Err)
}
