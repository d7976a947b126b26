package agent

import (
	"context"

	"github.com/quorate/quorate/internal/agent/following"
	"github.com/quorate/quorate/internal/agent/operate"
	"github.com/quorate/quorate/internal/agent/switchover"
	"github.com/quorate/quorate/internal/agent/variables"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/control"
	"github.com/quorate/quorate/internal/raft/transport"
	"github.com/quorate/quorate/internal/role"
)

// operated is this node as package operate asks it.
type operated struct{ *Agent }

// Raft implements operate.Node.
func (n operated) Raft() operate.Raft {
	if !n.Agent.TakesPart() {
		return nil
	}
	return n.Agent.Raft
}

// Peers implements operate.Node.
func (n operated) Peers() *transport.Transport { return n.peers }

// Log implements operate.Node.
func (n operated) Log() operate.Log { return n.logReader() }

// Input implements operate.Node.
func (n operated) Input(in role.Input) { n.input(in) }

// Sight implements operate.Node.
func (n operated) Sight() status.Sight {
	s := n.sight(n.ownStatus())
	s.Primary = n.primaryName()
	return s
}

// SessionGone implements operate.Node. A session that waits for an ACK has not ended,
// even if it was killed or its client is gone.
func (n operated) SessionGone(ctx context.Context, term uint64, thread uint32) bool {
	process := n.currentProcess()
	_, incarnation, ok := n.Slot.Tap(term)
	if !ok || process == nil || process.Incarnation() != incarnation {
		return false
	}
	there, err := process.Admin().HasSession(ctx, uint64(thread))
	return err == nil && !there
}

// buildRequests makes the server of operators' requests, and the services that carry them out.
func (a *Agent) buildRequests() {
	s := operate.New(operate.Config{
		Cluster: a.cfg.Cluster, Self: a.self, Version: a.version, Node: operated{a}, Board: a.board, Records: a.records, Dir: a.data.Dir, Logger: a.logger, Left: a.departing.Left(),
	})
	s.Handle(a.actions())
	s.Handle(a.memberRequests())
	a.requests = s
	a.variables = variables.NewService(a.self, a.cfg.MySQL.Variables, variablesNode{a}, s)
	s.Handle(a.variables.Handlers())
	a.switchover = switchover.New(switchover.Config{
		Self: a.self, Node: moved{a}, Board: a.board, Requests: s, PromotionTimeout: a.cfg.MySQL.PromotionTimeout,
	})
	s.Handle(a.switchover.Handlers())
	a.following = following.NewService(followingNode{a}, s, a.logger)
	s.Handle(a.following.Handlers())
}

// Control implements api.Provider: what comes from a person on this machine.
func (p provider) Control(ctx context.Context, r control.Request) control.Answer {
	r.From = ""
	return p.requests.Serve(ctx, r)
}
