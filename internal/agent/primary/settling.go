package primary

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/config/units"
	"github.com/quorate/quorate/internal/mysql/tap"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/sys/clock"
)

// SettleTimeout bounds the settling of a deposed primary: after that, or at once in any
// doubt, the agent kills its mysqld.
const SettleTimeout = 2 * time.Second

// binlogEndPoll is how often mysqld's binlog is compared with what the tap read.
const binlogEndPoll = 5 * time.Millisecond

// Settling takes a deposed primary through the steps of
// docs/architecture/settling.md: look, acknowledge, close writes, prove.
type Settling struct {
	Term   uint64
	Server Server
	Tap    Tap
	Log    EpochLog
	// AcksAreCommits is asked right before anything is acknowledged.
	AcksAreCommits func() bool
	Clock          clock.Clock
}

// Server is the mysqld of a deposed primary.
type Server interface {
	SemiSyncStatus(ctx context.Context) (SemiSync, error)
	// EndLockWaiters ends the sessions that wait for a lock, and returns how many.
	EndLockWaiters(ctx context.Context) (int, error)
	SetSuperReadOnly(ctx context.Context, on bool, lockWait time.Duration) error
	PendingXA(ctx context.Context) (int, error)
	BinlogEnd(ctx context.Context) (file string, offset uint64, err error)
}

// Tap is the tap of a deposed primary: see tap.Machine.
type Tap interface {
	Ends(number uint64) (at tap.Position, ok bool)
	Settle(number uint64) (transactions int, ok bool)
}

// EpochLog is what the commit check knows of an epoch: see consensus.Committed.
type EpochLog interface {
	Changed() (consensus.Mark, <-chan struct{})
	EpochEnd(term uint64) (number uint64, over bool)
}

// Run returns no error if mysqld has nothing but what was committed: then number is the last of the epoch, and
// acknowledged is how many transactions Run acknowledged.
func (s Settling) Run(ctx context.Context) (number uint64, acknowledged int, err error) {
	if err := s.look(ctx); err != nil {
		return 0, 0, err
	}
	number, acknowledged, err = s.acknowledge(ctx)
	if err != nil {
		return 0, 0, err
	}
	if err := s.Server.SetSuperReadOnly(ctx, true, SettleTimeout); err != nil {
		return 0, 0, fmt.Errorf("close writes: %w", err)
	}
	return number, acknowledged, s.prove(ctx, number)
}

// look checks that mysqld waits for the tap and for nobody else. It ends the sessions that
// wait for a lock: they would write to the binlog as soon as others are acknowledged.
func (s Settling) look(ctx context.Context) error {
	status, err := s.Server.SemiSyncStatus(ctx)
	switch {
	case err != nil:
		return err
	case !status.On:
		return errors.New("semi-sync is off in mysqld")
	case status.Clients != 1:
		return errForeignReplicas(status.Clients)
	}
	_, err = s.Server.EndLockWaiters(ctx)
	return err
}

// acknowledge acknowledges what the tap has received of its epoch, once all of that is committed.
func (s Settling) acknowledge(ctx context.Context) (number uint64, acknowledged int, err error) {
	for {
		_, changed := s.Log.Changed()
		number, over := s.Log.EpochEnd(s.Term)
		if _, ends := s.Tap.Ends(number); ends {
			// Again: by now other sessions may wait for a lock that is released next.
			if _, err := s.Server.EndLockWaiters(ctx); err != nil {
				return 0, 0, err
			}
		}
		if !s.AcksAreCommits() {
			return 0, 0, errors.New("ACKs wait for more than a majority, and only a leader knows when that is reached")
		}
		if acknowledged, ok := s.Tap.Settle(number); ok {
			return number, acknowledged, nil
		}
		if over {
			return 0, 0, errBehindEnd(s.Term, number)
		}
		if err := s.Clock.Wait(ctx, 0, changed); err != nil {
			return 0, 0, fmt.Errorf("wait for what becomes of epoch %d: %w", s.Term, err)
		}
	}
}

// prove returns nil once the tap has read mysqld's binlog to its end and found
// nothing behind the last entry, and no session waits. super_read_only is on, so no
// row changes any more, but a statement without rows passes. If it has written by
// now, the binlog is longer; and if that is committed, its ACK may still be on its
// way. If it writes later, Replicate finds that, after it has restarted the ACK receiver.
func (s Settling) prove(ctx context.Context, number uint64) error {
	if n, err := s.Server.PendingXA(ctx); err != nil || n > 0 {
		return cmp.Or(err, errors.New(XAPrepared(n)))
	}
	for {
		file, offset, err := s.Server.BinlogEnd(ctx)
		if err != nil {
			return err
		}
		status, err := s.Server.SemiSyncStatus(ctx)
		if err != nil {
			return err
		}
		at, ends := s.Tap.Ends(number)
		switch {
		case !ends:
			return errBehindEnd(s.Term, number)
		case at.File == file && at.Offset == offset && status.WaitSessions == 0:
			return nil
		}
		if err := s.Clock.Wait(ctx, binlogEndPoll, nil); err != nil {
			return fmt.Errorf("mysqld's binlog ends at %s:%d, the tap has read up to %v, %d sessions wait: %w",
				file, offset, at, status.WaitSessions, err)
		}
	}
}

// XAPrepared says that so many XA transactions are prepared.
func XAPrepared(n int) string {
	return units.Count(n, "XA transaction is prepared", "XA transactions are prepared")
}

func errBehindEnd(term, number uint64) error {
	return fmt.Errorf("mysqld's binlog goes on after entry %d of epoch %d, the last committed entry", number, term)
}
