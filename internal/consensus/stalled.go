package consensus

import "time"

// Stalled returns for how long the log's disk has been at one write, where that
// is an election timeout or longer; else 0. A leader's OnStalled is told as well.
func (n *Node) Stalled() time.Duration {
	began := time.Duration(n.appendBegan.Load())
	if took := BootTime() - began; began != 0 && took >= n.cfg.ElectionTimeout {
		return took
	}
	return 0
}
