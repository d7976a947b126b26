package agent

import (
	"context"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/raft/bulk"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/logcopy"
	"github.com/quorate/quorate/internal/sys/clock"
)

// Learners' sources, which package logcopy has; here they are only tied together.

// newSource feeds the learners that have this node as their source.
func (a *Agent) newSource() *logcopy.Source {
	s := &logcopy.Source{
		Self: a.self.ID, Committed: a.node.Committed(), Role: a.node.Role, State: a.board.State,
		Log: func() bulk.Reader { return a.logReader() }, Clock: clock.Machine{},
	}
	if a.runsMysqld() {
		s.Applied = func() uint64 { return a.board.Own().Applied }
	}
	return s
}

// newLearner gets the log from this node's source.
func (a *Agent) newLearner() *logcopy.Learner {
	return logcopy.NewLearner(logcopy.LearnerConfig{
		Self: a.self.ID, Committed: a.node.Committed(), Role: a.node.Role, Step: a.node.StepRelayed,
		Peers: a.bulk, Table: a.board, Clock: clock.Machine{}, Logger: a.logger,
	})
}

// feeding is this node as it leaves learners to their sources.
type feeding struct{ *Agent }

// Role implements logcopy.FeederNode.
func (n feeding) Role() consensus.RoleState { return n.node.Role() }

// State implements logcopy.FeederNode.
func (n feeding) State() cluster.State { return n.board.State() }

// Nodes implements logcopy.FeederNode.
func (n feeding) Nodes() []status.Node { return n.board.Nodes() }

// SetFed implements logcopy.FeederNode.
func (n feeding) SetFed(ctx context.Context, ids []cluster.NodeID) { n.node.SetFed(ctx, ids) }

// SetStageMembers implements logcopy.FeederNode.
func (n feeding) SetStageMembers() { n.bulk.SetMembers(n.bulkMembers()) }
