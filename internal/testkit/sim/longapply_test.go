package sim

import (
	"testing"
	"time"

	"github.com/quorate/quorate/internal/mysql/gtid"
)

// TestLongApply: a transaction takes the same time on every node, and its work shows. No work shows while the
// applier is blocked.
func TestLongApply(t *testing.T) {
	w := newWorld(Options{Nodes: 3})
	w.longApplies = true
	g := gtid.GTID{N: 1}
	for w.appliesFor(g) == 0 {
		g.N++
	}
	takes := w.appliesFor(g)
	if takes < longApplyMin || takes >= longApplyMin+longApplySpread {
		t.Fatalf("takes %v", takes)
	}
	m := &mysqld{n: w.nodes[0]}
	m.inside = applying{g, 0}
	w.sched.runUntil(time.Second)
	if got := m.applyWork(); got != uint64(time.Second/applyWorkStep) {
		t.Errorf("work %d after a second", got)
	}
	m.n.applierBlocked++
	if got := m.applyWork(); got != 0 {
		t.Errorf("work %d of a blocked applier", got)
	}
	m.n.applierBlocked--
	w.longApplies = false
	if got := w.appliesFor(g); got != 0 {
		t.Errorf("takes %v where none does", got)
	}
}
