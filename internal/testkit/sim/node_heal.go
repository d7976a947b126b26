package sim

import (
	"context"
	"errors"
	"log/slog"
	"syscall"

	"github.com/quorate/quorate/internal/agent/member"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/log/seglog"
	"github.com/quorate/quorate/internal/raft/logcopy"
	"github.com/quorate/quorate/internal/role"
)

// copyGroupBytes is so small that a copy is often cut off between two groups.
const copyGroupBytes = 8 << 10

// healer runs instead of the agent while the log is damaged: it shows its state to the peers, and copies
// committed entries from the leader.
type healer struct {
	*host
	log *seglog.Log
}

func (n *node) logOptions(indexed bool) seglog.Options {
	return seglog.Options{
		FS: n.disk.open(), Dir: "log", Identity: [16]byte{byte(n.id)}, Logger: slog.New(slog.DiscardHandler),
		Indexed: indexed, SegmentBytesMax: n.w.options.SegmentBytesMax, CacheBytesMax: n.w.options.CacheBytesMax,
	}
}

func (n *node) startHealer(damage error) error {
	n.log("heal", "begins: %v", damage)
	p, err := n.newHost(n.state(1).State)
	if err != nil {
		return err
	}
	h := &healer{host: p}
	n.healer = h
	h.life.start(func() {
		ctx, end := h.departing.Context(context.Background())
		defer end()
		_, err := logcopy.Heal(ctx, logcopy.HealConfig{Node: h, Clock: h.life, Log: n.logOptions(false), GroupBytesMax: copyGroupBytes}, damage)
		h.w.sched.after(0, func() { h.ended(err) })
	})
	return nil
}

// Serve implements logcopy.HealNode.
func (h *healer) Serve(ctx context.Context, log *seglog.Log, heal func(context.Context, logcopy.Log, logcopy.Peers) error) error {
	h.log = log
	copies, _ := h.n.copiesOf(log, h.life)
	h.life.start(func() { h.runGossip(h.status) })
	h.life.start(h.runDial)
	err := heal(ctx, slowLog{log, h.n, h.life}, copies)
	if err == nil {
		h.n.check.healed(h.n, log)
	}
	return err
}

// Others implements logcopy.HealNode.
func (h *healer) Others() []cluster.NodeID { return h.n.others() }

// Copies implements logcopy.HealNode.
func (h *healer) Copies(from cluster.NodeID, copied, until uint64) {
	h.n.log("heal", "copies from n%d, entry %d of %d", from, copied, until)
}

// Waits implements logcopy.HealNode.
func (h *healer) Waits(uint64) {}

// Failed implements logcopy.HealNode.
func (h *healer) Failed(from cluster.NodeID, _ uint64, err error) {
	h.n.log("heal", "copy from n%d: %v", from, err)
}

// ended goes on as what the node is after healing.
func (h *healer) ended(err error) {
	n := h.n
	if n.healer != h {
		return
	}
	n.endHealer()
	switch {
	case h.departing.Because() != nil:
		n.rotten = false
		n.persistExit(h.departing)
	case errors.Is(err, seglog.ErrFull), errors.Is(err, syscall.ENOSPC):
		n.log("heal", "cannot go on: %v", err)
		n.w.restartAgent(n)
	case err != nil:
		n.w.fail("heal", "n%d: %v", n.id, err)
	default:
		n.log("heal", "ends")
		n.startAgent()
	}
}

func (n *node) endHealer() {
	if h := n.healer; h != nil {
		n.healer = nil
		h.life.end()
	}
}

// status is what the node says of itself.
func (h *healer) status() status.Node {
	own := h.n.status()
	member.CompleteHealing(&own, h.log, h.mark.Of(h.n.uuid.String()))
	return own
}

// runGossip tells this node's status to every node that accepts it, while it has no agent.
func (p *host) runGossip(said func() status.Node) {
	send := func(own status.Node) error {
		for _, peer := range p.w.nodes {
			if peer == p.n {
				continue
			}
			p.w.net.send(p.n.id, peer.id, func() {
				if a := peer.agent; a != nil {
					a.life.run(func() {
						if admits(a.host, p.n, false) == nil {
							a.hear(own)
						}
					})
				}
			})
		}
		return nil
	}
	_ = p.board.Gossip(context.Background(), late{p.life}, said, send, func(status.Node, role.Peers) {})
}
