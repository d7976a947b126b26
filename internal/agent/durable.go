package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/gtid"
	"github.com/quorate/quorate/internal/mysqld"
	"github.com/quorate/quorate/internal/replay"
)

const (
	// durableEvery is how often a new durable mark is taken while there is
	// something new. It costs one fsync of InnoDB's redo log.
	durableEvery = 10 * time.Second
	// durableTimeout bounds one try: a disk that takes longer has other troubles.
	durableTimeout = 30 * time.Second
)

// durable returns the durable mark of the mysqld that runs, or ran last.
func (a *Agent) durable() replay.Mark { return a.mark.Of(a.board.Own().ServerUUID) }

// runDurable takes a new durable mark at intervals, as long as mysqld applies
// something. It has a goroutine of its own: the flush waits for a disk.
func (a *Agent) runDurable(ctx context.Context) error {
	ticker := time.NewTicker(durableEvery)
	defer ticker.Stop()
	tried := uint64(0) // what mysqld had at the last try that had an answer
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		own, p := a.board.Own(), a.currentProcess()
		judged := own.Role == cluster.RolePrimary || own.Role == cluster.RoleReplica
		if !judged || p == nil || own.Mysqld != cluster.MysqldRunning {
			continue
		}
		durableCtx, cancel := context.WithTimeout(ctx, durableTimeout)
		if own.Applied != tried {
			answered, err := a.takeDurable(durableCtx, p, own.ServerUUID)
			if err != nil {
				a.logger.Warn("take a durable mark", "error", err)
			} else if answered {
				tried = own.Applied
			}
		}
		if err := a.watchXA(durableCtx, p); err != nil {
			a.logger.Warn("watch prepared XA transactions", "error", err)
		}
		a.lookForEvents(durableCtx, p)
		cancel()
	}
}

// lookForEvents notes the events of a primary, which nobody runs.
func (a *Agent) lookForEvents(ctx context.Context, p *mysqld.Process) {
	var n int64
	var names []string
	if a.board.Own().Role == cluster.RolePrimary {
		var err error
		if n, names, err = p.Admin().Events(ctx); err != nil {
			return // it is asked again, or is going
		}
	}
	a.board.Update(func(s *cluster.NodeStatus) { s.Events, s.EventNames = n, strings.Join(names, ", ") })
}

// takeDurable asks mysqld what it has, makes that durable, and notes how far
// into the log it goes. answered=false: it is worth another try soon.
func (a *Agent) takeDurable(ctx context.Context, p *mysqld.Process, serverUUID string) (answered bool, err error) {
	f, err := p.Admin().FlushExecuted(ctx)
	if err != nil {
		if ctx.Err() == nil && a.currentProcess() != p {
			return false, nil // it ended meanwhile
		}
		return false, err
	}
	if f.XA {
		a.xa.used.Store(true)
	}
	held, err := a.held(f.Executed)
	if err != nil {
		return false, err
	}
	xa := a.xa.follow(serverUUID, a.mark.Of(serverUUID).Index)
	log := a.logReader()
	defer log.Close()
	if xa != nil {
		if err := a.xa.read(ctx, log, min(held.Index, a.node.Committed().Mark().Index)); err != nil {
			return false, err
		}
	}
	m, ok, err := replay.NewMark(log, held, xa)
	if err != nil {
		return false, fmt.Errorf("find mysqld's durable mark in the log: %w", err)
	}
	if !ok {
		return true, nil
	}
	return true, a.mark.Advance(serverUUID, m)
}

// held says how far gtid_executed goes in the log.
func (a *Agent) held(executed string) (replay.Held, error) {
	set, err := gtid.ParseSet(executed)
	if err != nil {
		return replay.Held{}, fmt.Errorf("parse gtid_executed: %w", err)
	}
	return replay.Held{Index: a.lag.Executed(set, time.Now()).Applied, Executed: set}, nil
}
