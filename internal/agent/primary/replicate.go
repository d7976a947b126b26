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
	// Tidied is called once nothing is left of its time as the primary.
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
			// mysqld may have done what it was asked or not, and a session may wait for
			// an ACK that nobody sends: trying again would not end that.
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

// tidy makes a replica of a mysqld that was the primary. Its clients' sessions end: they came
// past the router and may hold locks, and while semi-sync is off they could write what
// read-only lets pass. Its binlog is not read again. That is done once, before mysqld applies
// anything: later, judgeSlipped would take the applier's transactions for those of a client.
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
// moment: FLUSH TABLES and its like write to the binlog of a read-only server. Such a
// GTID is in no log and would make this node errant. Until now only mysqld's memory
// and its binlog have it, and both end with the process. The new binlog that comes
// next would have it written to a table.
//
// Statements under way are looked at first: a statement takes its GTID before that, and
// gets into gtid_executed after it. What comes later waits for an ACK.
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
