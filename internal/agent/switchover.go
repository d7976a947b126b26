package agent

import (
	"context"
	"fmt"

	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/agent/switchover"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/role"
)

// moved is this node as package switchover asks it.
type moved struct{ *Agent }

// Base and what follows implement switchover.Node.
func (n moved) Base() context.Context    { return n.ctx }
func (n moved) Raft() switchover.Raft    { return n.Agent.Raft }
func (n moved) Own() status.Node         { return n.ownStatus() }
func (n moved) Sight() status.Sight      { return n.sight(n.ownStatus()) }
func (n moved) Process() *mysqld.Process { return n.currentProcess() }
func (n moved) Orders() *primary.Orders  { return &n.Agent.Orders }
func (n moved) Input(in role.Input)      { n.input(in) }
func (n moved) Follow(ctx context.Context, index, term uint64) error {
	return n.Duties.Follow(ctx, index, term)
}

// AskTarget implements primary.Host.
func (h host) AskTarget(ctx context.Context, to cluster.NodeID, o *primary.Order, index, term uint64) error {
	if _, err := h.switchover.AskTarget(ctx, to, o.By, switchover.Target{Index: index, Term: term}); err != nil {
		return fmt.Errorf("wait for node %s within %v: %w", h.board.Name(to), o.Limit, err)
	}
	return nil
}
