package operate

import (
	"context"
	"fmt"
	"strings"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/control"
)

// keysFrom lets a node's keys be changed only by that node's agent ("quorate key rotate" runs on its host), or by an
// operator on the leader's host. A stolen key of one member cannot replace another member's key.
func (s *Server) keysFrom(from string, c cluster.KeysChange) error {
	switch {
	case from == c.Name || from == "" && s.Self.Name == c.Name:
		return nil
	case from != "":
		return control.Errorf(control.CodeFailed, "the keys of node %s are not taken from node %s: change them on its own host (quorate key rotate), "+
			"or on the host of node %s, which leads", c.Name, from, s.Self.Name)
	case c.NextKey != nil && *c.NextKey != "":
		return control.Errorf(control.CodeFailed, "the next key of node %s is made on its own host: quorate key rotate", c.Name)
	}
	return nil
}

// nodeKey changes the keys of a node. A key that the node does not show would cut it off.
func (s *Server) nodeKey(ctx context.Context, r control.Request, c cluster.KeysRequest) (Done, error) {
	if err := s.keysFrom(r.From, c.KeysChange); err != nil {
		return Done{What: c.KeysChange.String()}, err
	}
	nodes := s.Node.Sight().Nodes
	for _, k := range []*cluster.Key{c.Key, c.NextKey} {
		if k == nil || c.Force {
			continue
		}
		if lack := status.WithoutAuthority(*k, nodes); len(lack) > 0 {
			return Done{What: c.KeysChange.String()}, control.Errorf(control.CodeFailed,
				"an authority has issued that key, and no authority is known to node %s: write [peer_tls] into its node.toml, and restart its agent", strings.Join(lack, ", "))
		}
	}
	for _, n := range nodes {
		if n.Name == c.Name && n.Reachable && c.Key != nil && n.Key != *c.Key && !c.Force {
			return Done{What: c.KeysChange.String()}, control.Errorf(control.CodeFailed,
				"node %s runs, and shows the key %s: with another key it is cut off. \"quorate key rotate\" on its host changes its key; "+
					"--force takes that key away at once, if it was stolen", n.Name, orNone(n.Key))
		}
	}
	return s.ChangeAs(ctx, r.By, c.Ask, cluster.Change{Keys: &c.KeysChange})
}

func orNone(k cluster.Key) string {
	if k == "" {
		return "(none)"
	}
	return string(k)
}

// keysFor refuses the next step of peer-security if a node cannot take it. lacking are the keys that nodes have shown
// and the cluster state lacks: they are to be committed before. The notes say what a person has to look at.
func (s *Server) keysFor(to cluster.PeerSecurity) (lacking []cluster.KeysChange, notes []string, err error) {
	nodes := map[cluster.NodeID]status.Node{}
	for _, n := range s.Node.Sight().Nodes {
		nodes[n.ID] = n
	}
	state := s.Board.State()
	if state.PeerSecurity.Next() != to {
		return nil, nil, nil // the state itself refuses it
	}
	var shown, all []string
	for _, m := range state.Members {
		n, key := nodes[m.ID], m.Key
		switch {
		case m.ID != s.Self.ID && !n.Reachable:
			return nil, nil, control.Errorf(control.CodeFailed, "node %s is away: it is not known whether its connections can use TLS", m.Name)
		case m.Key == "" && n.Key == "":
			return nil, nil, control.Errorf(control.CodeFailed, "node %s has no key: make it on its host with \"quorate key new\", and restart its agent", m.Name)
		case to == cluster.PeersRequire && len(n.PlainPeers) > 0:
			return nil, nil, control.Errorf(control.CodeFailed, "node %s has connections without TLS, to %s: that ends some seconds after peer-security %s; if it does not, its log says why",
				m.Name, strings.Join(n.PlainPeers, ", "), cluster.PeersBoth)
		case m.Key == "":
			key = n.Key
			lacking = append(lacking, cluster.KeysChange{Name: m.Name, Key: &key})
			shown = append(shown, fmt.Sprintf("node %s: %s", m.Name, key))
		}
		all = append(all, fmt.Sprintf("node %s: %s", m.Name, key))
	}
	if len(shown) > 0 {
		notes = append(shown, "these keys came over connections that are not protected: compare them with what \"quorate key show\" prints on each host")
	}
	if to == cluster.PeersRequire {
		notes = append(all, "write the keys into each node.toml, as [[member]] key: a node that has lost its data goes by them")
	}
	return lacking, notes, nil
}
