package prepared

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/mysql/binlog"
	"github.com/quorate/quorate/internal/mysql/gtid"
	"github.com/quorate/quorate/internal/sys/clock"
)

const (
	// foreignTries and foreignPause are how often, and how far apart, Foreign looks for an XA
	// transaction that a client has ended. While the applier ends one, it looks the same for
	// a moment.
	foreignTries = 10
	foreignPause = 20 * time.Millisecond
	// foreignTimeout bounds a look.
	foreignTimeout = time.Minute
)

// ErrCommitted means that a client committed XA transactions that the applier had prepared. No
// comparison of GTIDs shows that.
var ErrCommitted = errors.New("a client committed XA transactions on this replica: its data differ")

// ErrEnded means that a client has ended XA transactions: a mysqld that starts prepares again what was rolled back.
var ErrEnded = errors.New(primary.XAEnded)

// Replica is a mysqld that applies.
type Replica interface {
	// ForeignXA tells whether a client may have ended what the applier had prepared, ForeignXACommit
	// whether one may have said XA COMMIT, since this mysqld started.
	ForeignXA(ctx context.Context) (bool, error)
	ForeignXACommit(ctx context.Context) (bool, error)
	// PreparedXA has what XA RECOVER says.
	PreparedXA(ctx context.Context) (map[binlog.XID]bool, error)
	// GTIDExecuted is mysqld's gtid_executed.
	GTIDExecuted(ctx context.Context) (*gtid.Set, error)
}

// Node is the node around it.
type Node interface {
	// ForeignXANoted tells whether there is a note that a client committed in these data. NoteForeignXA
	// writes it durably: the next mysqld does not know of it.
	ForeignXANoted() (bool, error)
	NoteForeignXA() error
	// PreparedIn updates open with the entries, from one on, that a mysqld with these GTIDs has applied: see
	// replay.PreparedIn.
	PreparedIn(from uint64, executed *gtid.Set, open map[binlog.XID]gtid.GTID) error
	// Applied is the index up to which a mysqld with these GTIDs has applied the log, Durable the index of its durable mark.
	Applied(executed *gtid.Set) uint64
	Durable() uint64
}

// Foreign finds out what clients have done on a replica to XA transactions that its applier had prepared.
type Foreign struct {
	Node Node
	// polls: a Poll is under way.
	polls atomic.Bool
}

// Judge returns ErrCommitted for data in which a client committed what the applier had
// prepared. A mysqld that has just started does not know of it: then there is a note. promote: the mysqld is asked, too.
func (f *Foreign) Judge(ctx context.Context, r Replica, promote bool) error {
	if noted, err := f.Node.ForeignXANoted(); err != nil {
		return err
	} else if noted {
		return ErrCommitted
	}
	if !promote {
		return nil
	}
	found, err := f.look(ctx, r)
	if err == nil && found {
		err = ErrCommitted
	}
	return err
}

// look tells whether a client has committed an XA transaction that a replica's applier
// had prepared, and notes that.
//
// The log and gtid_executed may say that an XA transaction is prepared, and XA RECOVER lack it.
// Then a client has ended it, or the applier is just ending it. If clients have said XA COMMIT at
// all, it counts as committed by a client.
func (f *Foreign) look(ctx context.Context, r Replica) (found bool, err error) {
	if commits, err := r.ForeignXACommit(ctx); err != nil || !commits {
		return false, err
	}
	executed, err := r.GTIDExecuted(ctx)
	if err != nil {
		return false, err
	}
	through, open := f.Node.Applied(executed), map[binlog.XID]gtid.GTID{}
	// An XA transaction prepared before the durable mark has also ended before it.
	if err := f.Node.PreparedIn(f.Node.Durable()+1, executed, open); err != nil {
		return false, err
	}
	for range foreignTries {
		missing, err := f.missing(ctx, r, open, through)
		if err != nil || !missing {
			return false, err
		}
		if err := clock.Sleep(ctx, clock.Machine{}, foreignPause); err != nil {
			return false, err
		}
		if commits, err := r.ForeignXACommit(ctx); err != nil || !commits {
			return false, err // the applier was just ending it
		}
	}
	return true, f.Node.NoteForeignXA()
}

// missing tells whether a prepared XA transaction is gone although mysqld's applier has not
// ended it. When open was read, the log was applied up to through.
func (f *Foreign) missing(ctx context.Context, r Replica, open map[binlog.XID]gtid.GTID, through uint64) (bool, error) {
	there, err := r.PreparedXA(ctx)
	if err != nil {
		return false, err
	}
	missing := maps.Clone(open)
	maps.DeleteFunc(missing, func(x binlog.XID, _ gtid.GTID) bool { return there[x] })
	if len(missing) == 0 {
		return false, nil
	}
	executed, err := r.GTIDExecuted(ctx)
	if err != nil {
		return false, err
	}
	after := maps.Clone(open)
	if err := f.Node.PreparedIn(through+1, executed, after); err != nil {
		return false, err
	}
	maps.DeleteFunc(missing, func(x binlog.XID, prepared gtid.GTID) bool { return after[x] != prepared })
	return len(missing) > 0, nil
}

// Begin takes the one place for a Poll; false: there is one already.
func (f *Foreign) Begin() bool { return f.polls.CompareAndSwap(false, true) }

// Poll looks at a replica, and gives the place back that Begin has taken. It may take a while, as the log may have to be
// read far back. stopped: the applier has found that a transaction is gone. The error is ErrCommitted, ErrEnded, or why
// it could not look: then call it again, because mysqld must not be ended before there is a note.
func (f *Foreign) Poll(ctx context.Context, r Replica, stopped bool) error {
	defer f.polls.Store(false)
	ctx, cancel := context.WithTimeout(ctx, foreignTimeout)
	defer cancel()
	found, err := f.look(ctx, r)
	switch {
	case err != nil:
		return fmt.Errorf("look for XA transactions that a client committed: %w", err)
	case found:
		return ErrCommitted
	case stopped:
		if foreign, err := r.ForeignXA(ctx); err == nil && foreign {
			return ErrEnded
		}
	}
	return nil
}

// Undone returns ErrEnded for a replica in which a client has ended XA transactions: its mysqld
// would have to start again before it serves.
func (f *Foreign) Undone(ctx context.Context, r Replica) error {
	for range foreignTries {
		if foreign, err := r.ForeignXA(ctx); err != nil || !foreign {
			return err
		}
		if err := clock.Sleep(ctx, clock.Machine{}, foreignPause); err != nil { // the applier may just be ending it
			return err
		}
	}
	return ErrEnded
}
