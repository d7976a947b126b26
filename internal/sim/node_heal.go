package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/consensus"
	"github.com/quorate/quorate/internal/entry"
	"github.com/quorate/quorate/internal/seglog"
)

// Times and bounds of a healing, as package agent has them, but for groups that
// are short enough to be cut off between two.
const (
	healRetry      = 500 * time.Millisecond
	healAskTimeout = 3 * time.Second
	healBytesMax   = 8 << 10
)

// healer runs in the agent's place while the log is damaged: it shows its state
// to the peers, and copies what is committed from the leader.
type healer struct {
	n      *node
	w      *World
	life   *life
	log    *seglog.Log
	stages stages
	target consensus.HealTarget
	// copied is the last index that is known to be as committed.
	copied  uint64
	pending []seglog.Entry
}

func (n *node) logOptions(heal bool) seglog.Options {
	return seglog.Options{
		FS: n.disk.open(), Dir: "log", Identity: [16]byte{byte(n.id)}, Logger: slog.New(slog.DiscardHandler), Heal: heal,
		SegmentBytesMax: n.w.options.SegmentBytesMax, CacheBytesMax: n.w.options.CacheBytesMax,
	}
}

func newHealer(n *node, damage error) (*healer, error) {
	n.log("heal", "begins: %v", damage)
	h := &healer{n: n, w: n.w, life: &life{n: n}}
	var err error
	if h.log, err = seglog.Open(n.logOptions(true)); err != nil {
		return nil, fmt.Errorf("open the damaged log: %w", err)
	}
	healing, _ := h.log.Healing()
	h.target, h.copied = consensus.NewHealTarget(healing.Promised), h.log.HardState().Commit
	h.stages.init(n, h.log, h.life)
	return h, nil
}

func (h *healer) run() {
	h.life.start(h.runGossip)
	h.life.start(func() {
		err := h.copyAll()
		if errors.Is(err, seglog.ErrFull) {
			h.w.sched.after(0, func() { h.n.killAgent(err.Error()); h.w.restartAgent(h.n) })
			return
		}
		if err != nil {
			h.w.fail("heal", "n%d: %v", h.n.id, err)
		}
		h.w.sched.after(0, func() { h.n.healed(h) })
	})
}

// healed starts the agent that takes part in Raft again.
func (n *node) healed(h *healer) {
	if n.healer == h {
		n.w.check.healed(n, h.log)
		n.log("heal", "ends with entry %d", h.log.LastIndex())
		n.endHealer()
		n.startAgent()
	}
}

func (n *node) endHealer() {
	if h := n.healer; h != nil {
		n.healer = nil
		h.life.end()
		_ = h.log.Close()
	}
}

func (h *healer) runGossip() {
	for {
		own := status{
			role: cluster.RoleStarting, logLast: h.log.LastIndex(), logCommit: h.log.HardState().Commit,
			logFirst: h.log.FirstIndex(), logState: cluster.LogRepairing, durable: h.n.mark.Index,
		}
		for _, peer := range h.w.nodes {
			if peer != h.n {
				h.w.net.send(h.n.id, peer.id, func() {
					if a := peer.agent; a != nil {
						a.life.run(func() { a.board.received(h.n.id, own) })
					}
				})
			}
		}
		h.life.sleep(gossipInterval)
	}
}

func (h *healer) copyAll() error {
	for {
		if leader, tail, ok := h.leader(); ok {
			h.target.Aim(tail.term, tail.commit, tail.last)
			h.n.log("heal", "copies from n%d of term %d, entry %d of %d", leader.id, tail.term, h.copied, h.target.Index())
			if err := h.copyRound(leader); err != nil {
				return err
			}
			if h.copied >= h.target.Index() {
				return h.log.FinishHealing(h.target.HardState(h.copied))
			}
		}
		h.life.sleep(healRetry)
	}
}

// tail is what a node says of its log.
type tail struct {
	term, first, last, commit uint64
	leading                   bool
}

// tail answers a peer that heals its log: bulk.Entries.Tail. What a leader has in
// memory alone counts: others may have stored it before its own disk has.
func (a *agent) tail() (tail, error) {
	before := a.loop.role
	ctx, cancel := a.life.WithTimeout(context.Background(), healAskTimeout)
	defer cancel()
	if err := a.loop.barrier(ctx); err != nil {
		return tail{}, err
	}
	return tail{
		term: before.Term, leading: before.Leading && a.loop.role == before,
		first: a.log.FirstIndex(), last: a.group.LastIndex(), commit: a.group.Committed().Mark().Index,
	}, nil
}

