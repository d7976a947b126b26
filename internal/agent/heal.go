package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorate/quorate/internal/bulk"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/consensus"
	"github.com/quorate/quorate/internal/seglog"
)

const (
	// healRetry is the pause before a leader is looked for again.
	healRetry = 500 * time.Millisecond
	// healAskTimeout bounds the question to one peer whether it leads.
	healAskTimeout = 3 * time.Second
	// openAttempts is how often a log is opened that the disk does not give back,
	// openRetry the pause in between.
	openAttempts = 4
	openRetry    = 2 * time.Second
)

// errUnhealable ends a node whose log no peer can heal.
var errUnhealable = errors.New("the log cannot be healed from the peers")

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
		if a.settled && ctx.Err() == nil {
			continue // as what it is now
		}
		if ctx.Err() != nil || !errors.Is(err, seglog.ErrCorrupt) || errors.Is(err, errUnhealable) {
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
	if len(a.board.list()) == 1 {
		return fmt.Errorf("%w: there is none: %w", errUnhealable, damage)
	}
	log, err := seglog.Open(a.logOptions(true))
	if err != nil {
		if errors.Is(err, seglog.ErrCorrupt) {
			err = fmt.Errorf("%w, this node has to be rebuilt: %w", errUnhealable, err)
		}
		return fmt.Errorf("open the damaged log: %w", err)
	}
	defer func() { _ = log.Close() }()
	if err := newHealer(a, log, damage).run(ctx); err != nil {
		return err
	}
	a.logger.Info("the log is healed", "last", log.LastIndex())
	a.noteHealed(time.Now(), fmt.Sprintf("to entry %d, from its peers: %v", log.LastIndex(), damage))
	a.board.update(func(s *cluster.NodeStatus) { s.LogState, s.LogDetail, s.Reason = cluster.LogOK, "", "" })
	return a.listen() // what served until here has ended
}

// healer is one healing.
type healer struct {
	a      *Agent
	damage error
	target consensus.HealTarget
	// askTail asks a peer where its log is.
	askTail func(context.Context, cluster.NodeID) (bulk.Tail, error)
	logCopy
}

func newHealer(a *Agent, log *seglog.Log, damage error) *healer {
	healing, _ := log.Healing()
	h := &healer{a: a, damage: damage, target: consensus.NewHealTarget(healing.Promised)}
	h.log, h.copied = log, log.HardState().Commit
	h.progress = func(from cluster.NodeID) {
		h.say("copying from %s, entry %d of %d", a.board.name(from), h.copied, h.target.Index())
	}
	return h
}

// run copies until the log is whole; what serves the peers and the status ends
// with it.
func (h *healer) run(ctx context.Context) error {
	a := h.a
	h.bulk = bulk.New(a.bulkConfig(h.log, func() uint64 { return 0 }, noEntries{}))
	h.askTail = h.bulk.AskTail
	ctx, done := context.WithCancel(ctx)
	defer done()
	eg, ctx := errgroup.WithContext(ctx)
	healed := false
	eg.Go(func() error { return a.peers.Run(ctx) })
	eg.Go(func() error { return a.router.Run(ctx) })
	eg.Go(func() error { return a.api.Run(ctx) })
	eg.Go(func() error { return a.runGossip(ctx) })
	eg.Go(func() error { return h.bulk.Run(ctx) })
	eg.Go(func() error {
		defer done()
		err := h.copyAll(ctx)
		healed = err == nil
		return err
	})
	err := eg.Wait()
	if healed {
		return nil
	}
	return err
}

// say shows where the healing is.
func (h *healer) say(format string, args ...any) {
	h.a.board.update(func(s *cluster.NodeStatus) {
		s.LogState, s.LogDetail = cluster.LogRepairing, h.damage.Error()
		s.Reason = "the log was damaged: " + fmt.Sprintf(format, args...)
	})
}

func (h *healer) copyAll(ctx context.Context) error {
	for {
		if l := h.a.leaving.Load(); l != nil {
			return l
		}
		leader, tail, ok := h.leader(ctx)
		if ok {
			h.target.Aim(tail.Term, tail.Commit, tail.Last)
			h.until = h.target.Index()
			h.progress(leader)
			if err := h.copyRound(ctx, leader); err != nil {
				return err
			}
			if h.copied >= h.target.Index() {
				return h.finish()
			}
		}
		select {
		case <-time.After(healRetry):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// leader asks the peers who leads, and where their logs begin.
func (h *healer) leader(ctx context.Context) (leader cluster.NodeID, tail bulk.Tail, ok bool) {
	for _, m := range h.a.board.list() {
		if m.ID == h.a.self.ID {
			continue
		}
		askCtx, cancel := context.WithTimeout(ctx, healAskTimeout)
		t, err := h.askTail(askCtx, m.ID)
		cancel()
		if err != nil {
			continue
		}
		h.copied = consensus.HealStart(h.copied, t.First, h.log.LastIndex())
		if t.Leading && t.Term >= tail.Term {
			leader, tail, ok = m.ID, t, true
		}
	}
	if !ok {
		h.say("waiting for a leader to copy from, has entry %d", h.copied)
	}
	return leader, tail, ok
}

// copyRound copies what is needed: from the leader, and where that cannot give it
// (its own log may be damaged, or purged) from the others. What is committed is
// the same everywhere. It returns an error that ends the healing.
func (h *healer) copyRound(ctx context.Context, leader cluster.NodeID) error {
	sources := []cluster.NodeID{leader}
	for _, m := range h.a.board.list() {
		if m.ID != leader && m.ID != h.a.self.ID {
			sources = append(sources, m.ID)
		}
	}
	compacted := 0
	for _, id := range sources {
		if h.copied >= h.target.Index() {
			return nil
		}
		err := h.copyFrom(ctx, id)
		switch {
		case errors.Is(err, seglog.ErrFailed):
			return fmt.Errorf("heal the log: %w", err)
		case errors.Is(err, seglog.ErrCompacted):
			compacted++
		}
		if err != nil && ctx.Err() == nil {
			h.a.logger.Warn("heal the log: copy from a peer", "peer", h.a.board.name(id), "next", h.copied+1, "error", err)
		}
	}
	if compacted == len(sources) {
		return fmt.Errorf("%w, this node has to be rebuilt: nobody has entry %d any more", errUnhealable, h.copied+1)
	}
	return nil
}

// finish makes the log one that takes part in Raft again.
func (h *healer) finish() error {
	if err := h.log.FinishHealing(h.target.HardState(h.copied)); err != nil {
		return fmt.Errorf("finish healing the log: %w", err)
	}
	return nil
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
