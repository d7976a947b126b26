package primary

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/role"
)

// XAEnded is why a mysqld must start again before it serves: an XA transaction that is prepared
// in the log is no longer prepared there.
const XAEnded = "a client ended an XA transaction on this server while it was a replica"

// Judge decides whether mysqld may replicate or serve (I3).
type Judge struct {
	Server  JudgedServer
	Log     JudgedLog
	Durable func() replay.Mark
	// Dir is where mysqld's data are.
	Dir string
	// Judged is told what was found when mysqld's gtid_executed was compared with the log.
	Judged func(replay.Verdict)
}

// JudgedServer is a mysqld that neither replicates nor serves.
type JudgedServer interface {
	// ReplicaBinlog tells whether it writes a binlog as a replica. It starts without
	// semi-sync then.
	ReplicaBinlog() bool
	GTIDExecuted(ctx context.Context) (*gtid.Set, error)
	AddPurged(ctx context.Context, set *gtid.Set) error
	// Drifts describes each variable that quorate depends on and that is not as it must be.
	Drifts(ctx context.Context) ([]string, error)
	// JudgeGrants returns an error if accounts may attach as replicas: these could
	// acknowledge commits.
	JudgeGrants(ctx context.Context) error
	// JudgeForeignXA returns an error if a client committed what the applier had prepared.
	JudgeForeignXA(ctx context.Context, promote bool) error
	// XAEnded tells whether a client ended what the applier had prepared.
	XAEnded(ctx context.Context) (bool, error)
	PendingXA(ctx context.Context) (int, error)
	EnableSemiSync(ctx context.Context) error
	// RemoveOldBinlogs removes the binlogs of earlier incarnations.
	RemoveOldBinlogs() error
}

// Committed is the committed log as this node knows it.
type Committed interface {
	// Barrier waits until this node knows what a majority had committed when it was called.
	Barrier(ctx context.Context) error
	GTIDs() *gtid.Set
}

// JudgedLog is what mysqld is compared with.
type JudgedLog interface {
	Committed
	replay.CommittedLog
}

// Run returns nil if mysqld may replicate or, with promote, serve. It waits for a majority's
// commit index first: a node's own log may hold what will be cut, and may lack what is
// committed.
func (j Judge) Run(ctx context.Context, promote bool) error {
	if err := j.Server.JudgeForeignXA(ctx, promote); err != nil {
		return err
	}
	if err := j.Log.Barrier(ctx); err != nil {
		return err
	}
	executed, err := j.Server.GTIDExecuted(ctx)
	if err != nil {
		return err
	}
	if promote {
		err = j.judgeSets(executed)
	} else {
		err = j.judgeLog(ctx, executed)
	}
	if err != nil {
		return err
	}
	drifts, err := j.Server.Drifts(ctx)
	if err != nil {
		return fmt.Errorf("check guarded variables: %w", err)
	}
	if len(drifts) > 0 {
		return &VerdictError{role.Unfit, "mysqld is not set as it must be: " + strings.Join(drifts, "; ")}
	}
	if !promote {
		return j.Server.RemoveOldBinlogs() // mysqld was just judged: nothing in them is missing in the log
	}
	if err := j.Server.JudgeGrants(ctx); err != nil {
		return err
	}
	return j.judgePending(ctx)
}

// judgeSets compares what mysqld has with what is committed. mysqld has caught up, so its place in
// the log matters no more.
func (j Judge) judgeSets(executed *gtid.Set) error {
	v := replay.JudgeSets(j.Log.GTIDs(), executed, j.Durable())
	if v.Refused != "" && j.Server.ReplicaBinlog() {
		// Semi-sync is still off: it may be a FLUSH TABLES, which only mysqld's memory
		// and its binlog have. Both end with this mysqld, which is not promoted any
		// more. Anything else is found by the first judge of the next mysqld.
		return errors.New(v.Refused)
	}
	return j.refuse(v)
}

// judgeLog compares what mysqld has with the committed log (the prefix rule), and declares done
// the holes: what mysqld has although gtid_executed lacks it.
func (j Judge) judgeLog(ctx context.Context, executed *gtid.Set) error {
	v, err := replay.Judge(j.Log, j.Log.GTIDs(), executed, j.Durable())
	if err != nil {
		return err
	}
	if err := j.refuse(v); err != nil || v.Done.IsEmpty() {
		return err
	}
	if err := j.Server.AddPurged(ctx, v.Done); err != nil {
		return fmt.Errorf("declare %s done: %w", v.Done, err)
	}
	return nil
}

// refuse makes an error of a verdict that refuses.
func (j Judge) refuse(v replay.Verdict) error {
	j.Judged(v)
	if v.Refused == "" {
		return nil
	}
	return &VerdictError{role.Errant, v.Refused + " (" + j.Dir + ")"}
}

// judgePending looks for prepared XA transactions whose end mysqld would not write to its
// binlog: clients would get their OK, and no log would have it. The applier has stopped.
func (j Judge) judgePending(ctx context.Context) error {
	if j.Server.ReplicaBinlog() {
		if err := j.Server.EnableSemiSync(ctx); err != nil {
			return err
		}
		return j.Server.JudgeForeignXA(ctx, true) // from here on a client's commit waits for its ACK
	}
	if err := j.Server.JudgeForeignXA(ctx, true); err != nil { // again: the next start of mysqld would hide it
		return err
	}
	n, err := j.Server.PendingXA(ctx)
	if err != nil {
		return err
	}
	if n > 0 {
		return &VerdictError{role.XAPending, XAPrepared(n) + ": mysqld starts again, so that its binlog has what is prepared"}
	}
	ended, err := j.Server.XAEnded(ctx)
	if err != nil || !ended {
		return err
	}
	return &VerdictError{role.XAPending, XAEnded + ": mysqld starts again, to prepare again what the client ended"}
}
