package local

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorate/quorate/internal/agent/prepared"
	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/role"
)

// ForeignXA and what follows implement prepared.Replica.
func (s running) ForeignXA(ctx context.Context) (bool, error) { return s.process.ForeignXA(ctx) }
func (s running) ForeignXACommit(ctx context.Context) (bool, error) {
	return s.process.ForeignXACommit(ctx)
}

// foreignXAError makes this node errant if a client has committed what the applier had prepared.
func (m *Mysqld) foreignXAError(err error) error {
	if errors.Is(err, prepared.ErrCommitted) {
		return &primary.VerdictError{Verdict: role.Errant, Reason: fmt.Sprintf("%v; quorate node rebuild %s", err, m.cfg.Self)}
	}
	return err
}

// pollForeignXA ends the mysqld of a replica in which a client has ended an XA transaction that
// the applier had prepared. It does not wait for the look.
func (s running) pollForeignXA(stopped bool) {
	m := s.m
	if !m.foreignXA.Begin() {
		return
	}
	m.cfg.Tasks.Go(func() {
		err := m.foreignXA.Poll(m.cfg.Node.Base(), s, stopped)
		switch {
		case errors.Is(err, prepared.ErrCommitted), errors.Is(err, prepared.ErrEnded):
			s.doubt(m.foreignXAError(err).Error())
		case err != nil && m.Process() == s.process:
			m.cfg.Logger.Warn("it is not known whether a client has ended XA transactions here", "error", err)
		}
	})
}
