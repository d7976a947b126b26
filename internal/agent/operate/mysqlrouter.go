package operate

import (
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/front/control"
)

// routable refuses router on while a node is heard of whose mysqld clients cannot reach.
func (s *Server) routable() error {
	for _, n := range s.Node.Sight().Nodes {
		if n.Kind == cluster.KindFull && n.Reachable && n.MySQLRouter == "" {
			return control.Errorf(control.CodeFailed, "mysqld of node %s is on loopback alone, so MySQL Router cannot reach it: "+
				"set mysql.bind there to the node's own address (docs/operations.md, \"mysqld's own port\"), and restart its agent", n.Name)
		}
	}
	return nil
}
