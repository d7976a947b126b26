package primary

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/role"
	"github.com/quorate/quorate/internal/sys/clock"
)

const (
	// applierCheckInterval is how often a catch-up looks at the applier, and
	// applierPatienceChecks after how many of these looks the sessions that
	// block it are ended.
	applierCheckInterval  = 250 * time.Millisecond
	applierPatienceChecks = 8
	// standstillMin is how long a catch-up makes no progress before its text says so.
	standstillMin = 2 * time.Second
)

// CatchUp waits until mysqld has everything that is committed, and stops its replication.
type CatchUp struct {
	Server Replica
	Log    Committed
	// MayOpen returns why this node must not become the primary, or nil.
	MayOpen func() error
	// Progressed is called when mysqld has made progress. Slow is called with a text for the
	// status if the catch-up takes long, and with "" at its end.
	Progressed func()
	Slow       func(text string)
	Clock      clock.Clock
}

// Replica is a mysqld that replicates from its agent.
type Replica interface {
	GTIDExecuted(ctx context.Context) (*gtid.Set, error)
	// AppliedWithin waits until gtid_executed contains set, for d at most. It tells whether
	// it does.
	AppliedWithin(ctx context.Context, set *gtid.Set, d time.Duration) (bool, error)
	ReplicaStatus(ctx context.Context) (ReplicaStatus, error)
	// ApplyProgress returns a text that changes as long as mysqld makes progress with what
	// it lacks.
	ApplyProgress(ctx context.Context, executed string) (string, error)
	// StartAgain starts the parts of replication that have stopped. EndBlockers ends the sessions
	// that the applier waits for. If either fails, it is tried again at the next look.
	StartAgain(ctx context.Context)
	EndBlockers(ctx context.Context)
	StopReplica(ctx context.Context) error
}

// ReplicaStatus is the state of replication.
type ReplicaStatus struct {
	// Receives: the I/O thread runs or connects; Connects: it only connects. Applies: the
	// applier runs.
	Receives, Connects, Applies bool
	// Errno and Error are the applier's last error, once it has stopped; 0 = none. ReadError
	// is the I/O thread's last error.
	Errno            int
	Error, ReadError string
	// Executed is gtid_executed.
	Executed string
	// Unacknowledged describes a session of a client that waits for an ACK, which nobody gives to
	// a replica; "" = there is none.
	Unacknowledged string
}

// Run returns how many transactions mysqld lacked at first.
func (c CatchUp) Run(ctx context.Context) (lacked int64, err error) {
	if err := c.Log.Barrier(ctx); err != nil {
		return 0, err
	}
	if err := c.MayOpen(); err != nil {
		return 0, err
	}
	if executed, err := c.Server.GTIDExecuted(ctx); err == nil { // the next step meets the error again
		lacked = max(0, int64(c.Log.GTIDs().Count())-int64(executed.Count()))
	}
	if err := c.waitApplied(ctx); err != nil {
		return lacked, fmt.Errorf("wait until everything committed is applied: %w", err)
	}
	if err := c.Server.StopReplica(ctx); err != nil {
		return lacked, fmt.Errorf("stop replication: %w", err)
	}
	s, err := c.Server.ReplicaStatus(ctx)
	if err != nil {
		return lacked, fmt.Errorf("look whether replication has stopped: %w", err)
	}
	if s.Receives || s.Applies {
		return lacked, errors.New("replication runs again after it was stopped")
	}
	return lacked, nil
}

// waitApplied waits until mysqld has everything that is committed now, and looks after the
// applier meanwhile.
func (c CatchUp) waitApplied(ctx context.Context) error {
	set := c.Log.GTIDs()
	defer c.Slow("")
	watch := catchUpWatch{began: c.Clock.Now(), moved: c.Clock.Now()}
	for looks := 1; ; looks++ {
		done, err := c.Server.AppliedWithin(ctx, set, applierCheckInterval)
		if err != nil || done {
			return err
		}
		if err := c.look(ctx, looks, &watch); err != nil {
			return err
		}
	}
}

// look tells the role machine of progress, also inside of a transaction. It starts replication again
// where that has stopped without an error, and gives up where the applier has stopped with an error or
// waits for a session that waits for an ACK.
// After a while it ends the sessions that the applier waits for: a long read that blocks a committed
// ALTER must not keep the cluster without a primary.
func (c CatchUp) look(ctx context.Context, looks int, watch *catchUpWatch) error {
	s, err := c.Server.ReplicaStatus(ctx)
	if err != nil {
		return nil // mysqld is ending: the next wait says so
	}
	progress, err := c.Server.ApplyProgress(ctx, s.Executed)
	if err == nil && watch.observe(progress, c.Clock.Now()) {
		c.Progressed()
	}
	if !s.Applies && s.Errno != 0 {
		return &VerdictError{role.ApplierStopped, fmt.Sprintf("the applier stopped with error %d: %s", s.Errno, s.Error)}
	}
	if why := watch.unacked.look(0, s); why != "" {
		return &VerdictError{role.Unfit, why}
	}
	if !s.Applies || !s.Receives {
		c.Server.StartAgain(ctx)
	}
	if looks >= applierPatienceChecks {
		c.Slow(watch.text(c.Clock.Now()))
		c.Server.EndBlockers(ctx)
	}
	return nil
}

// catchUpWatch knows whether a catch-up makes progress. Its times are those of a clock.Clock.
type catchUpWatch struct {
	began, moved time.Duration
	progress     string
	unacked      unacked
}

// observe takes what ApplyProgress says and tells whether there was progress since the look
// before.
func (w *catchUpWatch) observe(progress string, now time.Duration) bool {
	if w.progress == progress {
		return false
	}
	first := w.progress == ""
	w.progress, w.moved = progress, now
	return !first
}

// text describes the catch-up, for the status.
func (w *catchUpWatch) text(now time.Duration) string {
	text := fmt.Sprintf("catching up for %s", (now - w.began).Round(time.Second))
	if still := now - w.moved; still >= standstillMin {
		text += fmt.Sprintf(", at a standstill for %s", still.Round(time.Second))
	}
	return text
}
