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
		return control.Errorf(control.CodeFailed, "of the other voters %s is not well, and would miss that node %s moves: "+
			"wait until \"quorate status\" shows it again (one node moves at a time); --force does not wait", strings.Join(away, ", "), name)
	case m.ID == s.Self.ID:
		return control.Errorf(control.CodeFailed, "node %s leads, and nobody else has tried the new address: move the primary first (quorate switchover)", name)
	}
	if err := s.Node.Peers().AnswersAt(ctx, m.ID, to); err != nil {
		return control.Errorf(control.CodeFailed, "node %s does not answer at %s: %s; write that address into its node.toml and restart its agent first; "+
			"--force takes the address all the same, and the others do not reach the node until it is there", name, to, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}
