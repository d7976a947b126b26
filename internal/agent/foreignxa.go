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
	// foreignXATries and foreignXAPause are how often, and how far apart, the agent looks for an
	// XA transaction that a client has ended: while the applier ends one it looks the same for
	// a moment.
	foreignXATries = 10
	foreignXAPause = 20 * time.Millisecond
	// foreignXATimeout bounds a look.
	foreignXATimeout = time.Minute
)

// foreignCommitted makes this node errant: a client committed an XA transaction that the applier
// had prepared. No comparison of GTIDs shows that.
func (a *Agent) foreignCommitted() error {
	return &primary.VerdictError{Verdict: role.Errant, Reason: fmt.Sprintf(
		"a client committed XA transactions on this replica: its data differ; quorate node rebuild %s", a.self.Name)}
}

// judgeForeignXA refuses data in which a client committed an XA transaction that the applier had
// prepared. A mysqld that has just started does not know of it: then there is a note.
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

// noteForeignXA tells whether a client has committed an XA transaction that a replica's applier
// had prepared, and notes that durably: the next mysqld does not know of it.
//
// The log and gtid_executed may say that an XA transaction is prepared, and XA RECOVER lack it.
// Then a client has ended it, or the applier is just ending it. If clients have said XA COMMIT at
// all, it counts as committed by a client.
func (a *Agent) noteForeignXA(ctx context.Context, p *mysqld.Process) (found bool, err error) {
	if commits, err := p.ForeignXACommit(ctx); err != nil || !commits {
		return false, err
	}
	executed, err := a.executed(ctx)
	if err != nil {
		return false, err
	}
	through, open := a.Lag.Executed(executed, time.Now()).Applied, map[binlog.XID]gtid.GTID{}
	// An XA transaction prepared before the durable mark has also ended before it.
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
			return false, err // the applier was just ending it
		}
	}
	return true, a.server.NoteForeignXA()
}

// missingXA tells whether a prepared XA transaction is gone although mysqld's applier has not
// ended it. When open was read, the log was applied up to through.
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

// pollForeignXA ends the mysqld of a replica in which a client has ended an XA transaction that
// the applier had prepared. stopped: the applier has found that such a transaction is gone. It
// does not wait: the log may have to be read far back.
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
			a.doubt(p, a.foreignCommitted().Error())
		case stopped:
			if foreign, err := p.ForeignXA(ctx); err == nil && foreign {
				a.doubt(p, primary.XAEnded) // it was rolled back: a mysqld that starts prepares it again
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
