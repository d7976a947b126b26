package logcopy

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/bulk"
	"github.com/quorate/quorate/internal/raft/consensus"
)

// ErrUnhealable ends a node whose log no peer can heal.
var ErrUnhealable = errors.New("the log cannot be healed from the peers")

// Healing copies what a damaged log has lost.
type Healing struct {
	Copy
	Target consensus.HealTarget
	// Waits is called while nobody leads, Failed when a peer could not give what is needed.
	Waits  func()
	Failed func(from cluster.NodeID, err error)
}

// Run copies until the log has all that it promised and all that is committed. It returns the
// hard state with which the log takes part in Raft again.
func (h *Healing) Run(ctx context.Context) (seglog.HardState, error) {
	for {
		if leader, tail, ok := h.leader(ctx); ok {
			h.Target.Aim(tail.Term, tail.Commit, tail.Last)
			h.until = h.Target.Index()
			h.Progress(leader)
			if err := h.copyRound(ctx, leader); err != nil {
				return seglog.HardState{}, err
			}
			if h.Copied >= h.until {
				return h.Target.HardState(h.Copied), nil
			}
		}
		if err := h.Clock.Wait(ctx, retry, nil); err != nil {
			return seglog.HardState{}, err
		}
	}
}

// leader asks the peers who leads, and where their logs begin.
func (h *Healing) leader(ctx context.Context) (leader cluster.NodeID, best bulk.Tail, ok bool) {
	for _, peer := range h.Others() {
		t, err := h.ask(ctx, peer)
		if err != nil {
			continue
		}
		h.Copied = consensus.HealStart(h.Copied, t.First, h.Log.LastIndex())
		if t.Leading && t.Term >= best.Term {
			leader, best, ok = peer, t, true
		}
	}
	if !ok {
		h.Waits()
	}
	return leader, best, ok
}

// copyRound copies what is needed: from the leader, and where that cannot give it
// (its own log may be damaged, or purged) from the others. What is committed is
// the same everywhere. It returns an error that ends the healing.
func (h *Healing) copyRound(ctx context.Context, leader cluster.NodeID) error {
	sources := []cluster.NodeID{leader}
	for _, peer := range h.Others() {
		if peer != leader {
			sources = append(sources, peer)
		}
	}
	compacted := 0
	for _, from := range sources {
		if h.Copied >= h.until {
			return nil
		}
		err := h.copyFrom(ctx, from)
		switch {
		case errors.Is(err, seglog.ErrFailed):
			return fmt.Errorf("heal the log: %w", err)
		case errors.Is(err, seglog.ErrCompacted):
			compacted++
		}
		if err != nil && ctx.Err() == nil {
			h.Failed(from, err)
		}
	}
	if compacted == len(sources) {
		return fmt.Errorf("%w, this node has to be rebuilt: nobody has entry %d any more", ErrUnhealable, h.Copied+1)
	}
	return nil
}
