package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/bulk"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/logcopy"
)

// A learner's source: the node that feeds it in place of the leader. Why that is
// sound is in consensus/group_source.go. Nothing rests on it: a learner that gets
// nothing says so in its status, and the leader sends it the log again.

const (
	// sourceRetry is the pause before a source is asked again, sourcePatience how long
	// it may be away before the learner asks for the leader.
	sourceRetry    = 500 * time.Millisecond
	sourcePatience = 3 * time.Second
	// sourceTakeMax bounds how long a learner's log takes to have a part on its disk.
	sourceTakeMax = 30 * time.Second
	// sourceAppliedEvery is how often a source looks how far its mysqld is.
	sourceAppliedEvery = 100 * time.Millisecond
)

var (
	errNotSource  = errors.New("this node is not that one's source")
	errNoLeader   = errors.New("this node has no leader, or its leader has committed no entry yet")
	errFeedChange = errors.New("this node is to be fed by another one")
)

// learnerSource feeds those that have this node as their source.
type learnerSource struct{ a *Agent }

// Open implements bulk.Source.
func (s learnerSource) Open(to cluster.NodeID) bulk.Feed {
	return learnerFeed{s.a.logReader(), s.a, to}
}

// learnerFeed is the committed log for a learner.
type learnerFeed struct {
	logReader
	a  *Agent
	to cluster.NodeID
}

// Next implements bulk.Feed.
func (f learnerFeed) Next(ctx context.Context, index, bytesMax uint64) (bulk.Point, []seglog.Entry, error) {
	for {
		_, changed := f.a.node.Committed().Changed() // before the look
		state := f.a.board.State()
		m, _ := membership.Find(state, f.to)
		if from, ok := state.SourceOf(m); !ok || from.ID != f.a.self.ID {
			return bulk.Point{}, nil, errNotSource
		}
		p, ok := f.a.node.RelayPoint()
		if !ok {
			return bulk.Point{}, nil, errNoLeader
		}
		last := p.Commit
		var applied <-chan time.Time
		if m.SourceApplied && f.a.runsMysqld() {
			last = min(last, f.a.board.Own().Applied)
			applied = time.After(sourceAppliedEvery)
		}
		if index <= last {
			found, _, err := f.ReadCommitted(index, bytesMax)
			found = slices.DeleteFunc(found, func(e seglog.Entry) bool { return e.Index > last })
			return bulk.Point(p), found, err
		}
		select {
		case <-changed:
		case <-applied:
		case <-ctx.Done():
			return bulk.Point(p), nil, nil
		}
	}
}

// source returns who is to feed this node in place of the leader. While it loses its
// vote that is the leader: commits may wait for it.
func (a *Agent) source() (cluster.NodeID, bool) {
	point := a.node.Committed().State()
	m, _ := membership.Find(point.State, a.self.ID)
	from, ok := point.State.SourceOf(m)
	return from.ID, ok && from.ID != a.node.Role().Leader && !slices.Contains(point.Outgoing, a.self.ID)
}

// runSource gets the log from this node's source, while it has one.
func (a *Agent) runSource(ctx context.Context) error {
	said := ""
	gone := time.AfterFunc(sourcePatience, func() { a.fedBy("") })
	defer gone.Stop()
	for ctx.Err() == nil {
		changed := a.board.Changes()
		from, ok := a.source()
		if !ok {
			a.fedBy("")
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		err := a.follow(ctx, from, gone)
		if text := err.Error(); text != said && ctx.Err() == nil && !errors.Is(err, errFeedChange) {
			a.logger.Warn("the source of this node does not feed it", "source", a.board.Name(from), "error", err)
			said = text
		}
		select {
		case <-time.After(sourceRetry):
		case <-ctx.Done():
		}
	}
	return nil
}

// follow takes what a source gives until that ends, and returns why it did. Every sign
// of life puts gone off.
func (a *Agent) follow(ctx context.Context, from cluster.NodeID, gone *time.Timer) error {
	alive := func() error {
		gone.Reset(sourcePatience)
		a.fedBy(a.board.Name(from))
		if now, ok := a.source(); !ok || now != from {
			return errFeedChange
		}
		return nil
	}
	take := func(p bulk.Point, found []seglog.Entry) error {
		// While a part is on its way to the disk nobody says anything.
		gone.Reset(sourcePatience + sourceTakeMax)
		err := a.takeRelayed(ctx, from, consensus.Relayed{RelayPoint: consensus.RelayPoint(p), Entries: found})
		gone.Reset(sourcePatience)
		return err
	}
	return a.bulk.Follow(ctx, from, a.node.Committed().Mark().Index+1, take, alive)
}

// takeRelayed takes entries and returns once they are committed here, on this node's
// disk. Stages that they name are copied first, however long that takes.
func (a *Agent) takeRelayed(ctx context.Context, from cluster.NodeID, r consensus.Relayed) error {
	for _, e := range r.Entries {
		if s, ok := logcopy.StagedOf(e); ok {
			if err := a.bulk.FetchStage(ctx, s, from); err != nil {
				return err
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, sourceTakeMax)
	defer cancel()
	if err := a.node.StepRelayed(ctx, r); err != nil {
		return err
	}
	last := r.Entries[len(r.Entries)-1].Index
	for {
		mark, changed := a.node.Committed().Changed()
		if mark.Index >= last {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait until entry %d of the source is committed here: %w", last, ctx.Err())
		}
	}
}

// fedBy notes who feeds this node; "" = the leader. Its peers are told at once.
func (a *Agent) fedBy(name string) {
	before := ""
	a.board.Update(func(s *cluster.NodeStatus) { before, s.FedBy = s.FedBy, name })
	if before != name {
		a.logger.Info("this learner is fed by another node", "by", name, "was", before)
		a.board.Wake()
	}
}

// feedLearners tells raft, on the leader, which learners it need not feed: those that
// have just said that their source does.
func (a *Agent) feedLearners(ctx context.Context) {
	if !a.node.Role().Leading {
		a.fed.Store(nil)
		return
	}
	state := a.board.State()
	var fed []cluster.NodeID
	for _, n := range a.board.Nodes() {
		m, _ := membership.Find(state, n.ID)
		if from, ok := state.SourceOf(m); ok && from.ID != a.self.ID && n.Reachable && n.FedBy == from.Name {
			fed = append(fed, n.ID)
		}
	}
	a.node.SetFed(ctx, fed)
	if before := a.fed.Swap(&fed); before == nil || !slices.Equal(*before, fed) {
		a.bulk.SetMembers(a.bulkMembers())
	}
}
