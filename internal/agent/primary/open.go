package primary

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/raft/entry"
	"github.com/quorate/quorate/internal/sys/clock"
)

const (
	// tapPoll is how often mysqld is asked whether it counts the tap.
	tapPoll = 5 * time.Millisecond
	// staleTapWait is how long mysqld may still count the tap of an earlier attempt: it
	// notices the end of an idle dump at the next heartbeat.
	staleTapWait = 3 * time.Second
)

// SemiSync is what mysqld says about semi-synchronous replication.
type SemiSync struct {
	// On: commits wait for an ACK.
	On bool
	// Clients is how many semi-sync replicas are connected; it must be 1, the tap.
	Clients int
	// WaitSessions is how many sessions wait for an ACK.
	WaitSessions int
}

// AwaitTap returns nil once mysqld counts the tap as its only semi-sync replica: it
// registers a replica shortly after the dump has begun.
func AwaitTap(ctx context.Context, status func(context.Context) (SemiSync, error), c clock.Clock) error {
	for waited := time.Duration(0); ; waited += tapPoll {
		s, err := status(ctx)
		if err != nil {
			return fmt.Errorf("read semi-sync status: %w", err)
		}
		switch {
		case !s.On:
			return errors.New("semi-sync is off in mysqld")
		case s.Clients == 1:
			return nil
		case s.Clients > 1 && waited > staleTapWait:
			return errForeignReplicas(s.Clients)
		}
		if err := c.Wait(ctx, tapPoll, nil); err != nil {
			return fmt.Errorf("wait for mysqld to count the tap: %w", err)
		}
	}
}

func errForeignReplicas(n int) error {
	return fmt.Errorf("mysqld has %d semi-sync replicas, the tap must be the only one", n)
}

// Open opens an epoch in the log: it proposes its entry, and returns nil once that is
// committed. Nothing of the epoch can be proposed before.
func Open(ctx context.Context, e entry.Epoch, propose func(context.Context, []byte) error,
	newest func() (term uint64, changed <-chan struct{}), c clock.Clock) error {
	if err := propose(ctx, entry.EncodeEpoch(e)); err != nil {
		return fmt.Errorf("propose epoch %d: %w", e.Term, err)
	}
	for {
		term, changed := newest()
		if term == e.Term {
			return nil
		}
		if err := c.Wait(ctx, 0, changed); err != nil {
			return fmt.Errorf("commit epoch %d: %w", e.Term, err)
		}
	}
}
