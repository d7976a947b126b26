package sim

import (
	"context"
	"log/slog"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/bulk"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/logcopy"
)

// Stages are so short, and so are their parts, that faults fall between them.
const (
	chunkBytesMax = 3 << 10
	stageBytesMin = 4 << 10
)

// stages are a node's large transactions on their way beside the log: package bulk over
// conns.
type stages struct {
	*bulk.Bulk
	end context.CancelFunc
}

// noEpoch is what a log without Raft has committed.
func noEpoch() uint64 { return 0 }

// init begins the copies of a process. epoch is the newest that is committed, a what others
// get the log from; nil where no agent runs.
func (s *stages) init(n *node, log *seglog.Log, l *life, epoch func() uint64, a *agent) {
	cfg := bulk.Config{
		Self: n.id, Learners: n.others(), Stages: bulk.LogStages{Log: log, Epoch: epoch}, Tasks: l, ChunkBytesMax: chunkBytesMax,
		Dial:   func(_ context.Context, id cluster.NodeID) (bulk.Conn, error) { return n.dial(l, id), nil },
		Logger: slog.New(slog.DiscardHandler),
	}
	if a != nil {
		cfg.Entries, cfg.Source = logcopy.Entries{Node: a.raft, Log: func() bulk.Reader { return a.committedLog() }}, a.newSource()
		cfg.Leads = func(id cluster.NodeID, term uint64) bool { return a.raft.Role().LedBy(id, term) }
	}
	s.Bulk = bulk.New(cfg)
	var ctx context.Context
	ctx, s.end = context.WithCancel(context.Background())
	l.start(func() { _ = s.Run(ctx) })
}

// others are all other nodes.
func (n *node) others() (ids []cluster.NodeID) {
	for _, peer := range n.w.nodes {
		if peer != n {
			ids = append(ids, peer.id)
		}
	}
	return ids
}

// copyToMembers has new stages go to the members of now, and those under way.
func (a *agent) copyToMembers() {
	voters, others := a.feeder.StageMembers(a.board.Members())
	a.stages.SetMembers(voters, a.raft.Committed().State().Outgoing, others)
}

// onBroken: all members of a simulated cluster are sound.
func (a *agent) onBroken(b consensus.Broken) {
	a.n.w.fail("broken", "node %d takes node %d for broken: %v", a.n.id, b.From, b.Err)
}

// onWanted fetches a stage that the leader has named: from it, or from any other.
func (a *agent) onWanted(w consensus.Wanted) { a.stages.Want(w.Staged, w.From) }

// runStages removes what nothing can name any more.
func (a *agent) runStages() {
	a.stages.DropAbandoned(context.Background(), a.raft.Committed().EpochChanged, a.log.DropStages)
}
