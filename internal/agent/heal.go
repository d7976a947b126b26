package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorate/quorate/internal/bulk"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/config"
	"github.com/quorate/quorate/internal/entry"
	"github.com/quorate/quorate/internal/seglog"
)

const (
	// healRetry is the pause before a leader is looked for again.
	healRetry = 500 * time.Millisecond
	// healAskTimeout bounds the question to one peer whether it leads.
	healAskTimeout = 3 * time.Second
	// A group of what was fetched is written at once. The memory of a repair is
	// this, and one entry.
	healGroupBytes   = 4 << 20
	healGroupEntries = 1024
)

// errUnhealable ends a node whose log no peer can heal.
var errUnhealable = errors.New("the log cannot be healed from the peers")

// Run runs nodes until ctx ends or something fails: one after the other in the
// same data directory, because one whose log turns out to be damaged while it
// runs ends, and is started again to be healed.
func Run(ctx context.Context, cfg config.Config, logger *slog.Logger, version string) error {
	for {
		a, err := New(cfg, logger, version)
		if err != nil {
			return err
		}
		err = a.Run(ctx)
		if ctx.Err() != nil || !errors.Is(err, seglog.ErrCorrupt) || errors.Is(err, errUnhealable) {
			return err
		}
		logger.Error("the log turned out to be damaged: starting again to heal it", "error", err)
	}
}

// heal brings a damaged log back from the peers. This node takes no part in Raft
// meanwhile: it has promised what it does not hold. It only shows its state, and
// copies what is committed from the leader.
//
// It is whole again when it holds everything that it can ever have acknowledged.
// A leader of a later term counts nothing that this node said before, so it is
// enough to have what is committed. The leader of the very term in which this
// node was last may count entries as stored here that are not committed so far:
// then it is enough once all that this leader had when it was first asked is
// committed, and copied.
func (a *Agent) heal(ctx context.Context, damage error) error {
	a.logger.Error("the log is damaged: this node does not vote until it is healed from its peers", "error", damage)
	if len(a.cfg.Members) == 1 {
		return fmt.Errorf("%w: there is none: %w", errUnhealable, damage)
	}
	log, err := seglog.Open(a.logOptions(true))
	if err != nil {
		return fmt.Errorf("%w, this node has to be rebuilt: %w", errUnhealable, err)
	}
	defer func() { _ = log.Close() }()
	h := &healer{a: a, log: log, damage: damage}
	h.promised, _ = log.Healing()
	if err := h.run(ctx); err != nil {
		return err
	}
	a.logger.Info("the log is healed", "last", log.LastIndex())
	a.board.update(func(s *cluster.NodeStatus) { s.LogState, s.LogDetail, s.Reason = cluster.LogOK, "", "" })
	return a.listen() // what served until here has ended
}

// healer is one healing.
type healer struct {
	a        *Agent
	log      *seglog.Log
	damage   error
	promised seglog.Healing
	bulk     *bulk.Bulk
	// copied is the last index that is known to be as committed.
	copied uint64
	// term and target say which leader was asked first, and up to which index its
	// entries have to be copied.
	term, target uint64
	pending      []seglog.Entry
	bytes        int
}

