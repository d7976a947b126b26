package consensus

import (
	"context"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/cluster"
)

// StepRelayed takes entries that this learner's source gave.
func (n *Node) StepRelayed(ctx context.Context, r Relayed) error {
	stepped := make(chan error, 1)
	n.do(ctx, func(time.Duration) { stepped <- n.group.StepRelayed(r) })
	select {
	case err := <-stepped:
		return err
	case <-ctx.Done():
		return fmt.Errorf("take entries of the source: %w", ctx.Err())
	case <-n.stopped:
		return ErrStopped
	}
}

// SetFed is Group.SetFed.
func (n *Node) SetFed(ctx context.Context, ids []cluster.NodeID) {
	n.do(ctx, func(time.Duration) { n.group.SetFed(ids) })
}
