package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/mysql/gtid"
)

// localServer is the mysqld that runs, as a task of package primary asks it.
type localServer struct {
	a *agent
	p *mysqld
}

// local returns the mysqld that runs.
func (a *agent) local() (primary.Local, error) {
	if a.process == nil {
		return nil, primary.ErrNoMysqld
	}
	return localServer{a, a.process}, nil
}

// sql is the time that a statement takes.
func (s localServer) sql(ctx context.Context) (*mysqld, error) {
	if err := s.a.life.Wait(ctx, sqlMin+around(s.a.n.rng, sqlSpread), nil); err != nil {
		return nil, err
	}
	if s.p.dead {
		return nil, errLost
	}
	return s.p, nil
}

// SemiSyncStatus implements primary.Server.
func (s localServer) SemiSyncStatus(ctx context.Context) (status primary.SemiSync, err error) {
	p, err := s.sql(ctx)
	if err == nil {
		status.On, status.Clients = p.SemiSync()
		status.WaitSessions = p.Waiting()
	}
	return status, err
}

// EndLockWaiters implements primary.Server.
func (s localServer) EndLockWaiters(ctx context.Context) (int, error) {
	p, err := s.sql(ctx)
	if err == nil {
		p.EndLockWaiters()
		p.results()
	}
	return 0, err
}

// SetSuperReadOnly implements primary.Writable. Who ends with ctx leaves the statement in
// mysqld: new writers go on to wait for it.
func (s localServer) SetSuperReadOnly(ctx context.Context, on bool, lockWait time.Duration) error {
	for until := s.a.n.now() + lockWait; ; {
		p, err := s.sql(ctx)
		if err != nil {
			return err
		}
		if !on {
			s.a.n.check.opens(s.a)
		}
		if p.SetSuperReadOnly(on) {
			s.a.n.log("writes", "super_read_only is %t", on)
			return s.a.life.Wait(ctx, sqlMin, nil)
		}
		if s.a.n.now() >= until {
			p.SetSuperReadOnly(false)
			return errors.New("lock wait timeout")
		}
		p.flushSoon()
	}
}

// EndXA and what follows implement primary.PlanServer. An XA transaction here is prepared at once.
func (s localServer) EndXA(context.Context) (int, error) { return 0, nil }
func (s localServer) EndedXA(int)                        {}
func (s localServer) NotClosed(err error) error          { return err }

// PendingXA implements primary.Server.
func (s localServer) PendingXA(ctx context.Context) (int, error) {
	p, err := s.sql(ctx)
	if err != nil {
		return 0, err
	}
	return len(p.Prepared()), nil
}

// BinlogEnd implements primary.Server.
func (s localServer) BinlogEnd(ctx context.Context) (file string, offset uint64, err error) {
	p, err := s.sql(ctx)
	if err == nil {
		file, offset = p.BinlogEnd()
	}
	return file, offset, err
}

// JudgeForeignXA and what follows implement primary.JudgedServer. No client comes past the
// router, or has grants.
func (s localServer) JudgeForeignXA(context.Context, bool) error { return nil }
func (s localServer) NoForeignXA(context.Context) error          { return nil }
func (s localServer) JudgeGrants(context.Context) error          { return nil }
func (s localServer) XAEnded(context.Context) (bool, error)      { return false, nil }
func (s localServer) ReplicaBinlog() bool                        { return s.p.replicaBinlog }

func (s localServer) GTIDExecuted(ctx context.Context) (*gtid.Set, error) {
	p, err := s.sql(ctx)
	if err != nil {
		return nil, err
	}
	return p.GTIDExecuted(), nil
}

func (s localServer) AddPurged(ctx context.Context, set *gtid.Set) error {
	p, err := s.sql(ctx)
	if err != nil {
		return err
	}
	return p.AddPurged(set)
}

func (s localServer) Drifts(ctx context.Context) ([]string, error) {
	_, err := s.sql(ctx)
	return nil, err
}

func (s localServer) EnableSemiSync(ctx context.Context) error {
	p, err := s.sql(ctx)
	if err == nil {
		p.EnableSemiSync()
	}
	return err
}

func (s localServer) RemoveOldBinlogs() error {
	s.a.n.mysqlDisk.RemoveBinlogs(s.p.binlogDir())
	return nil
}