// run copies until the log is whole; what serves the peers and the status ends
// with it.
func (h *healer) run(ctx context.Context) error {
	a := h.a
	h.bulk = bulk.New(a.bulkConfig(h.log, noEntries{}))
	h.copied = h.log.HardState().Commit
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
		leader, tail, ok := h.leader(ctx)
		if ok {
			h.aim(tail)
			h.say("copying from %s, entry %d of %d", h.a.board.name(leader), h.copied, h.target)
			err := h.copyFrom(ctx, leader)
			switch {
			case errors.Is(err, seglog.ErrCompacted):
				return fmt.Errorf("%w, this node has to be rebuilt: nobody has entry %d any more: %w", errUnhealable, h.copied+1, err)
			case errors.Is(err, seglog.ErrFailed):
				return fmt.Errorf("heal the log: %w", err)
			case err != nil:
				h.a.logger.Warn("heal the log: copy from the leader", "leader", h.a.board.name(leader), "error", err)
			}
			if h.copied >= h.target {
				return h.finish(tail.Term)
			}
		}
		select {
		case <-time.After(healRetry):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// leader asks the peers who leads.
func (h *healer) leader(ctx context.Context) (leader cluster.NodeID, tail bulk.Tail, ok bool) {
	for _, m := range h.a.cfg.ClusterMembers() {
		if m.ID == h.a.self.ID {
			continue
		}
		askCtx, cancel := context.WithTimeout(ctx, healAskTimeout)
		t, err := h.bulk.AskTail(askCtx, m.ID)
		cancel()
		if err == nil && t.Leading && t.Term >= tail.Term {
			leader, tail, ok = m.ID, t, true
		}
	}
	switch {
	case !ok:
		h.say("waiting for a leader to copy from, has entry %d", h.copied)
	case tail.Term < h.promised.Promised.Term:
		h.say("waiting for a leader of term %d or later, %s leads in term %d",
			h.promised.Promised.Term, h.a.board.name(leader), tail.Term)
		ok = false
	}
	return leader, tail, ok
}

// aim sets what has to be copied from the leader of a term that was not seen
// before.
func (h *healer) aim(tail bulk.Tail) {
	if tail.Term == h.term {
		return
	}
	h.term, h.target = tail.Term, tail.Commit
	if tail.Term == h.promised.Promised.Term {
		h.target = tail.Last
	}
}

// copyFrom copies everything that is committed on a leader.
func (h *healer) copyFrom(ctx context.Context, leader cluster.NodeID) error {
	h.pending, h.bytes = nil, 0
	err := h.bulk.FetchEntries(ctx, leader, h.copied+1, func(e seglog.Entry) error {
		if err := h.add(ctx, leader, e); err != nil {
			return err
		}
		if h.copied >= h.target && len(h.pending) == 0 {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	return h.flush(leader)
}

// errEnough ends a copy that has reached its target: the leader's log goes on.
var errEnough = errors.New("copied what is needed")

// add takes the next committed entry: it is there already, or is written with
// others, or at once if it names a stage.
func (h *healer) add(ctx context.Context, leader cluster.NodeID, e seglog.Entry) error {
	if term, err := h.log.Term(e.Index); len(h.pending) == 0 && err == nil && term == e.Term {
		h.copied = e.Index
		return nil
	}
	s, staged := stagedOf(e)
	if staged {
		if err := h.flush(leader); err != nil {
			return err
		}
		if err := h.bulk.FetchStage(ctx, s, leader); err != nil {
			return err
		}
	}
	h.pending, h.bytes = append(h.pending, e), h.bytes+len(e.Data)
	if staged || h.bytes >= healGroupBytes || len(h.pending) >= healGroupEntries || e.Index >= h.target {
		return h.flush(leader)
	}
	return nil
}

func (h *healer) flush(leader cluster.NodeID) error {
	if len(h.pending) == 0 {
		return nil
	}
	if err := h.log.Append(h.pending, nil); err != nil {
		return err
	}
	h.copied = h.pending[len(h.pending)-1].Index
	h.pending, h.bytes = nil, 0
	h.say("copying from %s, entry %d of %d", h.a.board.name(leader), h.copied, h.target)
	return nil
}

// finish makes the log one that takes part in Raft again.
func (h *healer) finish(term uint64) error {
	hs := h.promised.Promised
	if term > hs.Term {
		hs.Term, hs.Vote = term, 0
	}
	hs.Commit = h.copied
	if err := h.log.FinishHealing(hs); err != nil {
		return fmt.Errorf("finish healing the log: %w", err)
	}
	return nil
}

func stagedOf(e seglog.Entry) (entry.Staged, bool) {
	if e.Type != 0 {
		return entry.Staged{}, false
	}
	h, body, err := entry.Parse(e.Data)
	if err != nil || h.Kind != entry.KindStaged {
		return entry.Staged{}, false
	}
	s, err := entry.ParseStaged(h, body)
	return s, err == nil
}

// noEntries serves nothing: a log that is being healed is nobody's source.
type noEntries struct{}

var errHealing = errors.New("this node's log is being healed")

// ReadCommitted implements bulk.Entries.
func (noEntries) ReadCommitted(uint64, uint64) ([]seglog.Entry, bool, error) {
	return nil, false, errHealing
}

// Tail implements bulk.Entries.
func (noEntries) Tail(context.Context) (bulk.Tail, error) { return bulk.Tail{}, errHealing }
