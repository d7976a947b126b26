package sim

import (
	"time"

	"github.com/quorate/quorate/internal/cluster"
)

// reset ends the connection that a node has made to another one. What that one has made to it stands.
const reset faultKind = "reset-connection"

// resetMean is the mean time between two of these faults.
const resetMean = time.Second

// resets are additional faults, in one of three worlds in which the members change.
func (w *World) resets(from, until time.Duration) (faults []fault) {
	rng := w.random(streamResets)
	if !chance(rng, 33) || !w.membersChange {
		return nil
	}
	w.resetsConns = true
	for at := from; at < until; at += around(rng, resetMean) {
		faults = append(faults, fault{at: at, kind: reset, target: cluster.NodeID(1 + rng.IntN(len(w.nodes))), size: rng.IntN(100)})
	}
	return faults
}

func (i *injector) strikeReset(f fault, n *node) {
	if a := i.w.primary().agent; a != nil && a.tells(n) {
		return // who connects again is told
	}
	i.w.resetConnection(n, i.w.node(cluster.NodeID(1+f.size%len(i.w.nodes))))
}

func (w *World) resetConnection(n, to *node) {
	if a := n.agent; a != nil && a.conns[to.id] != nil {
		w.struck.Resets++
		delete(a.conns, to.id)
		a.life.after(latencyMin, func() { a.lost(to.id) })
	}
}

// resetRebuilt ends all connections to a node just as it is to begin again: those that it has made stand, and tell it
// nothing.
func (w *World) resetRebuilt(before, now cluster.StatePoint) {
	if !w.resetsConns {
		return
	}
	for _, n := range w.nodes {
		if toBeginAnew(now, n) && !toBeginAnew(before, n) {
			n.log("fault", "%s: all to it", reset)
			for _, from := range w.nodes {
				w.resetConnection(from, n)
			}
		}
	}
}
