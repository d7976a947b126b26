package agent

import "context"

// runLagBound looks at the replicas' lag at intervals while this node is primary.
func (a *Agent) runLagBound(ctx context.Context) error {
	if a.cfg.MySQL.MaxApplyLag == 0 {
		return nil
	}
	return every(ctx, watchInterval, func() error {
		committed := a.node.Committed().Mark().Index
		p, news := a.lagBound.Look(a.board.Own(), committed, a.board.Nodes())
		if news {
			a.logger.Warn("apply lag", "slowed", p.Limited, "bytes_per_second", int64(p.BytesPerSecond), "reason", p.Reason)
		}
		return nil
	})
}