// AppliedWithin implements primary.Replica.
func (s localServer) AppliedWithin(ctx context.Context, set *gtid.Set, d time.Duration) (bool, error) {
	for until := s.a.n.now() + d; ; {
		p, err := s.sql(ctx)
		if err != nil {
			return false, err
		}
		if p.GTIDExecuted().ContainsSet(set) {
			return true, nil
		}
		if s.a.n.now() >= until {
			return false, nil
		}
		if err := s.a.life.Wait(ctx, 2*time.Millisecond, nil); err != nil {
			return false, err
		}
	}
}

// ReplicaStatus implements primary.Replica.
func (s localServer) ReplicaStatus(ctx context.Context) (status primary.ReplicaStatus, err error) {
	p, err := s.sql(ctx)
	if err == nil {
		status.Receives, status.Applies, _ = p.ReplicaRunning()
		status.Executed = p.GTIDExecuted().String()
		if status.Error = p.ApplierError(); status.Error != "" {
			status.Errno = poisonErrno
		}
		s.a.life.sleep(s.a.n.hiccup())
	}
	return status, err
}

// ApplyProgress implements primary.Replica.
func (s localServer) ApplyProgress(ctx context.Context, executed string) (string, error) {
	p, err := s.sql(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s, work %d, relayed %d", executed, p.applyWork(), p.Relayed()), nil
}

// StartAgain implements primary.Replica.
func (s localServer) StartAgain(ctx context.Context) {
	_ = s.Start(ctx)
}

// EndBlockers implements primary.Replica.
func (s localServer) EndBlockers(ctx context.Context) {
	p, err := s.sql(ctx)
	if err == nil && s.a.n.applierBlocked > 0 {
		s.a.n.log("unblock", "ends the sessions that block the applier")
		s.a.n.applierBlocked = 0
		p.applySoon()
	}
}

// StopReplica implements primary.Replica.
func (s localServer) StopReplica(ctx context.Context) error {
	p, err := s.sql(ctx)
	if err == nil {
		s.a.stopReplica(p)
	}
	return err
}

// Applied implements primary.TargetServer.
func (s localServer) Applied(ctx context.Context, set *gtid.Set) error {
	for {
		if done, err := s.AppliedWithin(ctx, set, time.Second); err != nil || done {
			return err
		}
	}
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
	p, err := s.sql(ctx)
	if err != nil {
		return nil, err
	}
	if p.Waiting() > 0 || !p.SuperReadOnly() {
		return nil, errors.New("writes are pending")
	}
	if _, applier, _ := p.ReplicaRunning(); applier {
		s.a.w.fail("tidy", "n%d: a former primary is made a replica once more, while it applies", s.a.n.id)
	}
	p.ShutOut()
	p.results()
	return func(ctx context.Context) error {
		p, err := s.sql(ctx)
		if err == nil {
			p.LetIn()
		}
		return err
	}, nil
}

// RestartAckReceiver implements primary.Replicating.
func (s localServer) RestartAckReceiver(ctx context.Context) error {
	p, err := s.sql(ctx)
	if err != nil {
		return err
	}
	p.DisableSemiSync()
	p.afterCommits()
	if p, err = s.sql(ctx); err == nil {
		p.EnableSemiSync()
	}
	return err
}

// InCommit implements primary.Replicating.
func (s localServer) InCommit(ctx context.Context) (bool, error) {
	p, err := s.sql(ctx)
	return err == nil && p.Waiting() > 0, err
}

// NextBinlog implements primary.Replicating.
func (s localServer) NextBinlog(ctx context.Context) error {
	p, err := s.sql(ctx)
	if err == nil {
		p.Rotate()
		p.afterCommits()
	}
	return err
}

// Configure implements primary.Replicating.
func (s localServer) Configure(ctx context.Context) error {
	p, err := s.sql(ctx)
	if err != nil {
		return err
	}
	if io, applier, _ := p.ReplicaRunning(); io && applier && s.a.n.applierBlocked == 0 { // what hangs is set up anew
		s.a.w.fail("restart", "n%d: replication is set up anew while it goes on", s.a.n.id)
	}
	s.a.stopReplica(p)
	p.ResetReplica()
	return nil
}

// Start implements primary.Replicating.
func (s localServer) Start(ctx context.Context) error {
	p, err := s.sql(ctx)
	if err == nil {
		s.a.startReplica(p)
	}
	return err
}
