package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/quorate/quorate/internal/agent/prepared"
	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/agent/switchover"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/mysql/mysqlwire"
)

// running is a mysqld that runs, as the operations of package primary ask it: a primary.Local.
type running struct {
	*mysqld.Admin
	process *mysqld.Process
	m       *Mysqld
}

// SemiSyncStatus implements primary.Server.
func (s running) SemiSyncStatus(ctx context.Context) (primary.SemiSync, error) {
	status, err := s.Admin.SemiSyncStatus(ctx)
	return primary.SemiSync(status), err
}

// EndLockWaiters implements primary.Server.
func (s running) EndLockWaiters(ctx context.Context) (int, error) {
	ended, err := s.Admin.EndLockWaiters(ctx)
	if ended > 0 {
		s.m.cfg.Logger.Warn("ended sessions that waited for a lock when this node lost the primary's role", "sessions", ended)
	}
	return ended, err
}

// GTIDExecuted implements primary.JudgedServer.
func (s running) GTIDExecuted(ctx context.Context) (*gtid.Set, error) {
	text, err := s.Admin.GTIDExecuted(ctx)
	if err != nil {
		return nil, fmt.Errorf("read gtid_executed: %w", err)
	}
	return gtid.ParseSet(text)
}

// ReplicaBinlog and what follows implement primary.JudgedServer.
func (s running) ReplicaBinlog() bool                       { return s.process.Options().ReplicaBinlog }
func (s running) EnableSemiSync(ctx context.Context) error  { return s.process.EnableSemiSync(ctx) }
func (s running) RemoveOldBinlogs() error                   { return s.process.RemoveOldBinlogs() }
func (s running) XAEnded(ctx context.Context) (bool, error) { return s.ForeignXA(ctx) }

// AddPurged implements primary.JudgedServer.
func (s running) AddPurged(ctx context.Context, set *gtid.Set) error {
	return s.Admin.AddPurged(ctx, set.String())
}

// Drifts implements primary.JudgedServer.
func (s running) Drifts(ctx context.Context) ([]string, error) {
	drifts, err := s.process.CheckGuarded(ctx)
	texts := make([]string, len(drifts))
	for i, d := range drifts {
		texts[i] = d.String()
	}
	return texts, err
}

// JudgeForeignXA implements primary.JudgedServer.
func (s running) JudgeForeignXA(ctx context.Context, promote bool) error {
	return s.m.foreignXAError(s.m.foreignXA.Judge(ctx, s, promote))
}

// Incarnation implements primary.TapServer.
func (s running) Incarnation() uint64 { return s.process.Incarnation() }

// ConnectTap implements primary.TapServer.
func (s running) ConnectTap(ctx context.Context, _ primary.Epoch, cfg mysqlwire.TapConfig) (*mysqlwire.Tap, primary.TapObserver, error) {
	s.m.cfg.Tap(&cfg)
	tap, err := mysqlwire.ConnectTap(ctx, cfg)
	return tap, s.m.cfg.Observe(), err
}

// BeginReplica implements primary.Replicating.
func (s running) BeginReplica(ctx context.Context) error { return s.process.BeginReplica(ctx) }

