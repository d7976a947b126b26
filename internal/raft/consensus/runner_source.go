package consensus

import (
	"context"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/cluster"
)

// StepRelayed takes entries that this learner's source gave.
func (n *Runner) StepRelayed(ctx context.Context, r Relayed) error {
	refused, err := ask(ctx, n, func(time.Duration) error { return n.group.StepRelayed(r) })
	if err != nil {
		return fmt.Errorf("take entries of the source: %w", err)
	}
	return refused
}

// SetFed is Group.SetFed.
func (n *Runner) SetFed(ctx context.Context, ids []cluster.NodeID) {
	n.do(ctx, func(time.Duration) { n.group.SetFed(ids) })
}
