package logcopy

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/bulk"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/sys/clock"
)

// appliedEvery is how often a source looks how far its mysqld is.
const appliedEvery = 100 * time.Millisecond

var (
	errNotSource = errors.New("this node is not the source of the node that asks")
	errNoLeader  = errors.New("this node has no leader, or its leader has committed no entry yet")
)

// Source feeds the learners that have this node as their source.
type Source struct {
	Self      cluster.NodeID
	Committed *consensus.Committed
	Role      func() consensus.RoleState
	// State returns the newest cluster state that this node knows.
	State func() cluster.State
	// Log opens the committed log.
	Log func() bulk.Reader
	// Applied returns the last entry that this node's mysqld has applied; nil: the node has no mysqld.
	Applied func() uint64
	Clock   clock.Clock
}

// Open implements bulk.Source.
func (s *Source) Open(to cluster.NodeID) bulk.Feed { return sourceFeed{s.Log(), s, to} }

// sourceFeed is the committed log for one learner.
type sourceFeed struct {
	bulk.Reader
	*Source
	to cluster.NodeID
}

// Next implements bulk.Feed.
func (f sourceFeed) Next(ctx context.Context, index, bytesMax uint64) (bulk.Point, []seglog.Entry, error) {
	for {
		_, changed := f.Committed.Changed() // read before the checks, so that no change is missed
		m, from, ok := sourceOf(f.State(), f.to)
		if !ok || from.ID != f.Self {
			return bulk.Point{}, nil, errNotSource
		}
		p, ok := f.Committed.RelayPoint(f.Role())
		if !ok {
			return bulk.Point{}, nil, errNoLeader
		}
		last, again := p.Commit, time.Duration(0)
		if m.SourceApplied && f.Applied != nil {
			last, again = min(last, f.Applied()), appliedEvery
		}
		if index <= last {
			found, _, err := f.ReadCommitted(index, bytesMax)
			found = slices.DeleteFunc(found, func(e seglog.Entry) bool { return e.Index > last })
			return bulk.Point(p), found, err
		}
		if f.Clock.Wait(ctx, again, changed) != nil {
			return bulk.Point(p), nil, nil
		}
	}
}

// sourceOf returns a member of a cluster state and the node that has to feed it; false = the leader has to.
func sourceOf(s cluster.State, id cluster.NodeID) (m, from cluster.Member, ok bool) {
	if m, ok = s.MemberByID(id); ok {
		from, ok = s.SourceOf(m)
	}
	return m, from, ok
}

// FeederNode is what a Feeder needs of its node.
type FeederNode interface {
	Role() consensus.RoleState
	// State returns the newest cluster state that this node knows.
	State() cluster.State
	// Nodes returns the members, with their last statuses.
	Nodes() []status.Node
	// SetFed tells raft which learners it need not feed: see consensus.Group.
	SetFed(ctx context.Context, ids []cluster.NodeID)
	// SetStageMembers makes stages go to the members that StageMembers returns.
	SetStageMembers()
}

// Feeder makes the leader leave learners to their sources.
type Feeder struct {
	Self cluster.NodeID
	Node FeederNode

	fed atomic.Pointer[[]cluster.NodeID] // nil: this node does not lead, or Look was not called yet
}

// Look tells raft, on the leader, which learners it need not feed: those whose last status says that their
// source feeds them.
func (f *Feeder) Look(ctx context.Context) {
	if !f.Node.Role().Leading {
		f.fed.Store(nil)
		return
	}
	state := f.Node.State()
	var fed []cluster.NodeID
	for _, n := range f.Node.Nodes() {
		if _, from, ok := sourceOf(state, n.ID); ok && from.ID != f.Self && n.Reachable && n.FedBy == from.Name {
			fed = append(fed, n.ID)
		}
	}
	f.Node.SetFed(ctx, fed)
	if before := f.fed.Swap(&fed); before == nil || !slices.Equal(*before, fed) {
		f.Node.SetStageMembers()
	}
}

// StageMembers returns the members to which the leader sends stages, by vote. A learner that its source feeds
// is left out: it copies stages from the source.
func (f *Feeder) StageMembers(members []cluster.Member) (voters, learners []cluster.NodeID) {
	fed := f.fed.Load()
	for _, m := range members {
		switch {
		case m.Votes():
			voters = append(voters, m.ID)
		case fed == nil || !slices.Contains(*fed, m.ID):
			learners = append(learners, m.ID)
		}
	}
	return voters, learners
}
