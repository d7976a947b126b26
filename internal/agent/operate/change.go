package operate

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/raft/consensus"
)

// PlanChange says what a change of the cluster state means by what is known now.
func (s *Server) PlanChange(c cluster.Change) (cluster.Impact, error) {
	return s.plan(s.committed(), c)
}

// committed is the newest cluster state of which this node knows that it is committed. The status table has it only once
// it is on the disk.
func (s *Server) committed() cluster.State {
	if r := s.Node.Raft(); r != nil {
		return r.Committed().State().State
	}
	return s.Board.State()
}

func (s *Server) plan(before cluster.State, c cluster.Change) (cluster.Impact, error) {
	c.ID = "plan"
	after, err := before.With(c)
	if err != nil {
		return cluster.Impact{}, err
	}
	sight := s.Node.Sight()
	return status.PlanChange(before, after, sight.Nodes, sight.Primary), nil
}

// ChangeAs has a change made as ask says: a change that would stop writes now is
// refused unless it is forced; a dry run only says what would happen.
func (s *Server) ChangeAs(ctx context.Context, by string, ask cluster.Ask, c cluster.Change) (Done, error) {
	if ask.DryRun {
		if err := s.MayPropose(c); err != nil {
			return Done{ReadOnly: true}, err
		}
	}
	before := s.committed()
	plan, err := s.plan(before, c)
	if err == nil && !ask.Force {
		c.Judged = before.Version // another operator may change something at the same time
	}
	switch {
	case errors.Is(err, cluster.ErrUnchanged):
		plan.Notes = []string{err.Error()}
	case err != nil && !ask.DryRun: // the node that makes the change says so, by the committed state
	case err != nil:
		return Done{ReadOnly: true}, RefusedChange(err)
	case plan.TooFew != "" && !ask.Force:
		return Done{What: c.String(), ReadOnly: ask.DryRun}, tooFew(plan)
	case len(plan.Stops) > 0 && !ask.Force && !ask.DryRun:
		return Done{What: c.String()}, control.Errorf(control.CodeFailed, "%s: writes would stop now: %s; --force does it anyway", c, strings.Join(plan.Stops, "; "))
	}
	if ask.DryRun {
		if !s.Node.Raft().Role().Leading {
			return Done{}, consensus.ErrNotLeader
		}
		return s.Planned(c, plan), nil
	}
	d, err := s.ChangeState(ctx, by, c)
	if result, ok := d.Result.(cluster.ChangeResult); ok && result.Changed {
		result.Impact = plan
		d.Result = result
	}
	return d, err
}

func tooFew(plan cluster.Impact) error {
	return control.Errorf(control.CodeFailed, "%s; --force does not wait", plan.TooFew)
}

// Planned is what a dry run answers.
func (s *Server) Planned(c cluster.Change, plan cluster.Impact) Done {
	return Done{ReadOnly: true, Result: cluster.ChangeResult{
		What: c.String(), DryRun: true, Version: s.Node.Raft().Committed().State().State.Version, Impact: plan,
	}}
}

// ChangeState has a change of the cluster state committed.
func (s *Server) ChangeState(ctx context.Context, by string, c cluster.Change) (Done, error) {
	if err := s.MayPropose(c); err != nil {
		return Done{}, err
	}
	c.ID, c.By, c.At = rand.Text(), by, time.Now().UTC().Truncate(time.Millisecond)
	result, refused := cluster.ChangeResult{What: c.String()}, Done{What: c.String()}
	o, err := s.Node.Raft().ProposeState(ctx, c)
	switch {
	case err == nil:
		result.Changed, result.Version, result.Done = true, o.State.Version, c.Done(o.State)
		return Done{Result: result, Index: o.Index}, nil
	case errors.Is(err, cluster.ErrUnchanged):
		result.Version = s.Node.Raft().Committed().State().State.Version
		return Done{Result: result, ReadOnly: true}, nil
	case errors.Is(err, consensus.ErrNotLeader), errors.Is(err, consensus.ErrNotReady):
		return Done{}, err
	case errors.Is(err, consensus.ErrStale):
		return refused, control.Errorf(control.CodeStale, "%v", consensus.ErrStale)
	case errors.Is(err, consensus.ErrUnfit):
		return refused, control.Errorf(control.CodeInvalid, "%v", err)
	case errors.Is(err, consensus.ErrUncertain), errors.Is(err, consensus.ErrStopped):
		return refused, control.Errorf(control.CodeUncertain, "%v", consensus.ErrUncertain)
	}
	return refused, RefusedChange(err)
}

// RefusedChange is the answer to a change that is refused: for now (CodeFailed), or as it stands (CodeInvalid).
func RefusedChange(err error) error {
	if _, ok := errors.AsType[*consensus.RefusedError](err); ok || errors.Is(err, cluster.ErrMaintenance) {
		return control.Errorf(control.CodeFailed, "%v", err)
	}
	return control.Errorf(control.CodeInvalid, "%v", err)
}

// MayPropose refuses a change, or its dry run, while there is a node whose quorate is too old for it.
func (s *Server) MayPropose(c cluster.Change) error {
	return cmp.Or(s.allKnowState(), s.allKnow(c))
}

// allKnowState refuses a change while a node is heard whose quorate knows no cluster
// state: its agent would end at the entry.
func (s *Server) allKnowState() error {
	for _, n := range s.Board.Nodes() {
		if n.Role != "" && n.StateVersion == nil {
			return control.Errorf(control.CodeFailed, "node %s runs quorate %s, which knows no cluster state: upgrade it first",
				n.Name, n.AgentVersion)
		}
	}
	return nil
}

// callVersion is the protocol version of the first agents that know a cluster state.
const callVersion = 2

// allKnow refuses a change while there is a node whose quorate would lose part of the
// new state: as the leader it would make the next state without that part. A node that is
// connected and has not sent its status yet is judged by its protocol version.
func (s *Server) allKnow(c cluster.Change) error {
	want := max(c.Format(), s.Board.State().Format())
	for _, n := range s.Board.Nodes() {
		if n.Role != "" && !n.Knows(want) {
			return control.Errorf(control.CodeFailed, "node %s runs quorate %s, which does not know all of the cluster state: upgrade it first",
				n.Name, n.AgentVersion)
		}
	}
	for _, p := range s.Node.Peers().Stats().Peers {
		if p.Version != 0 && p.Version < callVersion {
			return control.Errorf(control.CodeFailed, "node %s speaks protocol version %d, and knows no cluster state: upgrade it first",
				s.Board.Name(p.ID), p.Version)
		}
	}
	return nil
}
