package operate

import (
	"context"
	"slices"
	"strings"

	"github.com/quorate/quorate/internal/front/control"
)

// mayMove refuses another address for a voter, unless the voter answers there. This node leads, so a majority of
// the voters reaches it, whatever becomes of the voter that moves: the address can be put right again. A node that
// is away learns of the change only from a node that it can still reach: so all others have to be there.
func (s *Server) mayMove(ctx context.Context, name, to string) error {
	m, err := s.Board.State().Member(name)
	if err != nil || !m.Votes() || m.Peer == to { // the change is refused, needs no care, or changes nothing
		return nil
	}
	q := s.Node.Sight().Quorum()
	away := slices.DeleteFunc(q.Voters, func(v string) bool { return v == name || slices.Contains(q.Running, v) })
	switch {
	case len(away) > 0:
		return control.Errorf(control.CodeFailed, "these voters do not run, and would not learn that node %s moves: %s; "+
			"wait until \"quorate status\" shows that they run (one node moves at a time); --force does not wait", name, strings.Join(away, ", "))
	case m.ID == s.Self.ID:
		return control.Errorf(control.CodeFailed, "node %s leads, and no other node has tried the new address: move the primary first (quorate switchover)", name)
	}
	if err := s.Node.Peers().AnswersAt(ctx, m.ID, to); err != nil {
		return control.Errorf(control.CodeFailed, "node %s does not answer at %s: %s; write that address into its node.toml and restart its agent first; "+
			"--force takes the address all the same: the other nodes do not reach the node until it is there", name, to, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}
