package local

import (
	"context"
	"fmt"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/retention"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqld"
)

// Marked is a mysqld of which a durable mark is taken. It implements retention.Mysqld.
type Marked struct {
	Process *mysqld.Process
	of      *Mysqld
	uuid    string
}

// Marked returns the mysqld of which a durable mark may be taken; nil = none runs, or it was not judged yet.
func (m *Mysqld) Marked() retention.Mysqld {
	own, p := m.cfg.Board.Own(), m.Process()
	if !own.Role.Judged() || p == nil || own.Mysqld != status.MysqldRunning {
		return nil
	}
	return Marked{p, m, own.ServerUUID}
}

// ServerUUID implements retention.Mysqld.
func (m Marked) ServerUUID() string { return m.uuid }

// FlushExecuted implements retention.Mysqld.
func (m Marked) FlushExecuted(ctx context.Context) (*gtid.Set, bool, error) {
	f, err := m.Process.Admin().FlushExecuted(ctx)
	switch {
	case err != nil && ctx.Err() == nil && m.of.Process() != m.Process:
		return nil, false, retention.ErrEnded
	case err != nil:
		return nil, false, err
	}
	executed, err := gtid.ParseSet(f.Executed)
	if err != nil {
		return nil, false, fmt.Errorf("parse gtid_executed: %w", err)
	}
	return executed, f.XA, nil
}
