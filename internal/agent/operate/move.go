package operate

import (
	"context"
	"slices"
	"strings"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/front/control"
)

// mayTake refuses to remove or rebuild the last running node that a voter which is away knows. That voter would know none
// of the nodes that run when it is back, with their present data directories, and refuse them all.
func (s *Server) mayTake(r cluster.MembershipRequest) error {
	state := s.committed()
	m, err := state.Member(r.Change.Name)
	if err != nil || r.Force {
		return nil
	}
	running := s.Node.Sight().Quorum().Running
	for _, v := range state.Members {
		if v.Votes() && v.ID != m.ID && v.ID != s.Self.ID && !slices.Contains(running, v.Name) && !s.Board.KnownTo(v.ID, state, m.ID) {
			return control.Errorf(control.CodeFailed, "voter %s does not run, and may know none of the running nodes that would be left: it would refuse them all when it is back. "+
				"Start its agent first, and wait until \"quorate status\" shows that it runs; or, if it is gone for good, \"quorate node remove %s\" first (if its host comes back later, never recover it, but move its data_dir away); "+
				"--force does not wait: then node %s needs its configuration changed when it is back (docs/runbook.md, \"A node knows none of the members\")", v.Name, v.Name, v.Name)
		}
	}
	return nil
}

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
