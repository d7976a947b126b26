package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/bulk"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/logcopy"
	"github.com/quorate/quorate/internal/sys/clock"
)

const (
	// openAttempts is how often a log is opened that the disk does not give back,
	// openRetry the pause in between.
	openAttempts = 4
	openRetry    = 2 * time.Second
)

// Run runs nodes until ctx ends or something fails: one after the other in the
// same data directory, because one whose log turns out to be damaged while it
// runs ends, and is started again to be healed.
func Run(ctx context.Context, cfg config.Config, logger *slog.Logger, version string) error {
	if _, err := FinishRecovery(cfg); err != nil {
		return err
	}
	for {
		a, err := New(cfg, logger, version)
		if err != nil {
			return err
		}
		cfg.Bootstrap = false // it begins once
		err = a.Run(ctx)
		if a.again && ctx.Err() == nil {
			continue // as what it is now
		}
		if ctx.Err() != nil || !errors.Is(err, seglog.ErrCorrupt) || errors.Is(err, logcopy.ErrUnhealable) {
			return err
		}
		logger.Error("the log turned out to be damaged: starting again to heal it", "error", err)
	}
}

// openLog opens the log. What the disk fails to read may be there a moment later: only
// what cannot be read again and again is damage. A log that is healed takes no part in
// Raft, and two of three at once would have no leader to heal from.
func openLog(ctx context.Context, o seglog.Options) (*seglog.Log, error) {
	for attempt := 1; ; attempt++ {
		log, err := seglog.Open(o)
		if attempt == openAttempts || !errors.Is(err, seglog.ErrCorrupt) || !errors.Is(err, syscall.EIO) {
			return log, err
		}
		o.Logger.Warn("the disk cannot read the log: trying again", "attempt", attempt, "of", openAttempts, "error", err)
		select {
		case <-time.After(openRetry):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// heal brings a damaged log back from the peers. This node takes no part in Raft
// meanwhile: it has promised what it does not hold. It only shows its state, and
// copies what is committed from the leader, as far as consensus.HealTarget says.
func (a *Agent) heal(ctx context.Context, damage error) error {
	a.logger.Error("the log is damaged: this node does not vote until it is healed from its peers", "error", damage)
	if len(a.board.Members()) == 1 {
		return fmt.Errorf("%w: there is none: %w", logcopy.ErrUnhealable, damage)
	}
	log, err := seglog.Open(a.logOptions(true))
	if err != nil {
		if errors.Is(err, seglog.ErrCorrupt) {
			err = fmt.Errorf("%w, this node has to be rebuilt: %w", logcopy.ErrUnhealable, err)
		}
		return fmt.Errorf("open the damaged log: %w", err)
	}
	defer func() { _ = log.Close() }()
	if err := newHealer(a, log, damage).serve(ctx); err != nil {
		return err
	}
	a.logger.Info("the log is healed", "last", log.LastIndex())
	a.records.Healed(time.Now(), fmt.Sprintf("to entry %d, from its peers: %v", log.LastIndex(), damage))
	a.board.Update(func(s *status.Node) { s.LogState, s.LogDetail, s.Reason = status.LogOK, "", "" })
	return a.listen() // what served until here has ended
}

// healer is one healing.
type healer struct {
	a      *Agent
	damage error
	log    *seglog.Log
	logcopy.Healing
}

func newHealer(a *Agent, log *seglog.Log, damage error) *healer {
	healing, _ := log.Healing()
	h := &healer{a: a, damage: damage, log: log}
	h.Target, h.Log, h.Copied, h.Clock = consensus.NewHealTarget(healing.Promised), log, log.HardState().Commit, clock.Machine{}
	h.Others = a.others
	h.Progress = func(from cluster.NodeID) {
		h.say("copying from %s, entry %d of %d", a.board.Name(from), h.Copied, h.Until())
	}
	h.Waits = func() { h.say("waiting for a leader to copy from, has entry %d", h.Copied) }
	h.Failed = func(from cluster.NodeID, err error) {
		a.logger.Warn("heal the log: copy from a peer", "peer", a.board.Name(from), "next", h.Copied+1, "error", err)
	}
	return h
}

// others are the other members that this node knows.
func (a *Agent) others() (ids []cluster.NodeID) {
	for _, m := range a.board.Members() {
		if m.ID != a.self.ID {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// serve copies until the log is whole; what serves the peers and the status ends
// with it.
func (h *healer) serve(ctx context.Context) error {
	a := h.a
	copies := bulk.New(a.bulkConfig(h.log, func() uint64 { return 0 }, noEntries{}))
	h.Peers = copies
	ctx, done := a.departing.Context(ctx)
	defer done()
	eg, ctx := errgroup.WithContext(ctx)
	healed := false
	eg.Go(func() error { return a.peers.Run(ctx) })
	eg.Go(func() error { return a.router.Run(ctx) })
	eg.Go(func() error { return a.api.Run(ctx) })
	eg.Go(func() error { return a.runGossip(ctx) })
	eg.Go(func() error { return copies.Run(ctx) })
	eg.Go(func() error {
		hs, err := h.Run(ctx)
		if err != nil {
			return err
		}
		if err := h.log.FinishHealing(hs); err != nil {
			return fmt.Errorf("finish healing the log: %w", err)
		}
		healed = true
		done()
		return nil
	})
	_ = eg.Wait() // which of them has ended first says nothing
	if healed {
		return nil
	}
	return context.Cause(ctx)
}

// say shows where the healing is.
func (h *healer) say(format string, args ...any) {
	h.a.board.Update(func(s *status.Node) {
		s.LogState, s.LogDetail = status.LogRepairing, h.damage.Error()
		s.Reason = "the log was damaged: " + fmt.Sprintf(format, args...)
	})
}

// noEntries serves nothing: a log that is being healed is nobody's source.
type noEntries struct{}

var errHealing = errors.New("this node's log is being healed")

// Open implements bulk.Entries.
func (noEntries) Open() bulk.Reader { return noEntries{} }

// Close implements bulk.Reader.
func (noEntries) Close() {}

// ReadCommitted implements bulk.Reader.
func (noEntries) ReadCommitted(uint64, uint64) ([]seglog.Entry, bool, error) {
	return nil, false, errHealing
}

// Tail implements bulk.Entries.
func (noEntries) Tail(context.Context) (bulk.Tail, error) { return bulk.Tail{}, errHealing }
