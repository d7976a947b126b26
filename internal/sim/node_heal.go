package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/quorate/quorate/internal/board"
	"github.com/quorate/quorate/internal/bulk"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/consensus"
	"github.com/quorate/quorate/internal/datadir"
	"github.com/quorate/quorate/internal/entry"
	"github.com/quorate/quorate/internal/logcopy"
	"github.com/quorate/quorate/internal/membership"
	"github.com/quorate/quorate/internal/seglog"
)

const (
	// healAskTimeout bounds the question to one peer, as in package logcopy.
	healAskTimeout = 3 * time.Second
	// copyGroupBytes is so little that a copy is cut off between two groups.
	copyGroupBytes = 8 << 10
)

// healer runs in the agent's place while the log is damaged: it shows its state
// to the peers, and copies what is committed from the leader.
type healer struct {
	n      *node
	w      *World
	life   *life
	log    *seglog.Log
	stages stages
	copy   logcopy.Healing
	mark   datadir.Mark
	left   *membership.Departure // why it cannot go on as it is; nil: it can
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
	if err := h.mark.Load(n.disk.files()); err != nil {
		return nil, errors.Join(err, h.log.Close())
	}
	healing, _ := h.log.Healing()
	h.stages.init(n, h.log, h.life, noEpoch)
	h.copy = logcopy.Healing{
		Copy:   copyPeers{n, h.life, h.log, h.stages, h.ask}.newCopy(h.log.HardState().Commit, h.progress),
		Target: consensus.NewHealTarget(healing.Promised), Waits: func() {}, Left: h.leaves,
		Failed: func(from cluster.NodeID, err error) { n.log("heal", "copy from n%d: %v", from, err) },
	}
	return h, nil
}

func (h *healer) run() {
	h.life.start(h.runGossip)
	if h.w.membersChange {
		h.life.start(h.runDial)
	}
	h.life.start(func() {
		hs, err := h.copy.Run(context.Background())
		if err == nil {
			err = h.log.FinishHealing(hs)
		}
		if h.left != nil {
			h.w.sched.after(0, h.leave)
			return
		}
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

func (h *healer) progress(from cluster.NodeID) {
	h.n.log("heal", "copies from n%d, entry %d of %d", from, h.copy.Copied, h.copy.Until())
}

// runDial has the members say whether this node is one still.
func (h *healer) runDial() {
	self := membership.Self{ID: h.n.id, Name: h.n.member.Name, Instance: h.n.instance, State: h.n.state(1).State}
	for {
		h.life.sleep(dialEvery/2 + around(h.n.rng, dialEvery/2))
		for _, peer := range h.w.nodes {
			if peer == h.n || peer.agent == nil || peer.stalledUntil > h.w.sched.now || !h.w.net.connected(h.n.id, peer.id) {
				continue
			}
			if r := peer.agent.welcome(h.n.identity()); r != nil && h.left == nil {
				h.left = membership.React(self, peer.member.Name, r).Departure
			}
		}
	}
}

// leaves is why the node cannot go on as it is.
func (h *healer) leaves() error {
	if h.left == nil {
		return nil
	}
	return h.left
}

func (h *healer) leave() {
	if h.n.healer == h {
		h.n.log("members", "cannot go on as it is: %v, %s", h.left, h.left.Instance)
		h.n.endHealer()
		h.n.rotten = false
		h.n.settle(*h.left)
	}
}

// healed starts the agent that takes part in Raft again.
func (n *node) healed(h *healer) {
	if n.healer == h {
		n.check.healed(n, h.log)
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
		own := h.n.status()
		own.LogFirst, own.LogLast, own.LogCommit = h.log.FirstIndex(), h.log.LastIndex(), h.log.HardState().Commit
		own.LogState, own.DurableMark = cluster.LogRepairing, h.mark.Of(h.n.uuid.String()).Index
		for _, peer := range h.w.nodes {
			if peer != h.n {
				h.w.net.send(h.n.id, peer.id, func() {
					if a := peer.agent; a != nil {
						a.life.run(func() { a.hear(own) })
					}
				})
			}
		}
		h.life.sleep(board.GossipInterval)
	}
}

// tail answers a peer that heals its log: bulk.Entries.Tail. What a leader has in
// memory alone counts: others may have stored it before its own disk has.
func (a *agent) tail() (bulk.Tail, error) {
	before := a.loop.role
	ctx, cancel := a.life.WithTimeout(context.Background(), healAskTimeout)
	defer cancel()
	if err := a.loop.barriers.Wait(ctx); err != nil {
		return bulk.Tail{}, err
	}
	return bulk.Tail{
		Term: before.Term, Leading: before.Leading && a.loop.role == before,
		First: a.log.FirstIndex(), Last: a.group.LastIndex(), Commit: a.group.Committed().Mark().Index,
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

// copyPeers is package bulk to whoever copies a log.
type copyPeers struct {
	n      *node
	life   *life
	log    *seglog.Log
	stages stages
	// ask has f run in a peer's agent and brings back what it returns, or nil.
	ask func(peer *node, f func(a *agent) any) any
}

// newCopy is what a node that heals, or joins, copies with.
func (p copyPeers) newCopy(copied uint64, progress func(cluster.NodeID)) logcopy.Copy {
	others := func() (ids []cluster.NodeID) {
		for _, peer := range p.n.w.nodes {
			if peer != p.n {
				ids = append(ids, peer.id)
			}
		}
		return ids
	}
	return logcopy.Copy{
		Log: slowLog{p.log, p.n, p.life}, Peers: p, Clock: p.life, Others: others, Copied: copied, Progress: progress, GroupBytesMax: copyGroupBytes,
	}
}

var errNoAnswer = errors.New("no answer")

// AskTail implements logcopy.Peers.
func (p copyPeers) AskTail(_ context.Context, peer cluster.NodeID) (bulk.Tail, error) {
	got, ok := p.ask(p.n.w.node(peer), func(a *agent) any {
		if got, err := a.tail(); err == nil {
			return got
		}
		return nil
	}).(bulk.Tail)
	if !ok {
		return got, errNoAnswer
	}
	return got, nil
}

// fetched is what a peer returns of its committed log.
type fetched struct {
	entries []seglog.Entry
	err     error
}

// FetchEntries implements logcopy.Peers.
func (p copyPeers) FetchEntries(_ context.Context, from cluster.NodeID, index uint64, f func(seglog.Entry) error) error {
	for {
		at := index
		got, answered := p.ask(p.n.w.node(from), func(a *agent) any {
			found, _, err := a.committedLog().ReadCommitted(at, copyGroupBytes)
			return fetched{found, err}
		}).(fetched)
		switch {
		case !answered:
			return errNoAnswer
		case got.err != nil || len(got.entries) == 0:
			return got.err
		}
		for _, e := range got.entries {
			if err := f(e); err != nil {
				return err
			}
			index = e.Index + 1
		}
	}
}

// FetchStage implements logcopy.Peers.
func (p copyPeers) FetchStage(ctx context.Context, s entry.Staged, from cluster.NodeID) error {
	return p.stages.FetchStage(ctx, s, from)
}

// slowLog is a log whose disk takes its time.
type slowLog struct {
	*seglog.Log
	n    *node
	life *life
}

// Append implements logcopy.Log.
func (l slowLog) Append(entries []seglog.Entry, hs *seglog.HardState) error {
	l.life.sleep(l.n.disk.appendTime(l.n.w.sched.now))
	return l.Log.Append(entries, hs)
}
