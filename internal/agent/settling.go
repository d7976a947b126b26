package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/quorate/quorate/internal/consensus"
	"github.com/quorate/quorate/internal/mysqld"
	"github.com/quorate/quorate/internal/tap"
)

// settling takes a deposed primary through the steps of docs/architecture.md,
// "Settling a deposed primary": look, acknowledge, close writes, prove. It returns
// nil if mysqld has nothing but what was committed.
type settling struct {
	term   uint64
	server settlingServer
	tap    settlingTap
	log    settlingLog
	// acksAreCommits is asked right before anything is acknowledged.
	acksAreCommits func() bool
	logger         *slog.Logger
}

type settlingServer interface {
	SemiSyncStatus(ctx context.Context) (mysqld.SemiSync, error)
	EndLockWaiters(ctx context.Context) (int, error)
	SetSuperReadOnly(ctx context.Context, on bool, lockWait time.Duration) error
	PendingXA(ctx context.Context) (int, error)
	BinlogEnd(ctx context.Context) (file string, offset uint64, err error)
}

type settlingTap interface {
	Ends(number uint64) (at tap.Position, ok bool)
	Settle(number uint64) (transactions int, ok bool)
}

type settlingLog interface {
	Changed() (consensus.Mark, <-chan struct{})
	EpochEnd(term uint64) (number uint64, over bool)
}

// run returns the last entry of the epoch, and how many transactions it acknowledged.
func (s settling) run(ctx context.Context) (number uint64, acknowledged int, err error) {
	if err := s.look(ctx); err != nil {
		return 0, 0, err
	}
	number, acknowledged, err = s.acknowledge(ctx)
	if err != nil {
		return 0, 0, err
	}
	if err := s.server.SetSuperReadOnly(ctx, true, settleTimeout); err != nil {
		return 0, 0, fmt.Errorf("close writes: %w", err)
	}
	return number, acknowledged, s.prove(ctx, number)
}

// look whether mysqld waits for the tap and for nobody else, and end who would write
// to the binlog as soon as others are acknowledged.
func (s settling) look(ctx context.Context) error {
	status, err := s.server.SemiSyncStatus(ctx)
	switch {
	case err != nil:
		return err
	case !status.On:
		return errors.New("semi-sync is off in mysqld")
	case status.Clients != 1:
		return fmt.Errorf("mysqld has %d semi-sync replicas, the tap must be the only one", status.Clients)
	}
	return s.endLockWaiters(ctx)
}

func (s settling) endLockWaiters(ctx context.Context) error {
	ended, err := s.server.EndLockWaiters(ctx)
	if ended > 0 {
		s.logger.Warn("ended sessions that waited for a lock when this node lost the primary's role", "sessions", ended)
	}
	return err
}

// acknowledge what the tap has received of its epoch, once all of that is committed.
func (s settling) acknowledge(ctx context.Context) (number uint64, acknowledged int, err error) {
	for {
		_, changed := s.log.Changed()
		number, over := s.log.EpochEnd(s.term)
		if _, ends := s.tap.Ends(number); ends {
			// Again: others have come to wait by now for a lock that is let go next.
			if err := s.endLockWaiters(ctx); err != nil {
				return 0, 0, err
			}
		}
		if !s.acksAreCommits() {
			return 0, 0, errors.New("ACKs wait for more than a majority, which only a leader knows")
		}
		if acknowledged, ok := s.tap.Settle(number); ok {
			return number, acknowledged, nil
		}
		if over {
			return 0, 0, errBehindEnd(s.term, number)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, 0, fmt.Errorf("wait for what becomes of epoch %d: %w", s.term, ctx.Err())
		}
	}
}

// prove returns nil once the tap has read mysqld's binlog to its end and found
// nothing behind the last entry, and nobody waits. super_read_only is on, so no row
// changes any more. A statement without rows passes it. What it has written by now
// makes the binlog longer, and where that is committed its ACK may still be on its
// way; what it writes later tidyPrimary finds, which restarts the ACK receiver.
func (s settling) prove(ctx context.Context, number uint64) error {
	if n, err := s.server.PendingXA(ctx); err != nil || n > 0 {
		return cmp.Or(err, errors.New(xaPrepared(n)))
	}
	poll := time.NewTicker(binlogEndPoll)
	defer poll.Stop()
	for {
		file, offset, err := s.server.BinlogEnd(ctx)
		if err != nil {
			return err
		}
		status, err := s.server.SemiSyncStatus(ctx)
		if err != nil {
			return err
		}
		at, ends := s.tap.Ends(number)
		switch {
		case !ends:
			return errBehindEnd(s.term, number)
		case at.File == file && at.Offset == offset && status.WaitSessions == 0:
			return nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("mysqld's binlog ends at %s:%d, the tap has read up to %v, %d sessions wait: %w",
				file, offset, at, status.WaitSessions, ctx.Err())
		}
	}
}

func errBehindEnd(term, number uint64) error {
	return fmt.Errorf("mysqld's binlog goes on behind entry %d of epoch %d, the last that was committed", number, term)
}
