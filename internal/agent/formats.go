package agent

import (
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/control"
)

// callVersion is the protocol version of the first agents that know a cluster state.
const callVersion = 2

// allKnow refuses a change while there is a node whose quorate would lose part of the
// state that it makes: as the leader it would make the next one without. One that is
// connected and has not told its status so far is known by its protocol version.
func (a *Agent) allKnow(c cluster.Change) error {
	want := max(c.Format(), a.board.State().Format())
	for _, n := range a.board.Nodes() {
		if n.Role != "" && max(n.StateFormat, 1) < want {
			return control.Errorf(control.CodeFailed, "node %s runs quorate %s, which does not know all of the cluster state: upgrade it first",
				n.Name, n.AgentVersion)
		}
	}
	for _, p := range a.peers.Stats().Peers {
		if p.Version != 0 && p.Version < callVersion {
			return control.Errorf(control.CodeFailed, "node %s speaks protocol version %d, and knows no cluster state: upgrade it first",
				a.board.Name(p.ID), p.Version)
		}
	}
	return nil
}
