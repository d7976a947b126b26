package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/retention"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/mysql/replay"
)

// durableEvery is how often a new durable mark is taken while there is something new. It
// costs one fsync of InnoDB's redo log.
const durableEvery = 10 * time.Second

// durable returns the durable mark of the mysqld that runs, or ran last.
func (a *Agent) durable() replay.Mark { return a.mark.Of(a.board.Own().ServerUUID) }

// markedMysqld is a mysqld as its durable mark is taken.
type markedMysqld struct {
	a       *Agent
	process *mysqld.Process
	uuid    string
}

func (a *Agent) markedMysqld() retention.Mysqld {
	own, p := a.board.Own(), a.currentProcess()
	if !own.Role.Judged() || p == nil || own.Mysqld != status.MysqldRunning {
		return nil
	}
	return markedMysqld{a, p, own.ServerUUID}
}

// ServerUUID implements retention.Mysqld.
func (m markedMysqld) ServerUUID() string { return m.uuid }

// FlushExecuted implements retention.Mysqld.
func (m markedMysqld) FlushExecuted(ctx context.Context) (*gtid.Set, bool, error) {
	f, err := m.process.Admin().FlushExecuted(ctx)
	switch {
	case err != nil && ctx.Err() == nil && m.a.currentProcess() != m.process:
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
