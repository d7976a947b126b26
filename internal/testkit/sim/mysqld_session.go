package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/consensus"
)

// localServer is the running mysqld, as a task of package primary calls it.
type localServer struct {
	a *agent
	p *mysqld
}

// local returns the running mysqld.
func (a *agent) local() (primary.Local, error) {
	if a.process == nil {
		return nil, primary.ErrNoMysqld
	}
	return localServer{a, a.process}, nil
}

// sql makes mysqld carry out a statement, which takes its time.
func (s localServer) sql(ctx context.Context, statement func(p *mysqld) error) error {
	_, err := ask(ctx, s, func(p *mysqld) (struct{}, error) { return struct{}{}, statement(p) })
	return err
}

// ask is sql for a statement that has an answer.
func ask[T any](ctx context.Context, s localServer, statement func(p *mysqld) (T, error)) (none T, err error) {
	if err := s.a.life.Wait(ctx, sqlMin+around(s.a.n.rng, sqlSpread), nil); err != nil {
		return none, err
	}
	if s.p.dead {
		return none, errLost
	}
	return statement(s.p)
}

// SemiSyncStatus implements primary.Server.
func (s localServer) SemiSyncStatus(ctx context.Context) (primary.SemiSync, error) {
	return ask(ctx, s, func(p *mysqld) (primary.SemiSync, error) { return p.semiSync(), nil })
}

func (m *mysqld) semiSync() primary.SemiSync {
	on, clients := m.SemiSync()
	return primary.SemiSync{On: on, Clients: clients, WaitSessions: m.Waiting()}
}

// EndLockWaiters implements primary.Server.
func (s localServer) EndLockWaiters(ctx context.Context) (int, error) {
	return ask(ctx, s, func(p *mysqld) (int, error) {
		p.EndLockWaiters()
		p.results()
		return 0, nil
	})
}

// SetSuperReadOnly implements primary.Writable. If ctx ends, the statement stays in mysqld: new writers still
// wait for it.
func (s localServer) SetSuperReadOnly(ctx context.Context, on bool, lockWait time.Duration) error {
	for until := s.a.n.now() + lockWait; ; {
		done, err := ask(ctx, s, func(p *mysqld) (bool, error) {
			if !on {
				s.a.n.check.opens(s.a)
				p.follows = false
			}
			if p.SetSuperReadOnly(on) {
				return true, nil
			}
			if s.a.n.now() >= until {
				p.SetSuperReadOnly(false)
				return false, errors.New("lock wait timeout")
			}
			p.flushSoon()
			return false, nil
		})
		if err != nil {
			return err
		}
		if done {
			s.a.n.log("writes", "super_read_only is %t", on)
			return s.a.life.Wait(ctx, sqlMin, nil)
		}
	}
}

// EndXA and the methods below implement primary.PlanServer. Here an XA transaction is prepared at once.
func (s localServer) EndXA(context.Context) (int, error) { return 0, nil }
func (s localServer) EndedXA(int)                        {}
func (s localServer) NotClosed(err error) error          { return err }
func (s localServer) PendingXA(ctx context.Context) (int, error) {
	return ask(ctx, s, func(p *mysqld) (int, error) { return len(p.Prepared()), nil })
}

// BinlogEnd implements primary.Server.
func (s localServer) BinlogEnd(ctx context.Context) (file string, offset uint64, err error) {
	err = s.sql(ctx, func(p *mysqld) error { file, offset = p.BinlogEnd(); return nil })
	return file, offset, err
}

