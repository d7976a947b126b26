package primary

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/raft/consensus"
)

// guardEvery is how many polls of mysqld pass between two of the costlier checks, and between two starts of
// replication that has stopped.
const guardEvery = 4

// Watch polls the local mysqld: for the status, and for conditions that put it in doubt.
type Watch struct {
	Slot  *Slot
	Board Board
	Lag   *consensus.LagTracker
	// Now is the wall clock.
	Now    func() time.Time
	Logger *slog.Logger

	applier Applier
	unacked unacked
}

// Board is the node's own status.
type Board interface {
	Own() status.Node
	Update(f func(*status.Node))
}

// Polled is a mysqld as a poll asks it.
type Polled interface {
	Incarnation() uint64
	GTIDExecuted(ctx context.Context) (*gtid.Set, error)
	PrimaryStatus(ctx context.Context) (PrimaryStatus, error)
	ReplicaStatus(ctx context.Context) (ReplicaStatus, error)
	ApplyProgress(ctx context.Context, executed string) (string, error)
	Drifts(ctx context.Context) ([]string, error)
	Start(ctx context.Context) error
}

// Probes are what else the node looks at in a poll.
type Probes interface {
	// Progressed takes a text that changes as long as mysqld makes progress, and what mysqld lacks.
	Progressed(progress string, l consensus.Lag, now time.Time)
	// Silent notes that mysqld has not answered in time.
	Silent(ctx context.Context, r status.Role)
	// Disk looks at mysqld's disk.
	Disk(ctx context.Context, r status.Role)
	// Full is what mysqld's error log said about a full disk; "" = nothing.
	Full() string
	// Applies notes the state of a replica. stopped says why it does not apply; "" = it does.
	Applies(s ReplicaStatus, stopped string)
	// Grants looks at the accounts of a primary, and returns which of their rights put it in doubt.
	Grants(ctx context.Context, executed string) (doubts []string)
	// Guarded looks at what is only reported, and never ends the primary.
	Guarded(ctx context.Context)
}

// PrimaryStatus is the state of a primary's mysqld.
type PrimaryStatus struct {
	// Executed is gtid_executed.
	Executed string
	SemiSync
	// Readers are the accounts that read its binlog, except for the tap's.
	Readers []string
}

// Run polls until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	c := w.Slot.cfg.Clock
	due := c.Now()
	for n := 1; ; n++ {
		for due = max(due+WatchInterval, c.Now()); c.Now() < due; {
			if c.Wait(ctx, due-c.Now(), nil) != nil {
				return nil
			}
		}
		if s, err := w.Slot.cfg.Local(); err == nil {
			w.poll(ctx, s, n%guardEvery == 0)
		}
	}
}

func (w *Watch) poll(ctx context.Context, s Local, guard bool) {
	own := w.Board.Own()
	if own.Mysqld != status.MysqldRunning {
		return
	}
	pollCtx, cancel := w.Slot.cfg.Clock.WithTimeout(ctx, 4*WatchInterval)
	defer cancel()
	found, err := w.ask(pollCtx, s, own.Role)
	if err == nil {
		err = w.applied(pollCtx, s, own.Role, found.executed)
	}
	if err != nil && errors.Is(context.Cause(pollCtx), context.DeadlineExceeded) {
		s.Silent(ctx, own.Role)
	}
	now := w.Board.Own() // the questions above may have taken two seconds
	if now.Mysqld != status.MysqldRunning {
		return // it has ended meanwhile: what is said of it now would stay
	}
	s.Disk(ctx, now.Role)
	switch {
	case now.Role != own.Role || now.Term != own.Term: // at the next poll
	case found.primary != nil:
		w.pollPrimary(pollCtx, s, *found.primary, guard)
	case found.replica != nil:
		w.pollReplica(pollCtx, s, *found.replica, guard)
	}
}

// mysqldStatus is what a poll was told.
type mysqldStatus struct {
	executed string
	primary  *PrimaryStatus // nil: it is no primary, or does not say
	replica  *ReplicaStatus // likewise
}

