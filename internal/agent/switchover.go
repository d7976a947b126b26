package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorate/quorate/internal/agent/prepared"
	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/agent/switchover"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/gtid"
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

// Applied implements primary.TargetServer.
func (s localServer) Applied(ctx context.Context, set *gtid.Set) error {
	return s.WaitApplied(ctx, set.String())
}

// NoForeignXA implements primary.TargetServer.
func (s localServer) NoForeignXA(ctx context.Context) error {
	err := s.agent.foreignXA.Undone(ctx, s)
	if errors.Is(err, prepared.ErrEnded) {
		return fmt.Errorf("%w: its mysqld must start again first: quorate restart-mysqld %s", err, s.agent.self.Name)
	}
	return err
}

// EndedXA implements primary.PlanServer.
func (s localServer) EndedXA(sessions int) {
	s.agent.logger.Warn("ended sessions that were in an XA transaction when writes were closed", "sessions", sessions)
}

// NotClosed says which sessions kept writes from being closed in time. They are closed
// to the others until it has looked.
func (s localServer) NotClosed(err error) error {
	if !errors.Is(err, mysqld.ErrWritesPending) {
		return err
	}
	ctx, cancel := context.WithTimeout(s.agent.ctx, primary.OpenTime/2)
	defer cancel()
	writers, look := s.SlowWriters(ctx, 0)
	if look != nil || len(writers) == 0 { // it has just ended, or mysqld is slow
		return err
	}
	return errors.New(switchover.HeldBy(writers))
}

// AskTarget implements primary.Host.
func (h host) AskTarget(ctx context.Context, to cluster.NodeID, o *primary.Order, index, term uint64) error {
	if err := h.switchover.AskTarget(ctx, to, o.By, switchover.Target{Index: index, Term: term}); err != nil {
		return fmt.Errorf("wait for node %s within %v: %w", h.board.Name(to), o.Limit, err)
	}
	return nil
}