// JudgeForeignXA and the methods below implement primary.JudgedServer. Here no client comes past the router,
// has grants, or sets variables.
func (s localServer) JudgeForeignXA(context.Context, bool) error { return nil }
func (s localServer) NoForeignXA(context.Context) error          { return nil }
func (s localServer) JudgeGrants(context.Context) error          { return nil }
func (s localServer) XAEnded(context.Context) (bool, error)      { return false, nil }
func (s localServer) Drifts(context.Context) ([]string, error)   { return nil, nil }
func (s localServer) ReplicaBinlog() bool                        { return s.p.replicaBinlog }
func (s localServer) GTIDExecuted(ctx context.Context) (*gtid.Set, error) {
	return ask(ctx, s, func(p *mysqld) (*gtid.Set, error) { return p.GTIDExecuted(), nil })
}
func (s localServer) AddPurged(ctx context.Context, set *gtid.Set) error {
	return s.sql(ctx, func(p *mysqld) error { return p.AddPurged(set) })
}
func (s localServer) EnableSemiSync(ctx context.Context) error {
	return s.sql(ctx, func(p *mysqld) error { p.EnableSemiSync(); return nil })
}
func (s localServer) RemoveOldBinlogs() error {
	s.a.n.mysqlDisk.RemoveBinlogs(s.p.binlogDir())
	return nil
}

// AppliedWithin implements primary.Replica.
func (s localServer) AppliedWithin(ctx context.Context, set *gtid.Set, d time.Duration) (bool, error) {
	for until := s.a.n.now() + d; ; {
		executed, err := s.GTIDExecuted(ctx)
		if err != nil || executed.ContainsSet(set) || s.a.n.now() >= until {
			return err == nil && executed.ContainsSet(set), err
		}
		if err := s.a.life.Wait(ctx, 2*time.Millisecond, nil); err != nil {
			return false, err
		}
	}
}

// Applied implements primary.TargetServer.
func (s localServer) Applied(ctx context.Context, set *gtid.Set) error {
	for {
		if done, err := s.AppliedWithin(ctx, set, time.Second); err != nil || done {
			return err
		}
	}
}

// ReplicaStatus implements primary.Replica. The answer takes its time to come.
func (s localServer) ReplicaStatus(ctx context.Context) (primary.ReplicaStatus, error) {
	return ask(ctx, s, func(p *mysqld) (status primary.ReplicaStatus, _ error) {
		status.Receives, status.Applies, _ = p.ReplicaRunning()
		status.Executed = p.GTIDExecuted().String()
		if status.Error = p.ApplierError(); status.Error != "" {
			status.Errno = poisonErrno
		}
		if p.Waiting() > 0 {
			status.Unacknowledged = "a session waits for an ACK"
		}
		s.a.life.sleep(s.a.n.hiccup())
		return status, nil
	})
}

// PrimaryStatus implements primary.Polled. Like ReplicaStatus, it takes its time.
func (s localServer) PrimaryStatus(ctx context.Context) (primary.PrimaryStatus, error) {
	return ask(ctx, s, func(p *mysqld) (primary.PrimaryStatus, error) {
		status := primary.PrimaryStatus{Executed: p.GTIDExecuted().String(), SemiSync: p.semiSync()}
		s.a.life.sleep(s.a.n.hiccup())
		return status, nil
	})
}

// ApplyProgress implements primary.Replica.
func (s localServer) ApplyProgress(ctx context.Context, executed string) (string, error) {
	return ask(ctx, s, func(p *mysqld) (string, error) {
		return fmt.Sprintf("%s, work %d, relayed %d", executed, p.applyWork(), p.Relayed()), nil
	})
}

// StartAgain and EndBlockers implement primary.Replica.
func (s localServer) StartAgain(ctx context.Context) { _ = s.Start(ctx) }
func (s localServer) EndBlockers(ctx context.Context) {
	_ = s.sql(ctx, func(p *mysqld) error { p.unblock(); return nil })
}

// StopReplica implements primary.Replica, Start primary.Replicating.
func (s localServer) StopReplica(ctx context.Context) error {
	return s.sql(ctx, func(p *mysqld) error { s.a.stopReplica(p); return nil })
}
func (s localServer) Start(ctx context.Context) error {
	return s.sql(ctx, func(p *mysqld) error { s.a.startReplica(p); return nil })
}

