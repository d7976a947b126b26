package operate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/quorate/quorate/internal/agent/datadir"
	"github.com/quorate/quorate/internal/agent/membership"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/raft/consensus"
)

// membersTimeout bounds a request that changes the members: two changes, one of them
// through joint consensus.
const membersTimeout = 3 * control.Timeout

// nodeAdd adds a node, which joins as soon as its agent runs.
func (s *Server) nodeAdd(ctx context.Context, r control.Request, args cluster.MembershipRequest) (Done, error) {
	c := &args.Change
	if err := config.CheckName(c.Name); err != nil {
		return Done{}, control.Errorf(control.CodeInvalid, "%v", err)
	}
	if err := CheckAddress(c.Peer); err != nil {
		return Done{}, err
	}
	c.Op, c.ID = cluster.OpAdd, config.MemberID(s.Cluster, c.Name)
	d, err := s.changeMembers(ctx, r.By, args)
	if result, ok := d.Result.(cluster.ChangeResult); ok && err == nil && args.DryRun {
		result.Notes = append(s.Node.SeedNotes(ctx, *c), result.Notes...)
		d.Result = result
	}
	return d, err
}

// nodePromote gives a learner a vote.
func (s *Server) nodePromote(ctx context.Context, r control.Request, args cluster.MembershipRequest) (Done, error) {
	args.Change.Op = cluster.OpPromote
	n, err := s.statusOf(args.Change.Name)
	if err != nil {
		return Done{}, err
	}
	m, err := s.Board.State().Member(args.Change.Name)
	if err != nil {
		return Done{}, control.Errorf(control.CodeInvalid, "%v", err)
	}
	args.Change.Instance = m.Instance  // the data directory that is judged here
	if n.Kind == cluster.KindLearner { // else the change is refused
		switch why, invalid := membership.RefuseVote(m, n, args.Change.Kind, s.Node.Raft().Committed().Mark().Index); {
		case invalid:
			return Done{}, control.Errorf(control.CodeInvalid, "%s", why)
		case why != "":
			return Done{}, control.Errorf(control.CodeFailed, "%s", why)
		}
	}
	return s.changeMembers(ctx, r.By, args)
}

// nodeDemote takes a node's vote.
func (s *Server) nodeDemote(ctx context.Context, r control.Request, args cluster.MembershipRequest) (Done, error) {
	args.Change.Op = cluster.OpDemote
	return s.changeMembers(ctx, r.By, args)
}

// nodeRebuild has a node copy new data from the others. Meanwhile it has no vote: what
// it had promised counts no more. This change names the instance of its new data
// directory, so nobody accepts the old directory any more.
func (s *Server) nodeRebuild(ctx context.Context, r control.Request, args cluster.MembershipRequest) (Done, error) {
	args.Change.Op, args.Change.Instance = cluster.OpRebuild, datadir.NewInstance()
	if err := s.mayTake(args); err != nil {
		return Done{What: cluster.Change{Membership: &args.Change}.String()}, err
	}
	return s.changeMembers(ctx, r.By, args)
}

// nodeRemove removes a node. A voter loses its vote first: while the change of the
// voters is not complete, the old voters are needed, and must still be known.
func (s *Server) nodeRemove(ctx context.Context, r control.Request, args cluster.MembershipRequest) (Done, error) {
	state := s.Node.Raft().Committed().State().State
	m, err := state.Member(args.Change.Name)
	if err != nil && !state.LeftBehind(args.Change.Name) {
		return Done{}, control.Errorf(control.CodeInvalid, "%v", err)
	}
	args.Change.Op = cluster.OpRemove
	if err := s.mayTake(args); err != nil {
		return Done{What: cluster.Change{Membership: &args.Change}.String()}, err
	}
	if err == nil && m.Votes() {
		c := cluster.Change{Membership: &args.Change}
		plan, err := s.PlanChange(c) // before its vote is gone
		if err != nil {
			return Done{What: c.String()}, RefusedChange(err)
		}
		demote := cluster.MembershipRequest{Change: cluster.MembershipChange{Op: cluster.OpDemote, Name: m.Name}, Ask: args.Ask}
		if _, err := s.changeMembers(ctx, r.By, demote); err != nil {
			return Done{What: c.String()}, err
		}
		if args.DryRun { // it still has its vote
			plan.Notes = append(plan.Notes, "it loses its vote first, then it is removed: that is two changes")
			return s.Planned(c, plan), nil
		}
		if err := s.awaitVoters(ctx); err != nil {
			return Done{}, control.Errorf(control.CodeUncertain, "node %s has lost its vote and is a learner, and it is not removed yet: %v; run the command again", m.Name, err)
		}
		if err := s.mayTake(args); err != nil { // a voter has stopped meanwhile
			return Done{}, control.Errorf(control.CodeFailed, "node %s has lost its vote and is a learner, and it is not removed yet: %v", m.Name, err)
		}
		d, err := s.changeMembers(ctx, r.By, args)
		if result, ok := d.Result.(cluster.ChangeResult); ok {
			result.Notes = plan.Notes
			d.Result = result
		}
		return d, err
	}
	return s.changeMembers(ctx, r.By, args)
}

// awaitVoters waits until a change of the voters is complete.
func (s *Server) awaitVoters(ctx context.Context) error {
	for {
		point, changed := s.Node.Raft().Committed().StateChanged()
		if len(point.Outgoing) == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for the end of the change of the voters: %w", ctx.Err())
		}
	}
}

// changeMembers has a change of the members committed, or only judged.
func (s *Server) changeMembers(ctx context.Context, by string, r cluster.MembershipRequest) (Done, error) {
	c := cluster.Change{Membership: &r.Change}
	if !r.DryRun {
		return s.ChangeAs(ctx, by, r.Ask, c)
	}
	if err := s.MayPropose(c); err != nil {
		return Done{}, err
	}
	c.ID = rand.Text()
	err := s.Node.Raft().CheckState(ctx, c)
	switch {
	case errors.Is(err, consensus.ErrNotLeader), errors.Is(err, consensus.ErrNotReady):
		return Done{}, err
	case err != nil:
		return Done{}, RefusedChange(err)
	}
	plan, err := s.PlanChange(c)
	if err != nil {
		return Done{}, RefusedChange(err)
	}
	if plan.TooFew != "" && !r.Force {
		return Done{}, tooFew(plan)
	}
	return s.Planned(c, plan), nil
}

// statusOf returns what is known of a member.
func (s *Server) statusOf(name string) (status.Node, error) {
	for _, n := range s.Node.Sight().Nodes {
		if n.Name == name {
			return n, nil
		}
	}
	_, err := s.Board.State().Member(name)
	if err == nil {
		err = fmt.Errorf("nothing is known of node %s", name)
	}
	return status.Node{}, control.Errorf(control.CodeInvalid, "%v", err)
}
