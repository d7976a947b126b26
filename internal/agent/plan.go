package agent

import (
	"context"
	"errors"
	"strings"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/consensus"
	"github.com/quorate/quorate/internal/control"
)

// planChange says what a change of the cluster state means by what is known now.
func (a *Agent) planChange(c cluster.Change) (cluster.Plan, error) {
	c.ID = "plan"
	before := a.board.State()
	after, err := before.With(c)
	if err != nil {
		return cluster.Plan{}, err
	}
	return cluster.PlanChange(before, after, a.nodes(), a.primaryName()), nil
}

// changeAs has a change made as it is asked for: one that would stop writes now is
// refused unless it is forced, and a dry run only tells.
func (a *Agent) changeAs(ctx context.Context, by string, ask cluster.Ask, c cluster.Change) (done, error) {
	if ask.DryRun {
		if err := a.mayPropose(c); err != nil {
			return done{readOnly: true}, err
		}
	}
	plan, err := a.planChange(c)
	switch {
	case errors.Is(err, cluster.ErrUnchanged):
		plan.Notes = []string{err.Error()}
	case err != nil && !ask.DryRun: // whoever makes it says so, by what is committed
	case err != nil:
		return done{readOnly: true}, refusedChange(err)
	case len(plan.Stops) > 0 && !ask.Force && !ask.DryRun:
		return done{what: c.String()}, control.Errorf(control.CodeFailed, "%s: writes would stop now: %s; --force does it anyway", c, strings.Join(plan.Stops, "; "))
	}
	if ask.DryRun {
		if !a.node.Role().Leading {
			return done{}, consensus.ErrNotLeader
		}
		return a.planned(c, plan), nil
	}
	d, err := a.changeState(ctx, by, c)
	if result, ok := d.result.(cluster.ChangeResult); ok && result.Changed {
		result.Plan = plan
		d.result = result
	}
	return d, err
}

// planned is what a dry run answers.
func (a *Agent) planned(c cluster.Change, plan cluster.Plan) done {
	return done{readOnly: true, result: cluster.ChangeResult{
		What: c.String(), DryRun: true, Version: a.node.Committed().State().State.Version, Plan: plan,
	}}
}

// withoutNode says who could take over while a node's mysqld is down.
func (a *Agent) withoutNode(name string) []string {
	return cluster.WithoutNode(provider{a}.Status(), name)
}
