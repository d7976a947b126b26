package agent

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/mysql/mysqld"
	"github.com/quorate/quorate/internal/mysql/replay"
	"github.com/quorate/quorate/internal/role"
)

const (
	// foreignXATries and foreignXAPause are how often, and how far apart, a client's end
	// of an XA transaction is looked for: what the applier is at looks like that for a moment.
	foreignXATries = 10
	foreignXAPause = 20 * time.Millisecond
	// foreignXATimeout bounds a look.
	foreignXATimeout = time.Minute
)

// foreignCommitted makes this node errant: a client committed what the applier had
// prepared, and no comparison of GTIDs shows that.
func (a *Agent) foreignCommitted() error {
	return &primary.VerdictError{Verdict: role.Errant, Reason: fmt.Sprintf(
		"a client committed XA transactions on this replica: its data differ; quorate node rebuild %s", a.self.Name)}
}

// judgeForeignXA refuses data in which a client committed what the applier had prepared.
// A mysqld that has just started knows nothing of it: there is a note then.
func (a *Agent) judgeForeignXA(ctx context.Context, p *mysqld.Process, promote bool) error {
	if noted, err := a.server.ForeignXANoted(); err != nil {
		return err
	} else if noted {
		return a.foreignCommitted()
	}
	if !promote {
		return nil
	}
	found, err := a.noteForeignXA(ctx, p)
	if err == nil && found {
		err = a.foreignCommitted()
	}
	return err
}

// noteForeignXA tells whether a client has committed what the applier of a replica had
// prepared, and notes that durably: the next mysqld knows nothing of it.
//
// An XA transaction that is prepared by the log and gtid_executed, and that XA RECOVER
// lacks, was ended by a client, or the applier is just at its end. If clients have said
// XA COMMIT at all, it was that.
func (a *Agent) noteForeignXA(ctx context.Context, p *mysqld.Process) (found bool, err error) {
	if commits, err := p.ForeignXACommit(ctx); err != nil || !commits {
		return false, err
	}
	executed, err := a.executed(ctx)
	if err != nil {
		return false, err
	}
	through, open := a.lag.Executed(executed, time.Now()).Applied, map[binlog.XID]gtid.GTID{}
	// What was prepared before the durable mark has had its end before it, too.
	log := a.logReader()
	defer log.Close()
	if err := replay.PreparedIn(log, a.durable().Index+1, executed, open); err != nil {
		return false, err
	}
	for range foreignXATries {
		missing, err := a.missingXA(ctx, p.Admin(), open, through)
		if err != nil || !missing {
			return false, err
		}
		select {
		case <-time.After(foreignXAPause):
		case <-ctx.Done():
			return false, ctx.Err()
		}
		if commits, err := p.ForeignXACommit(ctx); err != nil || !commits {
			return false, err // it was the applier that was at one
		}
	}
	return true, a.server.NoteForeignXA()
}

// missingXA tells whether any of what was prepared is not any more, though mysqld's
// applier has not ended it. Up to through the log was applied when open was.
func (a *Agent) missingXA(ctx context.Context, admin *mysqld.Admin, open map[binlog.XID]gtid.GTID, through uint64) (bool, error) {
	there, err := admin.PreparedXA(ctx)
	if err != nil {
		return false, err
	}
	missing := maps.Clone(open)
	maps.DeleteFunc(missing, func(x binlog.XID, _ gtid.GTID) bool { return there[x] })
	if len(missing) == 0 {
		return false, nil
	}
	executed, err := a.executed(ctx)
	if err != nil {
		return false, err
	}
	after := maps.Clone(open)
	log := a.logReader()
	defer log.Close()
	if err := replay.PreparedIn(log, through+1, executed, after); err != nil {
		return false, err
	}
	maps.DeleteFunc(missing, func(x binlog.XID, prepared gtid.GTID) bool { return after[x] != prepared })
	return len(missing) > 0, nil
}

// pollForeignXA ends the mysqld of a replica in which a client has ended what its applier
// had prepared. stopped: the applier has found one that is gone. It does not wait: the
// log may have to be read far back.
func (a *Agent) pollForeignXA(p *mysqld.Process, stopped bool) {
	if !a.foreignXAPolled.CompareAndSwap(false, true) {
		return
	}
	a.work.Go(func() {
		defer a.foreignXAPolled.Store(false)
		ctx, cancel := context.WithTimeout(a.ctx, foreignXATimeout)
		defer cancel()
		found, err := a.noteForeignXA(ctx, p)
		switch {
		case err != nil && a.currentProcess() == p: // it is asked again: nothing ends before there is a note
			a.logger.Warn("look for XA transactions that a client committed", "error", err)
		case err != nil:
		case found:
			a.doubt(p, []string{a.foreignCommitted().Error()})
		case stopped:
			if foreign, err := p.ForeignXA(ctx); err == nil && foreign {
				a.doubt(p, []string{primary.XAEnded}) // it was rolled back: one that starts again prepares it anew
			}
		}
	})
}

// noForeignXA refuses a switchover to this replica where a client has ended XA
// transactions: its mysqld would have to start again, with writes closed.
func (a *Agent) noForeignXA(ctx context.Context, p *mysqld.Process) error {
	for range foreignXATries {
		if foreign, err := p.ForeignXA(ctx); err != nil || !foreign {
			return err
		}
		select {
		case <-time.After(foreignXAPause): // the applier may be at it
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return fmt.Errorf("%s: its mysqld must start again first: quorate restart-mysqld %s", primary.XAEnded, a.self.Name)
}
