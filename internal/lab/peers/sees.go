package peers

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/quorate/quorate/internal/cluster"
)

// Missed says whether some other node of the system has noticed that node is gone, or does
// not answer. Systems whose nodes do not watch each other return errors.ErrUnsupported.
func (d *Deployment) Missed(ctx context.Context, node string) (bool, error) {
	w, ok := d.driver.(interface {
		missed(ctx context.Context, node string) (bool, error)
	})
	if !ok {
		return false, fmt.Errorf("ask %s who is missing: %w", d.opts.System, errors.ErrUnsupported)
	}
	return w.missed(ctx, node)
}

// missed: a member is not ONLINE in another's view, or not in it.
func (g *group) missed(ctx context.Context, node string) (bool, error) {
	for _, s := range g.living() {
		if s.name == node {
			continue
		}
		all, err := g.members(ctx, s)
		if err != nil || len(all) < 2 {
			continue // it is not of the group itself
		}
		in := false
		for _, m := range all {
			in = in || m.node == node && m.state == "ONLINE"
		}
		if !in {
			return true, nil
		}
	}
	return false, ctx.Err()
}

// missed: another node's cluster has become smaller.
func (g *galera) missed(ctx context.Context, node string) (bool, error) {
	for _, s := range g.living() {
		if s.name == node {
			continue
		}
		state, err := g.state(ctx, s)
		if err != nil {
			continue
		}
		if size, err := strconv.Atoi(state["wsrep_cluster_size"]); err == nil && size < len(g.all) {
			return true, nil
		}
	}
	return false, ctx.Err()
}

// missed: another agent does not hear the node, or has another leader than before it was gone.
func (a *agents) missed(ctx context.Context, node string) (bool, error) {
	for _, n := range a.d.nodes {
		if n.name == node || n.running() == nil {
			continue
		}
		st, err := a.status(ctx, n)
		if err != nil {
			continue
		}
		if unheard(st, node) {
			return true, nil
		}
	}
	return false, ctx.Err()
}

// unheard says whether the node that gives a status does not hear another, has no leader, or
// has another leader than the one that it still takes for the primary.
func unheard(st cluster.Status, node string) bool {
	var other, self cluster.NodeStatus
	for _, s := range st.Nodes {
		switch s.Name {
		case node:
			other = s
		case st.Self:
			self = s
		}
	}
	return !other.Reachable || self.Leader == 0 || other.Role == cluster.RolePrimary && self.Leader != other.ID
}

// Abandon says that a node, which was killed, never comes back: Recover goes without it.
func (d *Deployment) Abandon(node string) error {
	n, err := d.node(node)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gone = true
	return nil
}

func (n *node) abandoned() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.gone
}
