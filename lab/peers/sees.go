package peers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/internal/cluster/status"
)

// sight is what a node knows of another.
type sight uint8

const (
	inside    sight = iota // the other is in the system
	suspected              // it does not answer, but may still be in the system
	outside                // it is not in the system, or not yet again
)

// views are what each node that has a view of the system knows of the others: by observer, then by node.
type views map[string]map[string]sight

// watcher is a system whose nodes watch each other.
type watcher interface {
	// views asks all nodes except the node but, which may be frozen and would delay the answers.
	views(ctx context.Context, but string) (views, error)
	// detection says in words what makes Missed true.
	detection() string
}

func (d *Deployment) views(ctx context.Context, but string) (views, error) {
	w, ok := d.driver.(watcher)
	if !ok {
		return nil, fmt.Errorf("ask %s who is missing: %w", d.opts.System, errors.ErrUnsupported)
	}
	return w.views(ctx, but)
}

// Missed says whether another node of the system has noticed that node is gone or does
// not answer. Systems whose nodes do not watch each other return errors.ErrUnsupported.
func (d *Deployment) Missed(ctx context.Context, node string) (bool, error) {
	all, err := d.views(ctx, node)
	if err != nil {
		return false, err
	}
	for _, sees := range all {
		if sees[node] != inside {
			return true, nil
		}
	}
	return false, ctx.Err()
}

// Expelled returns the nodes that a majority of the members has put outside.
func (d *Deployment) Expelled(ctx context.Context) ([]string, error) {
	all, err := d.views(ctx, "")
	if err != nil {
		return nil, err
	}
	var voters, nodes []string
	for _, n := range d.nodes {
		switch n.kind {
		case "router":
			continue
		case "learner":
		default:
			voters = append(voters, n.name)
		}
		nodes = append(nodes, n.name)
	}
	return all.expelled(voters, nodes), nil
}

func (v views) expelled(voters, nodes []string) (out []string) {
	for _, node := range nodes {
		count := 0
		for _, observer := range voters {
			if sees, has := v[observer]; has && observer != node && sees[node] == outside {
				count++
			}
		}
		if 2*count > len(voters) {
			out = append(out, node)
		}
	}
	return out
}

// Detection says in words what Missed looks for, because that differs between systems.
func (d *Deployment) Detection() string {
	if w, ok := d.driver.(watcher); ok {
		return w.detection()
	}
	return "nobody watches"
}

func (g *group) detection() string {
	return "another member's replication_group_members does not have it as ONLINE: UNREACHABLE after 5 s of silence; it is expelled later"
}

func (g *galera) detection() string {
	return "it is not in another node's wsrep_incoming_addresses: a new view without it, so it is expelled already (evs.suspect_timeout)"
}

func (a *agents) detection() string {
	return "another agent has no connection to it or does not hear it, or has another leader: after a kill the connection breaks at once"
}

// views: in another member's view a member is ONLINE, UNREACHABLE, in another state, or missing. The view of a member
// that is alone does not count: it is not the group's.
func (g *group) views(ctx context.Context, but string) (views, error) {
	all := views{}
	for _, s := range g.living() {
		if s.name == but {
			continue
		}
		members, err := g.members(ctx, s)
		if err != nil || len(members) < 2 {
			continue // it is frozen, or not in the group itself
		}
		all[s.name] = sightsOf(g.all, members)
	}
	return all, ctx.Err()
}

func sightsOf(servers []*server, members []member) map[string]sight {
	sees := map[string]sight{}
	for _, s := range servers {
		sees[s.name] = outside
	}
	for _, m := range members {
		switch m.state {
		case "ONLINE":
			sees[m.node] = inside
		case "UNREACHABLE":
			sees[m.node] = suspected
		}
	}
	return sees
}

// views: a node sees the nodes in its cluster. A node outside of the primary component has no view.
func (g *galera) views(ctx context.Context, but string) (views, error) {
	all := views{}
	for _, s := range g.living() {
		if s.name == but {
			continue
		}
		state, err := g.state(ctx, s)
		if err != nil || state["wsrep_cluster_status"] != "Primary" {
			continue
		}
		all[s.name] = map[string]sight{}
		has := strings.Split(state["wsrep_incoming_addresses"], ",")
		for _, other := range g.all {
			if !slices.Contains(has, address(other.addr.String(), serverPort)) {
				all[s.name][other.name] = outside
			}
		}
	}
	return all, ctx.Err()
}

// views: an agent misses a node if it does not hear it (quorate expels no node), or has another leader than before the
// node was gone.
func (a *agents) views(ctx context.Context, but string) (views, error) {
	all := views{}
	for _, n := range a.nodes {
		if n.running() == nil || n.name == but {
			continue
		}
		st, err := a.status(ctx, n)
		if err != nil {
			continue
		}
		all[n.name] = map[string]sight{}
		for _, other := range a.nodes {
			if other != n {
				all[n.name][other.name] = seen(st, other.name)
			}
		}
	}
	return all, ctx.Err()
}

// seen is what the node that gives a status knows of another node: outside if it does not hear the other; suspected if
// it has no leader, or still takes the other for the primary and has another leader.
func seen(st status.Cluster, node string) sight {
	var other, self status.Node
	for _, s := range st.Nodes {
		switch s.Name {
		case node:
			other = s
		case st.Self:
			self = s
		}
	}
	switch {
	case !other.Reachable:
		return outside
	case self.Leader == 0 || other.Role == status.RolePrimary && self.Leader != other.ID:
		return suspected
	}
	return inside
}

// Abandon says that a killed node never comes back: Recover goes on without it.
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