// Configure implements primary.Replicating.
func (s running) Configure(ctx context.Context) error {
	host, portText, err := net.SplitHostPort(s.m.cfg.Feed().Addr().String())
	if err != nil {
		return fmt.Errorf("read the feed's address: %w", err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return fmt.Errorf("read the feed's port: %w", err)
	}
	return s.ConfigureReplication(ctx, host, port)
}

// Start implements primary.Replicating.
func (s running) Start(ctx context.Context) error {
	return s.StartReplica(ctx, s.m.cfg.FeedUser, s.m.cfg.FeedPassword)
}

// AppliedWithin implements primary.Replica.
func (s running) AppliedWithin(ctx context.Context, set *gtid.Set, d time.Duration) (bool, error) {
	return s.Admin.AppliedWithin(ctx, set.String(), d)
}

// ReplicaStatus implements primary.Replica.
func (s running) ReplicaStatus(ctx context.Context) (primary.ReplicaStatus, error) {
	r, err := s.Admin.ReplicaStatus(ctx)
	status := replicaStatus(r)
	if err == nil && r.WaitSessions > 0 {
		status.Unacknowledged = ackWaiter(s.AckWaiter(ctx))
	}
	return status, err
}

// statementMax is how many characters of a statement a text for people has.
const statementMax = 80

// ackWaiter describes a session that waits for an ACK. It need not be known which session that is.
func ackWaiter(account, statement string, err error) string {
	if err != nil || account == "" {
		return "a session waits for an ACK"
	}
	if statement == "" {
		return fmt.Sprintf("a statement of %s waits for an ACK", account)
	}
	if r := []rune(statement); len(r) > statementMax {
		statement = string(r[:statementMax]) + "…"
	}
	return fmt.Sprintf("a statement of %s, %q, waits for an ACK", account, statement)
}

func replicaStatus(r mysqld.ReplicaStatus) primary.ReplicaStatus {
	return primary.ReplicaStatus{
		Receives: r.IORunning || r.IOConnecting, Connects: r.IOConnecting && !r.IORunning, Applies: r.SQLRunning,
		Errno: r.SQLErrno, Error: r.SQLError, ReadError: r.IOError, Executed: r.Executed,
	}
}

// ApplyProgress implements primary.Replica. The text changes with each transaction, with progress inside of a
// transaction, and with each event that is received.
func (s running) ApplyProgress(ctx context.Context, executed string) (string, error) {
	work, err := s.ApplyWork(ctx)
	f := s.m.cfg.Feed().Stats()
	return fmt.Sprintf("%s, work %d, events %d", executed, work, f.Events-f.Heartbeats), err
}

// StartAgain implements primary.Replica.
func (s running) StartAgain(ctx context.Context) {
	if err := s.Start(ctx); err != nil {
		s.m.cfg.Logger.Warn("promotion: cannot start replication again", "error", err)
	}
}

// EndBlockers implements primary.Replica.
func (s running) EndBlockers(ctx context.Context) {
	if killed, err := s.KillBlockers(ctx); err == nil && killed > 0 {
		s.m.cfg.Logger.Warn("promotion: ended sessions that blocked the applier", "sessions", killed)
	}
}

// Applied implements primary.TargetServer.
func (s running) Applied(ctx context.Context, set *gtid.Set) error {
	return s.WaitApplied(ctx, set.String())
}

// NoForeignXA implements primary.TargetServer.
func (s running) NoForeignXA(ctx context.Context) error {
	err := s.m.foreignXA.Undone(ctx, s)
	if errors.Is(err, prepared.ErrEnded) {
		return fmt.Errorf("%w: its mysqld must start again first: quorate restart-mysqld %s", err, s.m.cfg.Self)
	}
	return err
}

// EndedXA implements primary.PlanServer.
func (s running) EndedXA(sessions int) {
	s.m.cfg.Logger.Warn("ended sessions that were in an XA transaction when writes were closed", "sessions", sessions)
}

// NotClosed says which sessions kept writes from being closed in time. Until it has looked,
// no other session can write.
func (s running) NotClosed(err error) error {
	if !errors.Is(err, mysqld.ErrWritesPending) {
		return err
	}
	ctx, cancel := context.WithTimeout(s.m.cfg.Node.Base(), primary.OpenTime/2)
	defer cancel()
	writers, look := s.SlowWriters(ctx, 0)
	if look != nil || len(writers) == 0 { // the session has just ended, or mysqld is slow
		return err
	}
	return errors.New(switchover.HeldBy(writers))
}

// SetSuperReadOnly implements primary.Writable: a primary is opened for the writers that the cluster state allows.
func (s running) SetSuperReadOnly(ctx context.Context, on bool, lockWait time.Duration) error {
	if on {
		return s.Admin.SetSuperReadOnly(ctx, true, lockWait)
	}
	return s.m.cfg.Node.OpenWrites(s.Admin, func(w mysqld.Writers) error { return s.OpenFor(ctx, w, lockWait) })
}
