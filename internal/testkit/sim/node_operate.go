package sim

import (
	"context"
	"errors"
	"time"

	"github.com/quorate/quorate/internal/agent/primary"
	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/mysql/replay"
)

// mysqldHost is the part of a node around its mysqld. It implements member.Host.
type mysqldHost struct{ *agent }

// Durable and the methods below implement member.Host.
func (h mysqldHost) Durable() replay.Mark          { return h.durable() }
func (h mysqldHost) CatchingUp(string)             {}
func (h mysqldHost) CaughtUp(int64, time.Duration) {}

// Judged implements member.Host.
func (h mysqldHost) Judged(v replay.Verdict) {
	if v.Refused != "" {
		h.n.check.refused(h.n, v)
		return
	}
	h.n.log("judge", "mysqld holds the log up to %d, no-ops %s", v.Index, v.Done)
}

// Settled implements member.Host.
func (h mysqldHost) Settled(term, _ uint64, acknowledged int, _ time.Duration) {
	h.n.check.settled(h.agent, h.epoch)
	h.w.settles.Kept++
	if acknowledged > 0 {
		h.w.settles.Late++
	}
	h.n.log("settled", "term %d: %d acknowledged", term, acknowledged)
}

// AskTarget implements member.Host.
func (h mysqldHost) AskTarget(ctx context.Context, to cluster.NodeID, o *primary.Order, index, term uint64) error {
	within := o.Left()
	_, err := callAgent(ctx, h.life, h.known, h.w.node(to), func(b *agent) (struct{}, error) {
		ctx, cancel := b.life.WithTimeout(context.Background(), within)
		defer cancel()
		return struct{}{}, b.Duties.Follow(ctx, index, term)
	})
	return err
}

// WaitIndex implements member.Host.
func (h mysqldHost) WaitIndex(ctx context.Context, index uint64) error {
	for {
		mark, changed := h.Raft.Committed().Changed()
		if mark.Index >= index {
			return nil
		}
		if err := h.life.Wait(ctx, 0, changed); err != nil {
			return err
		}
	}
}

// clients are the clients of a node's mysqld. It implements primary.Clients.
type clients struct{ *agent }

// Hold and the methods below implement primary.Clients. All clients come through the router.
func (c clients) Hold()                           {}
func (c clients) CloseAll()                       { c.w.load.closeSessions(c.n) }
func (c clients) OwnPort() bool                   { return false }
func (c clients) ClosePort(context.Context) error { return nil }
func (c clients) AwaitPort()                      {}
func (c clients) AwaitAnswers(context.Context)    {}

// EndReads implements primary.Clients. Here nobody reads; now and then mysqld fails to end sessions.
func (c clients) EndReads(context.Context) error {
	if chance(c.w.readsRNG, 2) {
		return errors.New("mysqld ends no sessions")
	}
	return nil
}

// Wake makes the router look soon which of its connections it closes.
func (c clients) Wake() {
	c.board.Wake()
	c.life.after(c.n.hiccup(), func() {
		if !c.Slot.Serving() && !c.Slot.Answering() {
			c.CloseAll()
		}
	})
}
