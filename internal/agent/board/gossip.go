package board

import (
	"context"

	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/role"
	"github.com/quorate/quorate/internal/sys/clock"
)

// Gossip sends this node's status to its peers, and calls heard with what the role machine has to know of them. It
// does so at every change that matters and at intervals, until ctx ends. own completes the node's status. A change
// does not delay the next interval: so a restarted node soon says that it votes again, which is no change.
func (b *Board) Gossip(ctx context.Context, c clock.Clock, own func() status.Node, send func(status.Node) error, heard func(own status.Node, in role.Peers)) error {
	for due := c.Now(); ; {
		changed := b.Changes()
		s := own()
		if err := send(s.Bounded()); err != nil {
			return err
		}
		heard(s, b.ForRole(s))
		for due <= c.Now() {
			due += GossipInterval
		}
		if c.Wait(ctx, due-c.Now(), changed) != nil {
			return nil
		}
	}
}
