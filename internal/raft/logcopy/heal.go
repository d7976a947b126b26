package logcopy

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/bulk"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/sys/clock"
)

// ErrUnhealable ends a node whose log no peer can heal.
var ErrUnhealable = errors.New("the log cannot be healed from the peers")

// HealNode is a node whose log is damaged. The node takes no part in Raft meanwhile, because it may have
// acknowledged entries that its log has lost.
type HealNode interface {
	// Others returns the other members that are known now.
	Others() []cluster.NodeID
	// Serve runs the services by which peers reach the node, and heal at the same time. It ends when heal ends.
	Serve(ctx context.Context, log *seglog.Log, heal func(ctx context.Context, log Log, peers Peers) error) error
	// Copies is called whenever something was copied: the log is copied up to entry copied, of until.
	Copies(from cluster.NodeID, copied, until uint64)
	// Waits is called while no node leads. Failed is called when a peer could not give what is needed.
	Waits(copied uint64)
	Failed(from cluster.NodeID, next uint64, err error)
}

// HealConfig is what Heal needs.
type HealConfig struct {
	Node  HealNode
	Clock clock.Clock
	// Log are the options with which the log is opened.
	Log seglog.Options
	// GroupBytesMax is that of Copy.
	GroupBytesMax int
}

// Heal heals a damaged log from the peers. It copies committed entries from the leader, as far as
// consensus.HealTarget says. last is the last index of the log after that.
func Heal(ctx context.Context, c HealConfig, damage error) (last uint64, err error) {
	if len(c.Node.Others()) == 0 {
		return 0, fmt.Errorf("%w: this node has no peers: %w", ErrUnhealable, damage)
	}
	c.Log.Heal = true
	log, err := seglog.Open(c.Log)
	if err != nil {
		if errors.Is(err, seglog.ErrCorrupt) {
			err = fmt.Errorf("%w, this node has to be rebuilt: %w", ErrUnhealable, err)
		}
		return 0, fmt.Errorf("open the damaged log: %w", err)
	}
	defer func() { _ = log.Close() }()
	err = c.Node.Serve(ctx, log, func(ctx context.Context, to Log, peers Peers) error {
		h := healing{node: c.Node, target: consensus.NewHealTarget(log.Healing().Promised)}
		h.Copy = Copy{
			Log: to, Peers: peers, Clock: c.Clock, Others: c.Node.Others, Copied: log.HardState().Commit, GroupBytesMax: c.GroupBytesMax,
			Progress: func(from cluster.NodeID) { c.Node.Copies(from, h.Copied, h.until) },
		}
		hs, err := h.run(ctx)
		if err != nil {
			return err
		}
		if err := log.FinishHealing(hs); err != nil {
			return fmt.Errorf("finish healing the log: %w", err)
		}
		return nil
	})
	return log.LastIndex(), err
}

// healing copies what a damaged log has lost.
type healing struct {
	Copy
	node   HealNode
	target consensus.HealTarget
}

// run copies until the log has everything that the node promised and everything that is committed. It returns
// the hard state with which the log takes part in Raft again.
func (h *healing) run(ctx context.Context) (seglog.HardState, error) {
	for {
		if leader, tail, ok := h.leader(ctx); ok {
			h.target.Aim(tail.Term, tail.Commit, tail.Last)
			h.until = h.target.Index()
			h.Progress(leader)
			if err := h.copyRound(ctx, leader); err != nil {
				return seglog.HardState{}, err
			}
			if h.Copied >= h.until {
				return h.target.HardState(h.Copied), nil
			}
		}
		if err := h.Clock.Wait(ctx, retry, nil); err != nil {
			return seglog.HardState{}, err
		}
	}
}

// leader asks the peers which of them leads, and where their logs begin.
func (h *healing) leader(ctx context.Context) (leader cluster.NodeID, best bulk.Tail, ok bool) {
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
		h.node.Waits(h.Copied)
	}
	return leader, best, ok
}

// copyRound copies what is needed: from the leader, and from the other peers if the leader cannot give it (its
// own log may be damaged, or purged). Committed entries are the same everywhere. An error of copyRound ends the
// healing.
func (h *healing) copyRound(ctx context.Context, leader cluster.NodeID) error {
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
			h.node.Failed(from, h.Copied+1, err)
		}
	}
	if compacted == len(sources) {
		return fmt.Errorf("%w, this node has to be rebuilt: no peer has entry %d any more", ErrUnhealable, h.Copied+1)
	}
	return nil
}