// BeginReplica implements primary.Replicating.
func (s localServer) BeginReplica(ctx context.Context) error {
	n, err := s.PendingXA(ctx)
	if err == nil && n > 0 { // its applier could not tell them from its own
		err = errors.New(primary.XAPrepared(n))
	}
	return err
}

// ShutOut implements primary.Replicating.
func (s localServer) ShutOut(ctx context.Context) (letIn func(context.Context) error, err error) {
	letIn = func(ctx context.Context) error {
		return s.sql(ctx, func(p *mysqld) error { p.LetIn(); return nil })
	}
	return letIn, s.sql(ctx, func(p *mysqld) error {
		if p.Waiting() > 0 || !p.SuperReadOnly() {
			return errors.New("writes are pending")
		}
		if p.follows {
			s.a.w.fail("tidy", "n%d: a former primary that has replicated since is made a replica once more", s.a.n.id)
		}
		p.ShutOut()
		p.results()
		return nil
	})
}

// RestartAckReceiver implements primary.Replicating.
func (s localServer) RestartAckReceiver(ctx context.Context) error {
	err := s.sql(ctx, func(p *mysqld) error {
		p.DisableSemiSync()
		p.afterCommits()
		return nil
	})
	if err != nil {
		return err
	}
	return s.EnableSemiSync(ctx)
}

// InCommit and the methods below implement primary.Replicating.
func (s localServer) InCommit(ctx context.Context) (bool, error) {
	return ask(ctx, s, func(p *mysqld) (bool, error) { return p.Waiting() > 0, nil })
}
func (s localServer) NextBinlog(ctx context.Context) error {
	return s.sql(ctx, func(p *mysqld) error {
		p.Rotate()
		p.afterCommits()
		return nil
	})
}
func (s localServer) Configure(ctx context.Context) error {
	return s.sql(ctx, func(p *mysqld) error {
		if io, applier, _ := p.ReplicaRunning(); io && applier && s.a.n.applierBlocked == 0 { // a replication that hangs is set up again
			s.a.w.fail("restart", "n%d: replication is set up again while it goes on", s.a.n.id)
		}
		s.a.stopReplica(p)
		p.ResetReplica()
		return nil
	})
}

// FlushExecuted implements retention.Mysqld, with ServerUUID. In the worlds
// whose appliers are in trouble, some flushes take longer than the time between two polls.
func (s localServer) FlushExecuted(ctx context.Context) (executed *gtid.Set, xa bool, err error) {
	flush := func(p *mysqld) { p.FlushEngineLogs() }
	for i, statement := range []func(p *mysqld){
		func(p *mysqld) { executed = p.GTIDExecuted() }, func(p *mysqld) { xa = p.XAUsed() }, flush, func(*mysqld) {},
	} {
		if i == 2 && s.a.n.w.options.Appliers > 0 && chance(s.a.n.rng, 20) {
			if err := s.a.life.Wait(ctx, around(s.a.n.rng, time.Second), nil); err != nil {
				return nil, false, err
			}
		}
		if err := s.sql(ctx, func(p *mysqld) error { statement(p); return nil }); err != nil {
			return nil, false, err
		}
	}
	return executed, xa, nil
}
func (s localServer) ServerUUID() string { return s.a.n.uuid.String() }

// Progressed and the methods below implement primary.Probes. Here a mysqld is silent only with its whole
// machine, and has no disk, accounts or TLS.
func (s localServer) Progressed(_ string, _ consensus.Lag, now time.Time) { s.a.reads.polled = &now }
func (s localServer) Silent(context.Context, status.Role)                 {}
func (s localServer) Disk(context.Context, status.Role)                   {}
func (s localServer) Full() string                                        { return "" }
func (s localServer) Applies(primary.ReplicaStatus, string)               {}
func (s localServer) Grants(context.Context, string) []string             { return nil }
func (s localServer) Guarded(context.Context)                             {}
