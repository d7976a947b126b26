package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/agent/prepared"
	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/role"
)

// xaNode is this node as prepared.Foreign asks it.
type xaNode struct{ *Agent }

// ForeignXANoted and what follows implement prepared.Node.
func (n xaNode) ForeignXANoted() (bool, error) { return n.server.ForeignXANoted() }
func (n xaNode) NoteForeignXA() error          { return n.server.NoteForeignXA() }
func (n xaNode) Durable() uint64               { return n.durable().Index }
func (n xaNode) Applied(executed *gtid.Set) uint64 {
	return n.Lag.Executed(executed, time.Now()).Applied
}

// PreparedIn implements prepared.Node.
func (n xaNode) PreparedIn(from uint64, executed *gtid.Set, open map[binlog.XID]gtid.GTID) error {
	log := n.logReader()
	defer log.Close()
	return replay.PreparedIn(log, from, executed, open)
}

// ForeignXA and what follows implement prepared.Replica.
func (s localServer) ForeignXA(ctx context.Context) (bool, error) { return s.process.ForeignXA(ctx) }
func (s localServer) ForeignXACommit(ctx context.Context) (bool, error) {
	return s.process.ForeignXACommit(ctx)
}

// foreignXAError makes this node errant where a client committed what the applier had prepared.
func (a *Agent) foreignXAError(err error) error {
	if errors.Is(err, prepared.ErrCommitted) {
		return &primary.VerdictError{Verdict: role.Errant, Reason: fmt.Sprintf("%v; quorate node rebuild %s", err, a.self.Name)}
	}
	return err
}

// pollForeignXA ends the mysqld of a replica in which a client has ended an XA transaction that
// the applier had prepared. It does not wait for the look.
func (s localServer) pollForeignXA(stopped bool) {
	a := s.agent
	if !a.foreignXA.Begin() {
		return
	}
	a.work.Go(func() {
		err := a.foreignXA.Poll(a.ctx, s, stopped)
		switch {
		case errors.Is(err, prepared.ErrCommitted), errors.Is(err, prepared.ErrEnded):
			s.doubt(a.foreignXAError(err).Error())
		case err != nil && a.currentProcess() == s.process:
			a.logger.Warn("it is not known whether a client has ended XA transactions here", "error", err)
		}
	})
}
