package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/quorate/quorate/internal/agent/board"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/bulk"
	"github.com/quorate/quorate/internal/raft/consensus"
	"github.com/quorate/quorate/internal/raft/logcopy"
)

// copyGroupBytes is so little that a copy is cut off between two groups.
const copyGroupBytes = 8 << 10

// healer runs in the agent's place while the log is damaged: it shows its state
// to the peers, and copies what is committed from the leader.
type healer struct {
	*host
	log    *seglog.Log
	stages stages
	copy   logcopy.Healing
}

func (n *node) logOptions(heal bool) seglog.Options {
	return seglog.Options{
		FS: n.disk.open(), Dir: "log", Identity: [16]byte{byte(n.id)}, Logger: slog.New(slog.DiscardHandler), Heal: heal,
		SegmentBytesMax: n.w.options.SegmentBytesMax, CacheBytesMax: n.w.options.CacheBytesMax,
	}
}

func newHealer(n *node, damage error) (*healer, error) {
	n.log("heal", "begins: %v", damage)
	p, err := n.newHost(n.state(1).State)
	if err != nil {
		return nil, err
	}
	h := &healer{host: p}
	if h.log, err = seglog.Open(n.logOptions(true)); err != nil {
		return nil, fmt.Errorf("open the damaged log: %w", err)
	}
	healing, _ := h.log.Healing()
	h.stages.init(n, h.log, h.life, noEpoch, nil)
	h.copy = logcopy.Healing{
		Copy: logcopy.Copy{
			Log: slowLog{h.log, n, h.life}, Peers: h.stages, Clock: h.life, Others: n.others, Copied: h.log.HardState().Commit,
			Progress: h.progress, GroupBytesMax: copyGroupBytes,
		},
		Target: consensus.NewHealTarget(healing.Promised), Waits: func() {},
		Failed: func(from cluster.NodeID, err error) { n.log("heal", "copy from n%d: %v", from, err) },
	}
	return h, nil
}

func (h *healer) run() {
	h.life.start(func() { h.n.gossip(h.life, h.status) })
	h.life.start(h.runDial)
	h.life.start(func() {
		ctx, end := h.departing.Context(context.Background())
		defer end()
		hs, err := h.copy.Run(ctx)
		if err == nil {
			err = h.log.FinishHealing(hs)
		}
		if h.departing.Because() != nil {
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

func (h *healer) leave() {
	if h.n.healer == h {
		h.n.endHealer()
		h.n.rotten = false
		h.n.settle(h.departing)
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

// status is what it says of itself.
func (h *healer) status() status.Node {
	own := h.n.status()
	own.LogFirst, own.LogLast, own.LogCommit = h.log.FirstIndex(), h.log.LastIndex(), h.log.HardState().Commit
	own.LogState, own.DurableMark = status.LogRepairing, h.mark.Of(h.n.uuid.String()).Index
	return own
}

// gossip tells all that take this node for what it is how it is, while it has no agent.
func (n *node) gossip(l *life, said func() status.Node) {
	for {
		own := said()
		for _, peer := range n.w.nodes {
			if peer == n {
				continue
			}
			n.w.net.send(n.id, peer.id, func() {
				if a := peer.agent; a != nil {
					a.life.run(func() {
						if admits(a.host, n, false) == nil {
							a.hear(own)
						}
					})
				}
			})
		}
		l.sleep(board.GossipInterval)
	}
}

// entries is a reader of the committed log.
type entries struct{ committedLog }

// Close implements bulk.Reader: the log is the agent's.
func (e entries) Close() {}

// agentEntries shows the committed log to a peer that copies it.
type agentEntries struct{ *agent }

// Open implements bulk.Entries.
func (e agentEntries) Open() bulk.Reader { return entries{e.committedLog()} }

// Tail implements bulk.Entries. What a leader has in memory alone counts: others may have
// stored it before its own disk has.
func (e agentEntries) Tail(ctx context.Context) (bulk.Tail, error) {
	before := e.loop.driver.Role()
	ctx, cancel := e.life.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := e.loop.barriers.Wait(ctx); err != nil {
		return bulk.Tail{}, err
	}
	return bulk.Tail{
		Term: before.Term, Leading: before.Leading && e.loop.driver.Role() == before,
		First: e.log.FirstIndex(), Last: e.group.LastIndex(), Commit: e.group.Committed().Mark().Index,
	}, nil
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
