package switchover

import (
	"context"
	"errors"
	"time"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/agent/operate"
	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/role"
)

const (
	// timeout bounds a switchover from its request to its answer.
	timeout = 100 * time.Second
	// Bounds of what a switchover may be asked for.
	maxPauseMin = 500 * time.Millisecond
	maxPauseMax = 20 * time.Second
	waitMax     = time.Minute
	// nearEnough is how long the other node may take, from when it is asked, until
	// it has everything that was committed then. Otherwise it is asked again.
	nearEnough = 100 * time.Millisecond
	// askMin is what a node that has everything may take to say so, however short it is waited for.
	askMin = time.Second
	// answerTime is for an answer to come that was given at the last moment.
	answerTime = time.Second
	// lagNoted is the lag, in seconds, of which a plan says something.
	lagNoted = 1
	// successorWait bounds how long a new primary is looked for once leadership
	// was asked away.
	successorWait = 30 * time.Second
	// lookAgain is the pause between two looks if nothing tells of a change.
	lookAgain = 100 * time.Millisecond
	// applierWait bounds the wait for a restarted mysqld to apply, if its applier stood before.
	applierWait = 4 * time.Second
)

// Raft is what a Service needs of the group.
type Raft interface {
	Role() consensus.RoleState
	Committed() *consensus.Committed
}

// Node is the node around a Service.
type Node interface {
	// Base ends when the node stops. A plan goes on if the client that asked goes away.
	Base() context.Context
	Raft() Raft
	// Own is the node's whole status, Sight what it sees of the cluster, itself included.
	Own() status.Node
	Sight() status.Sight
	// Process is the mysqld that runs; nil = none does.
	Process() *mysqld.Process
	// Orders has the plan under way. Input gives the role machine an input.
	Orders() *primary.Orders
	Input(in role.Input)
	// Follow waits until this node has applied everything up to an index. With a term, it then notes that the leadership
	// of the next term is given to this node.
	Follow(ctx context.Context, index, term uint64) error
}

// Config is what a Service works with.
type Config struct {
	Self  cluster.Member
	Node  Node
	Board *board.Board
	// Requests is where the Service asks other nodes, and has changes committed.
	Requests *operate.Server
	// PromotionTimeout bounds the wait for a mysqld that was started again.
	PromotionTimeout time.Duration
}

// Service moves the primary, and starts this node's mysqld again, in order. Make one with New.
type Service struct {
	self             cluster.Member
	node             Node
	board            *board.Board
	requests         *operate.Server
	promotionTimeout time.Duration
}

// New returns a Service. It starts nothing.
func New(c Config) *Service {
	return &Service{self: c.Self, node: c.Node, board: c.Board, requests: c.Requests, promotionTimeout: c.PromotionTimeout}
}

// Handlers are the requests for switchovers and restarts.
func (v *Service) Handlers() map[string]operate.Handler {
	return map[string]operate.Handler{
		"switchover":  {Leader: true, Audited: true, Timeout: timeout, Run: operate.Typed(v.switchover)},
		requestTarget: {Timeout: waitMax, Run: operate.Typed(v.target)},
		"restart":     {OnNode: true, Audited: true, Timeout: cluster.RestartMax, Run: operate.Typed(v.restart)},
	}
}

// runPlan has the role machine carry a plan out, and returns once the plan has ended. The plan goes
// on if the client that asked goes away. The error says why it came to nothing.
func (v *Service) runPlan(in role.Input, o *primary.Order, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(v.node.Base(), timeout)
	defer cancel()
	switch reason, err := v.node.Orders().Run(ctx, o, func() { v.node.Input(in) }); {
	case errors.Is(err, primary.ErrPlanUnderWay):
		return control.Errorf(control.CodeFailed, "%v on node %s", err, v.self.Name)
	case err != nil:
		return control.Errorf(control.CodeUncertain, "it has not ended within %v: see the status", timeout)
	case reason != "":
		return control.Errorf(control.CodeFailed, "node %s: %s", v.self.Name, reason)
	}
	return nil
}

// calledOff adds to the error of a plan that has failed whether writes are open again.
func (v *Service) calledOff(m *primary.Order, err error) error {
	if !m.Closing() {
		return err
	}
	closed := m.ClosedFor().Round(time.Millisecond)
	switch role := v.board.Own().Role; {
	case role == status.RolePrimary:
		return control.Errorf(control.CodeFailed, "called off, writes were closed for %v and are open again on node %s: %v", closed, v.self.Name, err)
	default:
		return control.Errorf(control.CodeFailed, "not done, writes were closed %v ago and node %s is %s now, see the status: %v", closed, v.self.Name, role, err)
	}
}
