package sim

import (
	"context"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/raft/bulk"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/logcopy"
)

// newSource feeds the learners that have this node as their source.
func (a *agent) newSource() *logcopy.Source {
	s := &logcopy.Source{
		Self: a.n.id, Committed: a.raft.Committed(), Role: a.raft.Role, State: a.board.State,
		Log: func() bulk.Reader { return a.committedLog() }, Clock: a.life,
	}
	if a.n.runsMysqld() {
		s.Applied = func() uint64 { return a.board.Own().Applied }
	}
	return s
}

// newLearner gets the log from this node's source.
func (a *agent) newLearner() *logcopy.Learner {
	return logcopy.NewLearner(logcopy.LearnerConfig{
		Self: a.n.id, Committed: a.raft.Committed(), Role: a.raft.Role, Step: a.raft.StepRelayed,
		Peers: a.stages, Table: a.board, Clock: a.life, Logger: a.n.logger("source"),
	})
}

// feeding is the agent as it leaves learners to their sources.
type feeding struct{ *agent }

// Role implements logcopy.FeederNode.
func (f feeding) Role() consensus.RoleState { return f.raft.Role() }

// State implements logcopy.FeederNode.
func (f feeding) State() cluster.State { return f.board.State() }

// Nodes implements logcopy.FeederNode.
func (f feeding) Nodes() []status.Node { return f.board.Nodes() }

// SetFed implements logcopy.FeederNode.
func (f feeding) SetFed(ctx context.Context, ids []cluster.NodeID) {
	f.raft.SetFed(ctx, ids)
}

// SetStageMembers implements logcopy.FeederNode.
func (f feeding) SetStageMembers() { f.copyToMembers() }
