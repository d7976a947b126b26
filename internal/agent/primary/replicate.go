package primary

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/role"
)

// errSlipped ends a former primary on which a statement was committed that no log
// has.
var errSlipped = errors.New("a statement that read-only does not stop (FLUSH TABLES) came while semi-sync was off")

// Replicate makes a replica of a mysqld that was judged.
type Replicate struct {
	Server Replicating
	// Committed is the set of all transactions that were committed.
	Committed func() *gtid.Set
	// WasPrimary: it was opened for writes, and was not made a replica since.
	WasPrimary bool
	// Tidied is called once nothing of that is left.
	Tidied func()
}

// Replicating is a mysqld that is to replicate from its agent.
type Replicating interface {
	GTIDExecuted(ctx context.Context) (*gtid.Set, error)
	// ShutOut ends every session but quorate's own, and keeps everybody out until letIn is
	// called. It returns an error if a session waits for an ACK.
	ShutOut(ctx context.Context) (letIn func(context.Context) error, err error)
	// BeginReplica notes that it is a replica from now on, with no XA transaction prepared.
	BeginReplica(ctx context.Context) error
	// RestartAckReceiver switches semi-sync off and on.
	RestartAckReceiver(ctx context.Context) error
	// InCommit tells whether a statement has a GTID that is not in gtid_executed yet.
	InCommit(ctx context.Context) (bool, error)
	NextBinlog(ctx context.Context) error
	// Configure points it to its agent's feed, Start starts replication.
	Configure(ctx context.Context) error
	Start(ctx context.Context) error
}

// Run returns nil once replication has started.
func (r Replicate) Run(ctx context.Context) error {
	if r.WasPrimary {
		if err := r.tidy(ctx); err != nil {
			// What it was asked may have been done or not, and a session may wait for an
			// ACK that nobody sends: trying again would not end that.
			return &VerdictError{role.Unfit, fmt.Sprintf("make a replica of the former primary: %v", err)}
		}
		r.Tidied()
	}
	if err := r.Server.Configure(ctx); err != nil {
		return fmt.Errorf("configure replication: %w", err)
	}
	if err := r.Server.Start(ctx); err != nil {
		return fmt.Errorf("start replication: %w", err)
	}
	return nil
}

// tidy makes a replica of a mysqld that was the primary: its clients' sessions end (they
// came past the router, may hold locks, and could write while semi-sync is off what
// read-only lets pass), and its binlog is not read again. That is done once, before it
// applies anything: later judgeSlipped would take the applier's transactions for somebody's
// own.
func (r Replicate) tidy(ctx context.Context) error {
	letIn, err := r.Server.ShutOut(ctx)
	if err != nil {
		return err
	}
	if err := r.Server.BeginReplica(ctx); err != nil {
		return err
	}
	if err := r.Server.RestartAckReceiver(ctx); err != nil {
		return err
	}
	if err := r.judgeSlipped(ctx); err != nil {
		return err
	}
	if err := r.Server.NextBinlog(ctx); err != nil {
		return err
	}
	return letIn(ctx)
}

// judgeSlipped looks whether something was committed while semi-sync was off for a
// moment: FLUSH TABLES and its like write to the binlog of a read-only server. Its
// GTID is in no log and would make this node errant; but so far only mysqld's memory
// and its binlog have it, and both go with the process. The new binlog that comes
// next would have it written to a table.
//
// What is under way is looked at first: it takes its GTID before, and gets into
// gtid_executed after. What comes later waits for an ACK.
func (r Replicate) judgeSlipped(ctx context.Context) error {
	pending, err := r.Server.InCommit(ctx)
	if err != nil {
		return err
	}
	executed, err := r.Server.GTIDExecuted(ctx)
	if err != nil {
		return err
	}
	if pending {
		return fmt.Errorf("%w: it is still under way", errSlipped)
	}
	executed.Subtract(r.Committed())
	if !executed.IsEmpty() {
		return fmt.Errorf("%w: %s", errSlipped, executed)
	}
	return nil
}