// ask asks once for all that the role needs. A mysqld that does not answer that within
// most of the poll's time is asked for gtid_executed alone, which waits for less.
func (w *Watch) ask(ctx context.Context, s Polled, role status.Role) (mysqldStatus, error) {
	most, cancel := w.Slot.cfg.Clock.WithTimeout(ctx, 3*WatchInterval)
	defer cancel()
	switch role {
	case status.RolePrimary:
		if p, err := s.PrimaryStatus(most); err == nil {
			return mysqldStatus{executed: p.Executed, primary: &p}, nil
		}
	case status.RoleReplica:
		if r, err := s.ReplicaStatus(most); err == nil {
			return mysqldStatus{executed: r.Executed, replica: &r}, nil
		}
	}
	set, err := s.GTIDExecuted(ctx)
	if err != nil {
		return mysqldStatus{}, err
	}
	return mysqldStatus{executed: set.String()}, nil
}

// applied notes what mysqld has, and looks whether it has more than was ever committed (I3). gtid_executed was
// read first: the committed set only grows, so a transaction that is missing there was not committed.
func (w *Watch) applied(ctx context.Context, s Local, role status.Role, executed string) error {
	set, err := gtid.ParseSet(executed)
	if err != nil {
		return fmt.Errorf("parse gtid_executed: %w", err)
	}
	if role.Judged() && !w.Slot.cfg.Raft().Committed().Contains(set) {
		w.doubt(s, []string{"mysqld holds transactions that are not committed"})
	}
	now := w.Now()
	progress := set.String()
	if role == status.RolePromoting { // it may be inside of a long transaction
		if progress, err = s.ApplyProgress(ctx, progress); err != nil {
			return err
		}
	}
	l := w.Lag.Executed(set, now)
	w.applier.Applied(role, l, now)
	w.Board.Update(func(n *status.Node) {
		n.GTIDExecuted = set.String()
		w.applier.Show(n, l)
	})
	s.Progressed(progress, l, now) // after the lag: its time counts as that of the lag that is shown
	return nil
}

// pollPrimary puts the primary in doubt if anyone but the tap could acknowledge its commits.
func (w *Watch) pollPrimary(ctx context.Context, s Local, p PrimaryStatus, guard bool) {
	w.Board.Update(func(n *status.Node) { n.WaitingSessions, n.ApplierStopped = int64(p.WaitSessions), "" })
	w.doubt(s, p.doubts())
	if guard {
		w.pollGuarded(ctx, s)
		w.doubt(s, s.Grants(ctx, p.Executed))
	}
}

// doubts says why anyone but the tap could acknowledge the commits of a primary; nil = nobody could.
func (p PrimaryStatus) doubts() (doubts []string) {
	if !p.On {
		doubts = append(doubts, "semi-sync was switched off")
	}
	if p.Clients > 1 {
		doubts = append(doubts, fmt.Sprintf("a foreign semi-sync replica is attached (%d in all)", p.Clients))
	}
	for _, account := range p.Readers {
		doubts = append(doubts, fmt.Sprintf("account %s reads the binlog directly", account))
	}
	return doubts
}

// pollReplica starts replication again that has stopped, and shows why it stopped. It puts mysqld in doubt if the
// applier waits for a session that waits for an ACK.
func (w *Watch) pollReplica(ctx context.Context, s Local, r ReplicaStatus, guard bool) {
	stopped := w.applier.Stopped(r, s.Full())
	if r.Unacknowledged != "" {
		stopped = unackedText(r)
	}
	w.Board.Update(func(n *status.Node) { n.WaitingSessions, n.ApplierStopped = 0, stopped })
	s.Applies(r, stopped)
	if why := w.unacked.look(s.Incarnation(), r); why != "" {
		w.doubt(s, []string{why})
		return
	}
	if !guard {
		return
	}
	if w.Board.Own().Role == status.RoleReplica && (!r.Receives || !r.Applies) {
		w.Logger.Warn("replication is not running: starting it again", "error", r.Error+r.ReadError)
		if err := s.Start(ctx); err != nil {
			w.Logger.Warn("cannot start replication", "error", err)
		}
	}
	w.pollGuarded(ctx, s)
}

func (w *Watch) pollGuarded(ctx context.Context, s Local) {
	if drifts, err := s.Drifts(ctx); err == nil {
		w.doubt(s, drifts)
		s.Guarded(ctx)
	}
}

func (w *Watch) doubt(s Polled, reasons []string) {
	if len(reasons) > 0 {
		w.Slot.cfg.Inbox.Doubt(s.Incarnation(), strings.Join(reasons, "; "))
	}
}