// ask has f run in a peer's agent and brings back what it returns.
func (h *healer) ask(peer *node, f func(a *agent) any) (answer any) {
	done := signal{}
	h.w.net.send(h.n.id, peer.id, func() {
		a := peer.agent
		if a == nil {
			return
		}
		a.life.run(func() {
			a.life.start(func() {
				got := f(a)
				h.w.net.send(peer.id, h.n.id, func() {
					h.life.run(func() { answer = got; done.fire() })
				})
			})
		})
	})
	h.life.await(healAskTimeout, &done)
	return answer
}

// leader asks the peers who leads, and where their logs begin.
func (h *healer) leader() (leader *node, best tail, ok bool) {
	for _, peer := range h.w.nodes {
		if peer == h.n {
			continue
		}
		got, answered := h.ask(peer, func(a *agent) any {
			if got, err := a.tail(); err == nil {
				return got
			}
			return nil
		}).(tail)
		if !answered {
			continue
		}
		h.copied = consensus.HealStart(h.copied, got.first, h.log.LastIndex())
		if got.leading && got.term >= best.term {
			leader, best, ok = peer, got, true
		}
	}
	return leader, best, ok
}

// fetched is what a leader returns of its committed log.
type fetched struct {
	entries []seglog.Entry
	err     error
}

var errNoAnswer = errors.New("no answer")

// copyRound copies what is needed: from the leader, and where that cannot give it
// from the others. It returns an error that ends the healing.
func (h *healer) copyRound(leader *node) error {
	compacted := 0
	sources := append([]*node{leader}, slices.DeleteFunc(slices.Clone(h.w.nodes), func(n *node) bool { return n == leader || n == h.n })...)
	for _, from := range sources {
		if h.copied >= h.target.Index() {
			return nil
		}
		err := h.copyFrom(from)
		switch {
		case errors.Is(err, seglog.ErrFailed):
			return err
		case errors.Is(err, seglog.ErrCompacted):
			compacted++
		}
		if err != nil {
			h.n.log("heal", "copy from n%d: %v", from.id, err)
		}
	}
	if compacted == len(sources) {
		return fmt.Errorf("nobody has entry %d any more", h.copied+1)
	}
	return nil
}

// copyFrom copies what is committed on a peer, up to the target.
func (h *healer) copyFrom(leader *node) error {
	h.pending = nil
	for h.copied < h.target.Index() {
		index := h.copied + 1
		got, answered := h.ask(leader, func(a *agent) any {
			found, ok, err := a.committedLog().ReadCommitted(index, healBytesMax)
			if !ok && err == nil {
				err = errNoAnswer // not committed so far
			}
			return fetched{found, err}
		}).(fetched)
		if !answered {
			return errNoAnswer
		}
		if got.err != nil {
			return got.err
		}
		for _, e := range got.entries {
			if err := h.add(leader, e); err != nil {
				return err
			}
			if h.copied+uint64(len(h.pending)) >= h.target.Index() {
				break
			}
		}
		if err := h.flush(); err != nil {
			return err
		}
	}
	return nil
}

// add takes the next committed entry: it is there already, or is written with
// others, or at once if it names a stage.
func (h *healer) add(leader *node, e seglog.Entry) error {
	if term, err := h.log.Term(e.Index); len(h.pending) == 0 && err == nil && term == e.Term {
		h.copied = e.Index
		return nil
	}
	id, staged := stagedOf(e)
	if staged {
		if err := h.flush(); err != nil {
			return err
		}
		h.fetchStage(leader, id)
		if !h.log.HasStage(id) {
			return fmt.Errorf("fetch stage %v: %w", id, errNoAnswer)
		}
	}
	h.pending = append(h.pending, e)
	if staged {
		return h.flush()
	}
	return nil
}

func (h *healer) fetchStage(leader *node, id entry.StageID) {
	if !h.log.HasStage(id) {
		h.ask(leader, func(a *agent) any { return a.pushStage(context.Background(), h.n, id, &signal{}) })
	}
}

func (h *healer) flush() error {
	if len(h.pending) == 0 {
		return nil
	}
	h.life.sleep(h.n.disk.appendTime(h.w.sched.now))
	if err := h.log.Append(h.pending, nil); err != nil {
		return err
	}
	h.copied = h.pending[len(h.pending)-1].Index
	h.pending = nil
	return nil
}

// stagedOf returns the stage that an entry names.
func stagedOf(e seglog.Entry) (id entry.StageID, ok bool) {
	if e.Type != 0 {
		return id, false
	}
	s, ok := entry.StagedIn(e.Data)
	return s.ID, ok
}
