package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/core"
	"github.com/quorate/quorate/internal/gtid"
	"github.com/quorate/quorate/internal/primary"
	"github.com/quorate/quorate/internal/replay"
)

// judge decides whether mysqld may replicate or, with promote, serve (I3). It
// waits for a majority's commit index first: a node's own log may hold what
// will be cut, and may lack what is committed.
func (a *Agent) judge(ctx context.Context, promote bool) error {
	if err := a.judgeForeignXA(ctx, promote); err != nil {
		return err
	}
	if err := a.node.Barrier(ctx); err != nil {
		return err
	}
	executed, err := a.executed(ctx)
	if err != nil {
		return err
	}
	if err := a.judgeLog(ctx, executed, promote); err != nil {
		return err
	}
	if err := a.judgeSettings(ctx); err != nil {
		return err
	}
	if promote {
		if err := a.judgeGrants(ctx); err != nil {
			return err
		}
		return a.judgePending(ctx)
	}
	// Nothing of its own is in there: it has just been judged.
	if p := a.currentProcess(); p != nil {
		return p.RemoveOldBinlogs()
	}
	return errNoMysqld
}

// executed returns mysqld's gtid_executed.
func (a *Agent) executed(ctx context.Context) (*gtid.Set, error) {
	admin, err := a.admin()
	if err != nil {
		return nil, err
	}
	text, err := admin.GTIDExecuted(ctx)
	if err != nil {
		return nil, fmt.Errorf("read gtid_executed: %w", err)
	}
	return gtid.ParseSet(text)
}

// judgeLog holds what mysqld has against the committed log (I3, the prefix
// rule), and declares done what it has although gtid_executed lacks it. For a
// promotion the place in the log counts no more: mysqld has all of it.
func (a *Agent) judgeLog(ctx context.Context, executed *gtid.Set, promote bool) error {
	durable := a.durable()
	if promote {
		v := replay.JudgeSets(a.committedGTIDs(), executed, durable)
		if p := a.currentProcess(); v.Refused != "" && p != nil && p.Options().ReplicaBinlog {
			// Semi-sync is off so far: it may be a FLUSH TABLES, which only memory and
			// binlog know of. Both end with this mysqld, which promotes no more; what
			// else there is the next one's first judge finds.
			return errors.New(v.Refused)
		}
		return a.refuse(v)
	}
	log := a.logReader()
	defer log.Close()
	v, err := replay.Judge(log, a.committedGTIDs(), executed, durable)
	if err != nil {
		return err
	}
	if err := a.refuse(v); err != nil {
		return err
	}
	a.logger.Info("mysqld holds the log up to", "index", v.Index, "committed", a.node.Committed().Mark().Index,
		"no_ops", v.Done.String(), "xa_again", v.Again.String())
	if !v.Again.IsEmpty() {
		a.xa.used.Store(true) // mysqld has rolled them back, and knows nothing of them
	}
	if v.Done.IsEmpty() {
		return nil
	}
	admin, err := a.admin()
	if err != nil {
		return err
	}
	if err := admin.AddPurged(ctx, v.Done.String()); err != nil {
		return fmt.Errorf("declare %s done: %w", v.Done, err)
	}
	return nil
}

// refuse makes an error of a verdict that refuses.
func (a *Agent) refuse(v replay.Verdict) error {
	// Whatever is errant is saved once mysqld has ended (saveErrant).
	a.board.Update(func(s *cluster.NodeStatus) { s.Errant, s.ErrantSaved, s.ErrantAllSaved = v.Errant.String(), "", false })
	if v.Refused == "" {
		return nil
	}
	return &verdictError{core.Errant, v.Refused + " (" + a.data.Join("mysql") + ")"}
}

// judgeSettings checks every variable that quorate depends on.
func (a *Agent) judgeSettings(ctx context.Context) error {
	p := a.currentProcess()
	if p == nil {
		return errNoMysqld
	}
	drifts, err := p.CheckGuarded(ctx)
	if err != nil {
		return fmt.Errorf("check guarded variables: %w", err)
	}
	if len(drifts) == 0 {
		return nil
	}
	texts := make([]string, len(drifts))
	for i, d := range drifts {
		texts[i] = d.String()
	}
	return &verdictError{core.Unfit, "mysqld is not set as it must be: " + strings.Join(texts, "; ")}
}

// grantsError says that accounts hold what they must not.
type grantsError struct{ accounts string }

func (e *grantsError) Error() string {
	return fmt.Sprintf("accounts hold privileges with which commits can go unreplicated: %s: revoke them", e.accounts)
}

// judgeGrants looks for accounts whose replicas could acknowledge commits.
func (a *Agent) judgeGrants(ctx context.Context) error {
	admin, err := a.admin()
	if err != nil {
		return err
	}
	grants, err := admin.ScanGrants(ctx)
	if err != nil || len(grants) == 0 {
		return err
	}
	texts := make([]string, len(grants))
	for i, g := range grants {
		texts[i] = g.Account + " (" + g.Privilege + ")"
	}
	return &grantsError{accounts: strings.Join(texts, ", ")}
}

// judgePending looks for prepared XA transactions whose end mysqld would not
// binlog: acknowledged by it, and in no log. Its applier has stopped.
func (a *Agent) judgePending(ctx context.Context) error {
	p := a.currentProcess()
	if p == nil {
		return errNoMysqld
	}
	if p.Options().ReplicaBinlog {
		if err := p.EnableSemiSync(ctx); err != nil {
			return err
		}
		return a.judgeForeignXA(ctx, true) // from here on a client's commit waits for its ACK
	}
	if err := a.judgeForeignXA(ctx, true); err != nil { // again: a start would hide it
		return err
	}
	n, err := p.Admin().PendingXA(ctx)
	if err != nil {
		return err
	}
	if n > 0 {
		return &verdictError{core.XAPending, primary.XAPrepared(n) + ": mysqld starts again to prepare that with its binlog"}
	}
	foreign, err := p.ForeignXA(ctx)
	if err != nil || !foreign {
		return err
	}
	return &verdictError{core.XAPending, foreignXA + ": mysqld starts again to prepare anew what that was"}
}
